"""What a broker notifies the controller of through the store.

docs/spec/interchange-with-apache-kafka.md section C.

Partitions whose ISR a leader has written are listed in `/isr_change_notification`: at once if there
was no notification for a while, and then many together, once a second. (Kafka waits until nothing
has changed for five seconds, up to a minute; clients learn of a full ISR as much later.)
"""

import asyncio
import logging
from collections.abc import Coroutine

from odradek.store.api import StoreError
from odradek.store.cluster import ClusterStore
from odradek.wire.topics import TopicPartition

__all__ = ["Notifications"]

logger = logging.getLogger(__name__)

# Changes that come together are listed together: a notification costs the whole cluster a little.
NOTIFY_SOONEST_S = 0.05
NOTIFY_EVERY_S = 1.0
RETRY_S = 0.5


class Notifications:
    """Changed ISRs and failed log directories, on their way to the controller."""

    def __init__(self, broker_id: int, store: ClusterStore) -> None:
        self._broker_id = broker_id
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._changed: set[TopicPartition] = set()
        self._notified_at = self._loop.time() - NOTIFY_EVERY_S
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._notified = 0

    def isr_changed(self, tp: TopicPartition) -> None:
        self._changed.add(tp)
        if self._timer is None:
            wait_s = self._notified_at + NOTIFY_EVERY_S - self._loop.time()
            self._timer = self._loop.call_later(
                max(wait_s, NOTIFY_SOONEST_S), lambda: self._start(self._notify_isr_changes())
            )

    async def _notify_isr_changes(self) -> None:
        self._timer = None
        self._notified_at = self._loop.time()
        changed, self._changed = self._changed, set()
        try:
            await self._store.notifications.notify_isr_changes(sorted(changed))
        except StoreError as error:
            logger.warning("%d ISR changes not notified, retrying: %s", len(changed), error)
            for tp in changed:
                self.isr_changed(tp)
            return
        self._notified += len(changed)

    def log_dir_failed(self) -> None:
        """The controller finds out which partitions are concerned by asking this broker."""
        self._start(self._notify_log_dir_failure())

    async def _notify_log_dir_failure(self) -> None:
        while True:
            try:
                await self._store.notifications.notify_log_dir_failure(self._broker_id)
                return
            except StoreError as error:
                logger.warning("log directory failure not notified, retrying: %s", error)
                await asyncio.sleep(RETRY_S)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def statistics(self) -> dict[str, int]:
        return {"notified": self._notified, "unannounced": len(self._changed)}
