"""The moves of plans that are not done yet, in the order of the plan, and the nodes that keep them.

A move stays here until its partition is where the plan wants it and led by the first replica: also
while a step of it is under way. So a new controller knows what is left, and what is under way it
finds in the assignments. One that is done, replaced or stopped is in no node any more when its
client gets the reply.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from odradek.controller.term import Term
from odradek.store.plan_moves import PlannedMove, PlanNode
from odradek.wire.topics import TopicPartition

# A node is written again for each move that ends: it must be small.
MOVES_PER_NODE = 100


class PlanQueue:
    """What plans still want."""

    def __init__(self, term: Term) -> None:
        self._store = term.store.plan_moves
        self._term = term
        self._nodes: dict[int, PlanNode] = {}
        self._node_of: dict[TopicPartition, int] = {}
        self._last_number = -1

    def __len__(self) -> int:
        return len(self._node_of)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._node_of)

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._node_of

    def __getitem__(self, tp: TopicPartition) -> PlannedMove:
        return self._nodes[self._node_of[tp]].moves[tp]

    def plan_of(self, tp: TopicPartition) -> str | None:
        number = self._node_of.get(tp)
        return None if number is None else self._nodes[number].plan

    async def load(self) -> None:
        """Learn what earlier controllers did not finish."""
        self._nodes = await self._store.read()
        self._node_of = {tp: number for number, node in self._nodes.items() for tp in node.moves}
        self._last_number = max(self._nodes, default=-1)

    def throttled(self) -> dict[int, list[TopicPartition]]:
        """The moves that are to be throttled, by rate."""
        found: dict[int, list[TopicPartition]] = {}
        for node in self._nodes.values():
            if node.throttle:
                found.setdefault(node.throttle, []).extend(node.moves)
        return found

    async def add(
        self, plan: str, moves: Mapping[TopicPartition, PlannedMove], throttle: int = 0
    ) -> None:
        """Put these at the end. They must not be in the queue."""
        rest = iter(moves.items())
        nodes: dict[int, PlanNode] = {}
        while chunk := dict(islice(rest, MOVES_PER_NODE)):
            self._last_number += 1
            nodes[self._last_number] = PlanNode(plan, chunk, throttle)
        if not nodes:
            return
        await self._store.add(nodes, self._term.fence)
        self._nodes.update(nodes)
        self._node_of.update({tp: number for number, node in nodes.items() for tp in node.moves})

    async def remove(self, tps: Iterable[TopicPartition]) -> None:
        """These are done, replaced or stopped, or their topics deleted."""
        changed: dict[int, PlanNode] = {}
        for tp in tps:
            number = self._node_of.pop(tp, None)
            if number is not None:
                node = changed[number] = self._nodes[number]
                del node.moves[tp]
        if not changed:
            return
        await self._store.rewrite(changed, self._term.fence)
        for number, node in changed.items():
            if not node.moves:
                del self._nodes[number]
