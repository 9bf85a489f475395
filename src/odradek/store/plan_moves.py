"""The moves of plans that are not done yet: nodes of ours, so that a new controller continues them.

Under a path that no Kafka broker reads; under a Kafka controller they wait. A node holds a bounded
number of moves of one plan, in order, and the controller numbers the nodes itself, as those of
`admin_requests`: a creation that is sent twice finds what it made.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.store import payloads
from odradek.store.api import Create, Delete, NodeExists, NoNode, Set
from odradek.store.nodes import Nodes
from odradek.store.payloads import InvalidPayload
from odradek.wire.topics import TopicPartition

logger = logging.getLogger(__name__)

PLAN_MOVES = "/odradek/plan_moves"
_NAME = re.compile(r"moves_(\d{10})")


class PlannedMove(NamedTuple):
    """Where a partition shall be, and the bytes of one replica of it."""

    replicas: tuple[int, ...]
    bytes: int = 0


@dataclass(slots=True)
class PlanNode:
    """Some moves of one plan, in order, and the bytes a second that copying is throttled to; 0 for
    no throttle."""

    plan: str
    moves: dict[TopicPartition, PlannedMove] = field(default_factory=dict)
    throttle: int = 0


class PlanMoves:
    """The nodes of moves, by number."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    async def read(self) -> dict[int, PlanNode]:
        """All there are, in order. One that cannot be read is left alone: a controller that failed
        here would leave the cluster without any."""
        names = await self._nodes.names(PLAN_MOVES)
        numbers = sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))
        nodes = await self._nodes.session.get_many([_path(number) for number in numbers])
        found: dict[int, PlanNode] = {}
        for number, node in zip(numbers, nodes, strict=True):
            try:
                if node is not None:
                    found[number] = decode(node[0], _path(number))
            except InvalidPayload as error:
                logger.warning("ignoring moves of a plan: %s", error)
        return found

    async def add(self, nodes: Mapping[int, PlanNode], fence: int) -> None:
        await self._nodes.ensure(PLAN_MOVES)
        creates = [[Create(_path(number), encode(node))] for number, node in nodes.items()]
        await self._nodes.write_all(creates, fence, ignore=NodeExists)

    async def rewrite(self, nodes: Mapping[int, PlanNode], fence: int) -> None:
        """What is left in each of these nodes; one with nothing left goes."""
        writes: list[list[Set | Delete]] = [
            [Set(_path(number), encode(node)) if node.moves else Delete(_path(number))]
            for number, node in nodes.items()
        ]
        await self._nodes.write_all(writes, fence, ignore=NoNode)


def _path(number: int) -> str:
    return f"{PLAN_MOVES}/moves_{number:010}"


def encode(node: PlanNode) -> bytes:
    moves = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "replicas": list(move.replicas),
            "bytes": move.bytes,
        }
        for tp, move in node.moves.items()
    ]
    return payloads.dump(
        {"version": 1, "plan": node.plan, "throttle": node.throttle, "moves": moves}
    )


def decode(data: bytes | None, path: str) -> PlanNode:
    of = payloads.parse(data, path)
    throttle = payloads.typed(of, "throttle", int, path) if "throttle" in of else 0
    node = PlanNode(payloads.typed(of, "plan", str, path), throttle=throttle)
    for entry in payloads.objects(of, "moves", path):
        tp = TopicPartition(
            payloads.typed(entry, "topic", str, path), payloads.integer(entry, "partition", path)
        )
        node.moves[tp] = PlannedMove(
            payloads.integers(entry.get("replicas"), "replicas", path),
            payloads.typed(entry, "bytes", int, path),
        )
    return node
