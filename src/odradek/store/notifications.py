"""NotificationNodes to the controller: a leader changed an ISR, a log directory failed.

Sequential nodes: a broker with news adds one, the controller reads and deletes them. They only say
where to look; what happened is read from the partitions' states, or asked of the broker.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from odradek.store import paths, payloads
from odradek.store.api import Delete, NoNode, Watch
from odradek.store.nodes import Nodes
from odradek.wire.topics import TopicPartition


class NotificationNodes:
    """Both kinds of notification, from the sender's side and from the controller's."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    async def notify_isr_changes(self, tps: Iterable[TopicPartition]) -> None:
        await self._nodes.session.create(
            f"{paths.ISR_CHANGES}/{paths.ISR_CHANGE_PREFIX}",
            payloads.encode_partitions(tps),
            sequential=True,
        )

    async def isr_notifications(self, watch: Watch | None = None) -> list[str]:
        """Names of the notifications that wait."""
        return await self._nodes.names(paths.ISR_CHANGES, watch)

    async def isr_changes(self, notifications: Collection[str]) -> set[TopicPartition]:
        """The partitions these notifications name."""
        where = [f"{paths.ISR_CHANGES}/{name}" for name in notifications]
        changed: set[TopicPartition] = set()
        for path, node in zip(where, await self._nodes.session.get_many(where), strict=True):
            if node is not None:
                changed |= payloads.decode_partitions(node[0], path)
        return changed

    async def drop_isr_notifications(self, notifications: Iterable[str], fence: int) -> None:
        await self._drop(paths.ISR_CHANGES, notifications, fence)

    async def notify_log_dir_failure(self, broker_id: int) -> None:
        self._nodes.check_registered()
        await self._nodes.session.create(
            f"{paths.LOG_DIR_EVENTS}/{paths.LOG_DIR_EVENT_PREFIX}",
            payloads.encode_log_dir_event(broker_id),
            sequential=True,
        )

    async def log_dir_notifications(self, watch: Watch | None = None) -> list[str]:
        """Names of the notifications that wait."""
        return await self._nodes.names(paths.LOG_DIR_EVENTS, watch)

    async def log_dir_failures(self, notifications: Collection[str]) -> set[int]:
        """The brokers these notifications name."""
        where = [f"{paths.LOG_DIR_EVENTS}/{name}" for name in notifications]
        nodes = await self._nodes.session.get_many(where)
        return {
            payloads.decode_log_dir_event(node[0], path)
            for path, node in zip(where, nodes, strict=True)
            if node is not None
        }

    async def drop_log_dir_notifications(self, notifications: Iterable[str], fence: int) -> None:
        await self._drop(paths.LOG_DIR_EVENTS, notifications, fence)

    async def _drop(self, parent: str, names: Iterable[str], fence: int) -> None:
        deletes = [[Delete(f"{parent}/{name}")] for name in names]
        await self._nodes.write_all(deletes, fence, ignore=NoNode)
