"""The invariants, one checker each, named as in the literature.

A checker looks at the world (`look`, every quarter of a virtual second and at the end) or at the
evidence (`judge`, at the end, when everything has healed). It reads the store's tree, the brokers'
own objects and the history of the clients; it changes nothing. Each can fail: tests plant a bug for
each and show that it is found.
"""

from collections.abc import Iterator, Mapping
from typing import Protocol

from odradek.broker.server import Broker
from odradek.log.log import Log
from odradek.replica.partition import Partition
from odradek.store import paths
from odradek.store.api import NoNode
from odradek.store.payloads import (
    PartitionState,
    TopicNode,
    decode_controller_epoch,
    decode_state,
    decode_topic,
)
from odradek.wire.batch import scan
from odradek.wire.records import Record, decode_records
from odradek.wire.topics import TopicPartition

from .history import History
from .world import World

READ_BYTES = 1 << 24


class Checker(Protocol):
    """One invariant."""

    name: str

    def look(self, world: World, history: History) -> None:
        """Compare what is with what may be, now."""

    def judge(self, world: World, history: History) -> None:
        """After everything has healed."""


class Snapshot:
    """The store's partitions as they are now."""

    def __init__(self, world: World) -> None:
        tree = world.server.tree
        self.topics: dict[str, TopicNode] = {}
        self.states: dict[TopicPartition, PartitionState] = {}
        self.controller_epoch = 0
        try:
            self.controller_epoch = decode_controller_epoch(tree.get(paths.CONTROLLER_EPOCH)[0])
            names = tree.children(paths.TOPICS)
        except NoNode:
            return
        for name in names:
            self.topics[name] = decode_topic(name, tree.get(paths.topic(name))[0])
            for number in self.topics[name].partitions:
                of = TopicPartition(name, number)
                try:
                    data, stat = tree.get(paths.partition_state(of))
                except NoNode:
                    continue
                state = decode_state(of, data, stat.version)
                if state is not None:
                    self.states[of] = state


def hosted(world: World) -> Iterator[tuple[Broker, Partition]]:
    """Every partition on every broker that is alive and has come far enough to host one."""
    for broker in world.brokers():
        if hasattr(broker, "replicas"):
            for partition in list(broker.replicas.partitions.values()):
                if partition.log is not None and not partition.log.offline:
                    yield broker, partition


def records_of(log: Log, end: int | None = None) -> Iterator[Record]:
    """The records of a log, as far as `end`."""
    limit = log.end_offset if end is None else end
    offset = log.start_offset
    while offset < limit:
        piece = log.read(offset, READ_BYTES, end_offset=limit).records
        following = offset
        for header in scan(piece):
            following = header.next_offset
            if not header.is_control:
                yield from (r for r in decode_records(piece, header) if offset <= r.offset < limit)
        if following == offset:
            return
        offset = following


class NoCommittedRecordLost:
    """A record acknowledged with acks=all is in the log for good, at its offset."""

    name = "NoCommittedRecordLost"

    def look(self, world: World, history: History) -> None:
        """What is lost shows when everything has healed."""

    def judge(self, world: World, history: History) -> None:
        leaders = {p.topic_partition: p for _, p in hosted(world) if p.is_leader}
        for of, acknowledged in history.acknowledged.items():
            if not history.protected(of):
                continue
            leader = leaders.get(of)
            if leader is None:
                history.violated(self.name, world.loop.time(), f"{of} has no leader to ask")
                continue
            found = {record.offset: record.value for record in records_of(leader.local_log)}
            for offset, value in acknowledged.items():
                if found.get(offset) != value:
                    history.violated(
                        self.name,
                        world.loop.time(),
                        f"{of} offset {offset}: acknowledged {value!r}, found "
                        f"{found.get(offset)!r}",
                    )


class LeaderCompleteness:
    """Whoever is elected has every committed record."""

    name = "LeaderCompleteness"

    def __init__(self) -> None:
        self._seen: set[tuple[TopicPartition, int]] = set()

    def look(self, world: World, history: History) -> None:
        for broker, partition in hosted(world):
            of = partition.topic_partition
            election = (of, partition.leader_epoch)
            if not partition.is_leader or election in self._seen or not history.protected(of):
                continue
            self._seen.add(election)
            acknowledged = history.acknowledged.get(of)
            if not acknowledged:
                continue
            log = partition.local_log
            if max(acknowledged) >= log.end_offset:
                history.violated(
                    self.name,
                    world.loop.time(),
                    f"{of} epoch {partition.leader_epoch}: broker {broker.id} leads with end "
                    f"{log.end_offset}, but offset {max(acknowledged)} was acknowledged",
                )

    def judge(self, world: World, history: History) -> None:
        self.look(world, history)


