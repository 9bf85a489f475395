"""What a checker can see: the store as it stands, written along; the brokers' partitions; logs."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from odradek.broker.server import Broker
from odradek.log.log import Log
from odradek.replica.partition import Partition
from odradek.store import paths
from odradek.store.api import Create, Delete, Operation, Set
from odradek.store.memory import MemoryStore
from odradek.store.payloads import (
    LeaderAndIsr,
    TopicNode,
    decode_controller_epoch,
    decode_state,
    decode_topic,
)
from odradek.store.plan_moves import PLAN_MOVES, PlanNode
from odradek.store.plan_moves import decode as decode_plan_moves
from odradek.store.tree import Tree
from odradek.wire.batch import BatchHeader, scan
from odradek.wire.records import Record, decode_records
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    from .world import World

READ_BYTES = 1 << 24
TOPICS = paths.TOPICS + "/"
PLAN_NODES = PLAN_MOVES + "/"

# Partitions, each with the broker that it is on.
Hosted = Sequence[tuple[Broker, Partition]]
# Which topic, its assignment before and now.
AssignmentListener = Callable[[str, TopicNode | None, TopicNode], None]


class StateWrite(NamedTuple):
    """Who wrote a partition's state, what was there before, and what is there now."""

    writer: MemoryStore
    of: TopicPartition
    before: LeaderAndIsr | None
    after: LeaderAndIsr


class Ledger:
    """Topics, partition states and the controller epoch as the store has them, after each write."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self.topics: dict[str, TopicNode] = {}
        self.states: dict[TopicPartition, LeaderAndIsr] = {}
        self.controller_epoch = 0
        self.listeners: list[Callable[[StateWrite], None]] = []
        self.assignment_listeners: list[AssignmentListener] = []
        self._plan_nodes: dict[str, PlanNode] = {}

    def plan_moves(self) -> set[TopicPartition]:
        """The partitions that plans still want to move."""
        return {tp for node in self._plan_nodes.values() for tp in node.moves}

    def is_replica(self, broker: int, tp: TopicPartition) -> bool:
        """Whether the partition is assigned to this broker. One that was down when its replica was
        moved to another broker keeps what it had, unused, as in Kafka."""
        node = self.topics.get(tp.topic)
        return node is not None and broker in node.partitions.get(tp.partition, ())

    def observe(self, writer: MemoryStore, operations: Sequence[Operation]) -> None:
        for operation in operations:
            path = operation.path
            if isinstance(operation, Create | Set):
                if path == paths.CONTROLLER_EPOCH:
                    self.controller_epoch = decode_controller_epoch(operation.data)
                elif path.startswith(PLAN_NODES):
                    self._plan_nodes[path] = decode_plan_moves(operation.data, path)
                elif path.startswith(TOPICS):
                    self._written(writer, path.removeprefix(TOPICS).split("/"), operation.data)
            elif isinstance(operation, Delete) and path.startswith(PLAN_NODES):
                self._plan_nodes.pop(path, None)
            elif isinstance(operation, Delete) and path.startswith(TOPICS):
                self._deleted(path.removeprefix(TOPICS).split("/"))

    def _written(self, writer: MemoryStore, names: list[str], data: bytes | None) -> None:
        match names:
            case [topic]:
                known = self.topics.get(topic)
                node = self.topics[topic] = decode_topic(topic, data)
                for listen in self.assignment_listeners:
                    listen(topic, known, node)
            case [topic, "partitions", number, "state"]:
                of = TopicPartition(topic, int(number))
                version = self._tree.get(paths.partition_state(of))[1].version
                state = decode_state(of, data, version)
                assert state is not None, f"{of}: {data!r}"
                before = self.states.get(of)
                self.states[of] = state
                for listener in self.listeners:
                    listener(StateWrite(writer, of, before, state))

    def _deleted(self, names: list[str]) -> None:
        match names:
            case [topic]:
                self.topics.pop(topic, None)
            case [topic, "partitions", number, "state"]:
                self.states.pop(TopicPartition(topic, int(number)), None)


def has_deposed_leader(world: "World", topic: str) -> bool:
    """Whether a broker, be it one whose id another has taken, leads a partition of this topic in an
    epoch that is over, and has not heard of it: what it answers is of the past."""
    states = world.ledger.states
    return any(
        partition.tp.topic == topic
        and partition.is_leader
        and partition.tp in states
        and partition.leader_epoch < states[partition.tp].leader_epoch
        for machine in world.machines
        if machine.is_up and machine.broker is not None
        for _, partition in _hosted_by(machine.broker)
    )


def hosted(world: "World") -> Iterator[tuple[Broker, Partition]]:
    """Every partition on every broker that is alive and has come far enough to host one."""
    for broker in world.brokers():
        yield from _hosted_by(broker)


def _hosted_by(broker: Broker) -> Iterator[tuple[Broker, Partition]]:
    if hasattr(broker, "replicas"):
        for partition in list(broker.replicas.partitions.values()):
            if partition.log is not None and not partition.log.offline:
                yield broker, partition


def leaders(world: "World") -> dict[TopicPartition, Partition]:
    """The leader of each partition. One that was deposed, or moved away, while it was isolated may
    still consider itself the leader: the latest epoch counts."""
    found: dict[TopicPartition, Partition] = {}
    for _, partition in hosted(world):
        known = found.get(partition.tp)
        if partition.is_leader and (known is None or known.leader_epoch < partition.leader_epoch):
            found[partition.tp] = partition
    return found


def batches_of(log: Log, end: int) -> Iterator[tuple[BatchHeader, bytes]]:
    """The batches of a log as far as `end`: each header, and the bytes it was found in."""
    offset = log.start_offset
    while offset < end:
        piece = bytes(log.read(offset, READ_BYTES, end_offset=end).records)
        following = offset
        for header in scan(piece):
            following = header.next_offset
            yield header, piece
        if following == offset:
            return
        offset = following


def records_of(log: Log, end: int | None = None) -> Iterator[Record]:
    """The records of a log, as far as `end`."""
    limit = log.end_offset if end is None else end
    for header, piece in batches_of(log, limit):
        if not header.is_control:
            records = decode_records(piece, header)
            yield from (record for record in records if log.start_offset <= record.offset < limit)
