"""Reassignments that wait for their turn, from two sources: the API and the legacy node.

Kafka has no such queue; it starts every reassignment at once. What came through the API is kept in
nodes of our own (`store.requests`), a bounded number in each, so that a new controller still knows
it; under a Kafka controller those wait until one of ours is elected. What the legacy node asks for
is kept by that node itself. The API's come first, each source in the order asked.

A reassignment that has started may still be named in its node: a reader sees from the assignment
that it has started. One that was cancelled or replaced is removed from its node before the client
gets its reply, and one whose topic is to be deleted before that is done: the next topic of that
name is another.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from odradek.controller.term import Term
from odradek.wire.topics import TopicPartition

Replicas = tuple[int, ...]
Targets = Mapping[TopicPartition, Replicas]


class ReassignmentQueue:
    """The queue, first asked first served."""

    def __init__(self, term: Term) -> None:
        self._requests = term.store.requests
        self._term = term
        self._partitions_per_node_max = term.config.reassignment_partitions_per_node_max
        assert self._partitions_per_node_max > 0
        self._waiting: dict[TopicPartition, Replicas] = {}
        self._legacy: dict[TopicPartition, Replicas] = {}
        # What each of our nodes still names, waiting or started.
        self._nodes: dict[int, dict[TopicPartition, Replicas]] = {}
        self._last_number = -1

    def __len__(self) -> int:
        return len(self._waiting) + len(self._legacy.keys() - self._waiting.keys())

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter({**self._waiting, **self._legacy})

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._waiting or tp in self._legacy

    def target(self, tp: TopicPartition) -> Replicas:
        waiting = self._waiting.get(tp)
        return self._legacy[tp] if waiting is None else waiting

    def waiting_before_legacy(self) -> int:
        """How many wait that came through the API: they go first."""
        return len(self._waiting)

    def named(self) -> set[TopicPartition]:
        """All that a node names, waiting or started: what a new controller would find."""
        return {tp for moves in self._nodes.values() for tp in moves} | self._legacy.keys()

    async def load(self) -> None:
        """Learn what waited under an earlier controller."""
        self._nodes = await self._requests.queued_reassignments()
        for moves in self._nodes.values():
            self._waiting.update(moves)
        self._last_number = max(self._nodes, default=-1)

    async def add(self, moves: Targets) -> None:
        """Put these, asked for through the API, at the end. They must not be in the queue."""
        if not moves:
            return
        rest = iter(moves.items())
        chunks: dict[int, dict[TopicPartition, Replicas]] = {}
        while chunk := dict(islice(rest, self._partitions_per_node_max)):
            self._last_number += 1
            chunks[self._last_number] = chunk
        await self._requests.queue_reassignments(chunks, self._term.fence)
        self._nodes.update(chunks)
        self._waiting.update(moves)

    def set_legacy(self, moves: Targets) -> None:
        """All that the legacy node asks for and that must wait."""
        self._legacy = dict(moves)

    async def started(self, tps: Iterable[TopicPartition]) -> None:
        """These no longer wait. A node of ours none of whose moves waits goes."""
        for tp in tps:
            self._waiting.pop(tp, None)
            self._legacy.pop(tp, None)
        spent = [
            number
            for number, moves in self._nodes.items()
            if not any(tp in self._waiting for tp in moves)
        ]
        await self._requests.rewrite_queued({number: {} for number in spent}, self._term.fence)
        for number in spent:
            del self._nodes[number]

    async def remove(self, tps: Iterable[TopicPartition]) -> None:
        """These were cancelled, replaced or deleted: no node may name them any more."""
        removed = set(tps)
        if not removed:
            return
        changed = {}
        for number, moves in self._nodes.items():
            left = {tp: to for tp, to in moves.items() if tp not in removed}
            if len(left) < len(moves):
                changed[number] = left
        for number, left in changed.items():
            if left:
                self._nodes[number] = left
            else:
                del self._nodes[number]
        for tp in removed:
            self._waiting.pop(tp, None)
        await self._requests.rewrite_queued(changed, self._term.fence)
        await self.remove_from_legacy_node(removed)

    async def remove_from_legacy_node(self, tps: Iterable[TopicPartition]) -> None:
        """The legacy node names these no more; it goes with the last of them."""
        removed = set(tps)
        if not removed:
            return
        for tp in removed:
            self._legacy.pop(tp, None)
        moves = await self._requests.reassignment()
        left = {tp: to for tp, to in moves.items() if tp not in removed}
        if len(left) < len(moves):
            await self._requests.set_reassignment(left, self._term.fence)

    async def remove_arrived(self, targets: Mapping[TopicPartition, Iterable[int]]) -> None:
        """The legacy node names a partition no more that has arrived where the node wanted it."""
        moves = await self._requests.reassignment()
        arrived = [
            tp for tp, to in moves.items() if tp in targets and tuple(targets[tp]) == tuple(to)
        ]
        await self.remove_from_legacy_node(arrived)