class LogMatching:
    """Replicas of a partition agree up to the smaller of their high watermarks."""

    name = "LogMatching"

    def look(self, world: World, history: History) -> None:
        """Reading every log is for the end."""

    def judge(self, world: World, history: History) -> None:
        by_partition: dict[TopicPartition, list[tuple[int, Log]]] = {}
        for broker, partition in hosted(world):
            entry = (broker.id, partition.local_log)
            by_partition.setdefault(partition.topic_partition, []).append(entry)
        for of, replicas in by_partition.items():
            if history.protected(of):
                self._compare(world, history, of, replicas)

    def _compare(
        self, world: World, history: History, of: TopicPartition, replicas: list[tuple[int, Log]]
    ) -> None:
        (first, log), *others = replicas
        contents = {r.offset: (r.key, r.value) for r in records_of(log, log.high_watermark)}
        for other, other_log in others:
            end = min(log.high_watermark, other_log.high_watermark)
            for record in records_of(other_log, end):
                if record.offset < log.start_offset:
                    continue
                if contents.get(record.offset) != (record.key, record.value):
                    history.violated(
                        self.name,
                        world.loop.time(),
                        f"{of} offset {record.offset}: broker {other} has {record.value!r}, "
                        f"broker {first} {contents.get(record.offset)!r}",
                    )
                    break


class OneLeaderPerEpoch:
    """No two brokers lead a partition in the same epoch."""

    name = "OneLeaderPerEpoch"

    def __init__(self) -> None:
        self._leaders: dict[tuple[TopicPartition, int], int] = {}

    def look(self, world: World, history: History) -> None:
        for broker, partition in hosted(world):
            if partition.is_leader and history.protected(partition.topic_partition):
                key = (partition.topic_partition, partition.leader_epoch)
                known = self._leaders.setdefault(key, broker.id)
                if known != broker.id:
                    history.violated(
                        self.name,
                        world.loop.time(),
                        f"{key[0]} epoch {key[1]}: both {known} and {broker.id} lead",
                    )

    def judge(self, world: World, history: History) -> None:
        self.look(world, history)


class IsrWithinAssignment:
    """The ISR is part of the assignment, and its last member stays."""

    name = "IsrWithinAssignment"

    def look(self, world: World, history: History) -> None:
        now = Snapshot(world)
        for of, state in now.states.items():
            replicas = set(now.topics[of.topic].partitions[of.partition])
            if not state.isr:
                history.violated(self.name, world.loop.time(), f"{of} has an empty ISR")
            elif not set(state.isr) <= replicas and not self._is_leaving(now, of):
                history.violated(
                    self.name,
                    world.loop.time(),
                    f"{of} has ISR {list(state.isr)} of replicas {sorted(replicas)}",
                )

    @staticmethod
    def _is_leaving(now: Snapshot, of: TopicPartition) -> bool:
        # A reassignment writes the state and the assignment one after the other.
        node = now.topics[of.topic]
        return bool(node.adding.get(of.partition) or node.removing.get(of.partition))

    def judge(self, world: World, history: History) -> None:
        self.look(world, history)


class EpochsOnlyGrow:
    """Leader epochs and controller epochs never go back, nor does the epoch of who decided."""

    name = "EpochsOnlyGrow"

    def __init__(self) -> None:
        self._states: dict[TopicPartition, tuple[int, int, int]] = {}
        self._controller = 0

    def look(self, world: World, history: History) -> None:
        now = Snapshot(world)
        at = world.loop.time()
        if now.controller_epoch < self._controller:
            history.violated(
                self.name, at, f"controller epoch {self._controller} to {now.controller_epoch}"
            )
        self._controller = now.controller_epoch
        for of in self._states.keys() - now.states.keys():
            del self._states[of]
        for of, state in now.states.items():
            mark = (state.leader_epoch, state.controller_epoch, state.partition_epoch)
            before = self._states.get(of, mark)
            # A topic made anew begins again.
            is_new = state.partition_epoch < before[2]
            if not is_new and (mark[0] < before[0] or mark[1] < before[1]):
                history.violated(self.name, at, f"{of} went from {before} to {mark}")
            if state.controller_epoch > now.controller_epoch:
                history.violated(
                    self.name,
                    at,
                    f"{of} was decided in epoch {state.controller_epoch}, which is to come",
                )
            self._states[of] = mark

    def judge(self, world: World, history: History) -> None:
        self.look(world, history)


class NoDuplicates:
    """An idempotent producer's record stands in the log once."""

    name = "NoDuplicates"

    def look(self, world: World, history: History) -> None:
        """Duplicates do not go away: the end is early enough."""

    def judge(self, world: World, history: History) -> None:
        seen: dict[bytes, tuple[TopicPartition, int]] = {}
        for _, partition in hosted(world):
            of = partition.topic_partition
            if not partition.is_leader or not history.protected(of):
                continue
            for record in records_of(partition.local_log):
                if record.value is None or record.value not in history.idempotent:
                    continue
                if record.value in seen:
                    history.violated(
                        self.name,
                        world.loop.time(),
                        f"{record.value!r} is at {seen[record.value]} and at {of} {record.offset}",
                    )
                seen[record.value] = (of, record.offset)


def all_checkers() -> Mapping[str, Checker]:
    """A fresh set for one run."""
    checkers: list[Checker] = [
        NoCommittedRecordLost(),
        LeaderCompleteness(),
        LogMatching(),
        OneLeaderPerEpoch(),
        IsrWithinAssignment(),
        EpochsOnlyGrow(),
        NoDuplicates(),
    ]
    return {checker.name: checker for checker in checkers}
