"""Requests to the controller that are kept as nodes: deletions, reassignments, elections.

Kafka's own nodes, and one of ours: reassignments that wait for their turn, so that a new controller
still knows them. Those are under a path that no Kafka broker reads, a bounded number in each node,
in the format of ``/admin/reassign_partitions``.

The controller numbers the nodes of the queue itself, counting on from the last. A creation that is
sent again, because its reply was lost, then finds what it made; with a sequential node it would
make a second one that no controller knew of, and that a later controller would carry out.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Mapping

from odradek.store import paths, payloads
from odradek.store.api import Create, Delete, NodeExists, NoNode, Set, Watch
from odradek.store.nodes import Nodes
from odradek.store.payloads import InvalidPayload
from odradek.wire.topics import TopicPartition

logger = logging.getLogger(__name__)

QUEUE = "/odradek/reassignments"
QUEUE_PREFIX = "waiting_"
_QUEUE_NAME = re.compile(QUEUE_PREFIX + r"(\d{10})")

Moves = Mapping[TopicPartition, Collection[int]]
Targets = dict[TopicPartition, tuple[int, ...]]


class AdminRequests:
    """What the controller is asked to do through the store."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    # Topic deletions

    async def deletions(self, watch: Watch | None = None) -> list[str]:
        """Topics that are to be deleted."""
        return await self._nodes.names(paths.DELETE_TOPICS, watch)

    async def request_deletion(self, topic: str) -> None:
        """Raises NodeExists if it was requested already."""
        await self._nodes.session.create(paths.delete_topic(topic), None)

    async def drop_deletions(self, topics: Iterable[str], fence: int) -> None:
        deletes = [[Delete(paths.delete_topic(topic))] for topic in topics]
        await self._nodes.write_all(deletes, fence, ignore=NoNode)

    # The legacy nodes of Kafka's older tools

    async def reassignment(self, watch: Watch | None = None) -> Targets:
        """The legacy request to reassign; one that cannot be read is ignored, as in Kafka."""
        node = await self._nodes.read(paths.REASSIGN_PARTITIONS, watch)
        if node is None:
            return {}
        try:
            return payloads.decode_reassignment(node[0])
        except InvalidPayload as error:
            logger.warning("ignoring the reassignment: %s", error)
            return {}

    async def set_reassignment(self, moves: Moves, fence: int) -> None:
        """What is left of the request; with nothing left it goes."""
        path = paths.REASSIGN_PARTITIONS
        if not moves:
            await self._nodes.write_all([[Delete(path)]], fence, ignore=NoNode)
            return
        data = payloads.encode_reassignment(moves)
        try:
            await self._nodes.write_all([[Set(path, data)]], fence)
        except NoNode:
            await self._nodes.write_all([[Create(path, data)]], fence)

    async def preferred_election(self, watch: Watch | None = None) -> set[TopicPartition] | None:
        """The legacy request for preferred leaders, if any; empty if it cannot be read."""
        node = await self._nodes.read(paths.PREFERRED_ELECTION, watch)
        if node is None:
            return None
        try:
            return payloads.decode_partitions(node[0], paths.PREFERRED_ELECTION)
        except InvalidPayload as error:
            logger.warning("%s; treated as empty", error)
            return set()

    async def drop_preferred_election(self, fence: int) -> None:
        await self._nodes.write_all([[Delete(paths.PREFERRED_ELECTION)]], fence, ignore=NoNode)

    # Reassignments that wait for their turn

    async def queued_reassignments(self) -> dict[int, Targets]:
        """The nodes of the queue by their number, in order."""
        names = await self._nodes.names(QUEUE)
        numbers = sorted(int(found[1]) for name in names if (found := _QUEUE_NAME.fullmatch(name)))
        nodes = await self._nodes.session.get_many([_queue_path(number) for number in numbers])
        return {
            number: payloads.decode_reassignment(node[0])
            for number, node in zip(numbers, nodes, strict=True)
            if node is not None
        }

    async def queue_reassignments(self, chunks: Mapping[int, Moves], fence: int) -> None:
        """New nodes of the queue. One that is there is ours: its creation was sent twice."""
        await self._nodes.ensure(QUEUE)
        creates = [
            [Create(_queue_path(number), payloads.encode_reassignment(moves))]
            for number, moves in chunks.items()
        ]
        await self._nodes.write_all(creates, fence, ignore=NodeExists)

    async def rewrite_queued(self, chunks: Mapping[int, Moves], fence: int) -> None:
        """What is left in each of these nodes; one with nothing left goes."""
        writes: list[list[Set | Delete]] = [
            [
                Set(_queue_path(number), payloads.encode_reassignment(moves))
                if moves
                else Delete(_queue_path(number))
            ]
            for number, moves in chunks.items()
        ]
        await self._nodes.write_all(writes, fence, ignore=NoNode)


def _queue_path(number: int) -> str:
    return f"{QUEUE}/{QUEUE_PREFIX}{number:010}"
