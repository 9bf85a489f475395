"""Writing changes of the ISR to the store.

docs/spec/controller-and-replication.md section 5.3, docs/spec/interchange-with-apache-kafka.md C.

A leader role submits an `IsrChange` and gets an `IsrResult`. The state node is written directly,
under the version that the leader knows, and the controller is notified (notifications.py).

Which follower may join (the hole that KIP-903 closed, closed here without its wire format). A
broker that restarted with an empty disk must not be in the ISR because of what its predecessor,
same id, had fetched. An incarnation is known by its broker epoch, the creation id of its node in
the store; a Fetch does not carry it. So:
1. Before a change is submitted, the follower's registration is read, and then its link must show
   that it is alive after that read (`FollowerLink.identified`): a fetch left over from a dead
   predecessor cannot.
2. Right before the write the registration is read again; with another epoch, or none,
   the change is not applied, and what the leader knew of the follower's log is dropped. If the
   change was sent before, and the connection to the store broke, it may have been written or still
   be: the ISR without the follower is written, in its place or over it.
3. Right after the write it is read once more. If the epoch is still the same, the write happened in
   that incarnation's life, and its death will be seen by the controller, which removes it. If not,
   the write is reverted at once, before the leader counts it as done.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, replace

from odradek.replica.leader.fetch_state import FollowerLink, Wakeups
from odradek.replica.notifications import Notifications
from odradek.store.api import StoreError
from odradek.store.cluster import ClusterStore
from odradek.store.payloads import LeaderAndIsr
from odradek.wire.topics import TopicPartition

__all__ = ["Accepted", "IsrChange", "IsrResult", "IsrWriter", "NotApplied", "Rejected"]

logger = logging.getLogger(__name__)

RETRY_S = 0.5


@dataclass(frozen=True, slots=True)
class Accepted:
    """Written: the ISR is the one that was submitted."""

    partition_epoch: int


@dataclass(frozen=True, slots=True)
class Rejected:
    """The controller has written since. The change stays pending until its next LeaderAndIsr."""


@dataclass(frozen=True, slots=True)
class NotApplied:
    """The ISR is what it was; with a new partition epoch if the change was written and reverted."""

    partition_epoch: int | None = None
    # The broker that was to join is not the one whose fetches had been seen.
    is_other_incarnation: bool = False


IsrResult = Accepted | Rejected | NotApplied


class IsrChange:
    """A change of the ISR on its way to the store. A follower joins in one incarnation only."""

    __slots__ = (
        "_on_result",
        "broker_epoch",
        "committed",
        "is_sent",
        "is_withdrawn",
        "link",
        "state",
        "tp",
    )

    def __init__(
        self,
        tp: TopicPartition,
        committed: tuple[int, ...],
        state: LeaderAndIsr,
        link: FollowerLink | None,
        on_result: "Callable[[IsrChange, IsrResult], None]",
    ) -> None:
        """From ISR `committed` to `state`, whose partition epoch is the version to write under.
        `link` is that of the follower that joins, None for a shrink."""
        assert state.leader in state.isr, state
        self.tp = tp
        self.committed = committed
        self.state = state
        self.link = link
        self.broker_epoch = None if link is None else link.epoch
        self.is_sent = False  # the store may have it, whatever came back
        self.is_withdrawn = False  # the leader epoch is over: no longer to be written
        self._on_result = on_result

    @property
    def joining(self) -> int | None:
        return None if self.link is None else self.link.broker_id

    def finish(self, result: IsrResult) -> None:
        """Hand the result to the role that submitted the change."""
        self._on_result(self, result)


class IsrWriter:
    """The ISR changes of one broker on their way to the store."""

    def __init__(self, store: ClusterStore, notifications: Notifications, wakeups: Wakeups) -> None:
        self._store = store
        self._notifications = notifications
        self._wakeups = wakeups
        self._queue: list[IsrChange] = []
        self._writer: asyncio.Task[None] | None = None
        self._readers: set[asyncio.Task[None]] = set()
        self._counts = {"expanded": 0, "shrunk": 0, "refused": 0, "voided": 0}

    # Incarnations

    def identify(self, link: FollowerLink) -> None:
        """Find out which incarnation of its broker is at the other end of this link."""
        if link.epoch is None and not link.is_being_identified:
            link.is_being_identified = True
            self._start(self._identify(link))

    async def _identify(self, link: FollowerLink) -> None:
        try:
            broker = await self._store.broker(link.broker_id)
        except StoreError as error:
            logger.warning("broker %d: cannot read its registration: %s", link.broker_id, error)
            return
        finally:
            link.is_being_identified = False
        if broker is not None:
            link.identified(broker.epoch)
            if link.parked is not None:
                # Answered at once, so that the next fetch, which proves the incarnation, comes.
                link.parked.try_complete(force=True)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._readers.add(task)
        task.add_done_callback(self._readers.discard)

    async def _epochs(self, broker_ids: Iterable[int]) -> dict[int, int]:
        ids = list(broker_ids)
        brokers = await asyncio.gather(*map(self._store.broker, ids))
        return {broker.id: broker.epoch for broker in brokers if broker is not None}

    @staticmethod
    def _is_present(change: IsrChange, epochs: dict[int, int]) -> bool:
        return change.joining is None or epochs.get(change.joining) == change.broker_epoch

    # Writing

    def submit(self, change: IsrChange) -> None:
        """Write this change; its role gets the result, unless the change is withdrawn before."""
        self._queue.append(change)
        if self._writer is None:
            self._writer = asyncio.ensure_future(self._write_all())

    async def _write_all(self) -> None:
        """One batch at a time; changes submitted meanwhile are the next batch."""
        try:
            while self._queue:
                batch, self._queue = self._queue, []
                try:
                    await self._write(batch)
                except StoreError as error:
                    logger.warning("%d ISR changes not written, retrying: %s", len(batch), error)
                    await asyncio.sleep(RETRY_S)
                    self._queue = batch + self._queue
        finally:
            self._writer = None

    async def _write(self, batch: list[IsrChange]) -> None:
        batch = [change for change in batch if not change.is_withdrawn]
        joining = {change.joining for change in batch if change.joining is not None}
        before = await self._epochs(joining)
        writing = []
        for change in batch:
            if self._is_present(change, before):
                writing.append(change)
            elif change.is_sent:
                await self._revert_unconfirmed(change)
            else:
                self._not_applied(change, None)
        states = await asyncio.gather(*map(self._write_one, writing))
        after = await self._epochs(joining)
        for change, state in zip(writing, states, strict=True):
            if state is None:
                self._rejected(change)
            elif self._is_present(change, after):
                self._accepted(change, state)
            else:
                self._reverted(change, await self._without_joining(change, state))
        self._wakeups.run()

    async def _write_one(self, change: IsrChange) -> LeaderAndIsr | None:
        if change.is_withdrawn:
            return None
        change.is_sent = True
        return await self._store.update_isr(change.tp, change.state)

    def _accepted(self, change: IsrChange, state: LeaderAndIsr) -> None:
        if not change.is_withdrawn:
            verb = "shrinks" if change.joining is None else "expands"
            logger.info(
                "%s: ISR %s from %s to %s in leader epoch %d",
                change.tp,
                verb,
                list(change.committed),
                list(change.state.isr),
                change.state.leader_epoch,
            )
        change.finish(Accepted(state.partition_epoch))
        self._counts["shrunk" if change.joining is None else "expanded"] += 1
        self._notifications.isr_changed(change.tp)

    def _rejected(self, change: IsrChange) -> None:
        self._counts["refused"] += 1
        logger.info(
            "%s: ISR %s rejected, the state is no longer at version %d",
            change.tp,
            list(change.state.isr),
            change.state.partition_epoch,
        )
        change.finish(Rejected())

    async def _revert_unconfirmed(self, change: IsrChange) -> None:
        """The broker that was to join has restarted, and the store may have let it in or not."""
        if change.is_withdrawn:
            return
        reverted = await self._without_joining(change, change.state)
        if reverted is None:
            written = await self._store.update_isr(change.tp, change.state)
            if written is not None:
                reverted = await self._without_joining(change, written)
        self._reverted(change, reverted)

    async def _without_joining(self, change: IsrChange, state: LeaderAndIsr) -> LeaderAndIsr | None:
        isr = tuple(replica for replica in state.isr if replica != change.joining)
        return await self._store.update_isr(change.tp, replace(state, isr=isr))

    def _reverted(self, change: IsrChange, state: LeaderAndIsr | None) -> None:
        if state is None:
            self._rejected(change)
        else:
            self._not_applied(change, state.partition_epoch)
            self._notifications.isr_changed(change.tp)

    def _not_applied(self, change: IsrChange, partition_epoch: int | None) -> None:
        self._counts["voided"] += 1
        logger.warning(
            "%s: broker %s restarted after it had caught up, and does not join the ISR",
            change.tp,
            change.joining,
        )
        assert change.link is not None
        change.link.forget_epoch()
        change.finish(NotApplied(partition_epoch, is_other_incarnation=True))

    async def close(self) -> None:
        tasks = [*self._readers, *([self._writer] if self._writer is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def statistics(self) -> dict[str, int]:
        return {**self._counts, "queued": len(self._queue)}
