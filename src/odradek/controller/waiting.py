"""Moves that wait for their turn, kept in the store so that a new controller still knows them.

Kafka has no such thing; it starts every move at once, or asks for one node that must hold them
all. Our nodes hold a bounded number of moves each, in the format of Kafka's own
`/admin/reassign_partitions`, under a path no Kafka broker looks at: under a Kafka controller they
wait until one of ours is back.

A started move may still be named in its node; whoever reads it again sees from the assignment
that it has started. One that was cancelled or replaced is struck from its node before anybody is
answered, and one whose topic is to be deleted before it is: the next topic of that name is another.

The controller names the nodes itself, by counting on from the last. A creation that is sent again,
because its answer was lost, then finds what it made; with a name from the store it would make a
second node that nobody knew of, and that a later controller would carry out.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from odradek.store import paths, payloads
from odradek.store.api import Check, Create, Delete, NodeExists, NoNode, Operation, Set, StoreError
from odradek.store.cluster import ClusterStore, ControllerMoved
from odradek.wire.topics import TopicPartition

ROOT = "/odradek/reassignments"
PREFIX = "waiting_"
_NAME = re.compile(PREFIX + r"\d{10}")

Replicas = tuple[int, ...]


class WaitingMoves:
    """The queue of moves, first asked first served."""

    def __init__(self, store: ClusterStore, partitions_per_node_max: int) -> None:
        assert partitions_per_node_max > 0
        self._store = store
        self._partitions_per_node_max = partitions_per_node_max
        self._waiting: dict[TopicPartition, Replicas] = {}
        # What each node still names, waiting or started.
        self._nodes: dict[str, dict[TopicPartition, Replicas]] = {}
        self._last_number = -1

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._waiting)

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._waiting

    def target(self, key: TopicPartition) -> Replicas:
        return self._waiting[key]

    def named(self) -> set[TopicPartition]:
        """Whatever a node names, waiting or started: what a new controller would find."""
        return {key for moves in self._nodes.values() for key in moves}

    async def load(self) -> None:
        """Learn what waited under an earlier controller."""
        names = sorted(name for name in await self._store.names(ROOT) if _NAME.fullmatch(name))
        where = [f"{ROOT}/{name}" for name in names]
        for path, node in zip(where, await self._store.store.get_many(where), strict=True):
            if node is not None:
                moves = payloads.decode_reassignment(node[0])
                self._nodes[path] = moves
                self._waiting.update(moves)
        self._last_number = max((int(name.removeprefix(PREFIX)) for name in names), default=-1)

    async def add(self, moves: Mapping[TopicPartition, Replicas], fence: int) -> None:
        """Put these at the end of the queue. They must not be in it."""
        if not moves:
            return
        await self._store.ensure(ROOT)
        rest = iter(moves.items())
        chunks = []
        while chunk := dict(islice(rest, self._partitions_per_node_max)):
            chunks.append(chunk)
        nodes = {self._next_path(): chunk for chunk in chunks}
        await self._write(
            [[Create(path, payloads.encode_reassignment(chunk))] for path, chunk in nodes.items()],
            fence,
        )
        for path, chunk in nodes.items():
            self._nodes[path] = chunk
            self._waiting.update(chunk)

    def _next_path(self) -> str:
        self._last_number += 1
        return f"{ROOT}/{PREFIX}{self._last_number:010}"

    async def started(self, keys: Iterable[TopicPartition], fence: int) -> None:
        """These no longer wait. A node none of whose moves waits goes."""
        for key in keys:
            self._waiting.pop(key, None)
        spent = [
            path
            for path, moves in self._nodes.items()
            if not any(key in self._waiting for key in moves)
        ]
        await self._write([[Delete(path)] for path in spent], fence)
        for path in spent:
            del self._nodes[path]

    async def strike(self, keys: Iterable[TopicPartition], fence: int) -> None:
        """These were cancelled or replaced: no node may name them any more."""
        struck = set(keys)
        writes: list[list[Operation]] = []
        for path, moves in list(self._nodes.items()):
            left = {key: to for key, to in moves.items() if key not in struck}
            if len(left) == len(moves):
                continue
            if left:
                writes.append([Set(path, payloads.encode_reassignment(left))])
                self._nodes[path] = left
            else:
                writes.append([Delete(path)])
                del self._nodes[path]
        for key in struck:
            self._waiting.pop(key, None)
        await self._write(writes, fence)

    async def _write(self, multis: Iterable[Sequence[Operation]], fence: int) -> None:
        """Each under the fence; a node that is gone, or there, already is no error."""
        check = Check(paths.CONTROLLER_EPOCH, fence)
        for result in await self._store.store.multi_many([check, *multi] for multi in multis):
            if not isinstance(result, StoreError):
                continue
            if result.path == paths.CONTROLLER_EPOCH:
                raise ControllerMoved(f"the controller epoch is no longer at version {fence}")
            if not isinstance(result, (NoNode, NodeExists)):
                raise result
