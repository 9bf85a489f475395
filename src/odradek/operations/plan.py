"""Reassignment plans as values: what to propose, what it costs, and how far it has come.

Pure functions over assignments and sizes; `reassignment` asks the cluster for them and acts.
A new replica is fetched from the partition's leader, so that is the broker whose bytes are counted
as sent. docs/spec/controller-and-replication.md, section 1.4.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from odradek.client.metadata import Metadata
from odradek.placement import Broker, Ongoing, generate, plan_minimal
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

Assignment = Mapping[TopicPartition, Sequence[int]]
# The bytes of each replica, by partition and broker.
Sizes = Mapping[TopicPartition, Mapping[int, int]]


class Cost(NamedTuple):
    """The bytes each broker sends and receives, and the replicas it gains and loses."""

    sent: dict[int, int]
    received: dict[int, int]
    gained: dict[int, int]
    lost: dict[int, int]

    @property
    def total_bytes(self) -> int:
        return sum(self.received.values())

    @property
    def replicas(self) -> int:
        """How many replicas have to be copied."""
        return sum(self.gained.values())

    def rows(self) -> list[dict[str, int]]:
        brokers = sorted({*self.sent, *self.received, *self.gained, *self.lost})
        return [
            {
                "broker": broker,
                "gains": self.gained.get(broker, 0),
                "loses": self.lost.get(broker, 0),
                "receives_bytes": self.received.get(broker, 0),
                "sends_bytes": self.sent.get(broker, 0),
            }
            for broker in brokers
        ]


class ReplicationChange(NamedTuple):
    """Partitions of one topic whose number of replicas a plan changes."""

    topic: str
    before: int
    after: int
    partitions: int

    def __str__(self) -> str:
        return (
            f"the replication factor of {self.topic} changes from {self.before} to {self.after} "
            f"in {self.partitions} {'partition' if self.partitions == 1 else 'partitions'}"
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """Where partitions are, where they shall be, and what that costs."""

    current: Assignment
    proposed: Assignment
    cost: Cost

    @property
    def rollback(self) -> dict[TopicPartition, Sequence[int]]:
        """The assignment that undoes the plan."""
        return {tp: self.current[tp] for tp in self.proposed}

    def replication_changes(self) -> list[ReplicationChange]:
        """Which topics would get more or fewer replicas: easily overlooked in a file."""
        counts: dict[tuple[str, int, int], int] = {}
        for tp, replicas in self.proposed.items():
            key = (tp.topic, len(self.current[tp]), len(replicas))
            counts[key] = counts.get(key, 0) + 1
        return [
            ReplicationChange(*key, count)
            for key, count in sorted(counts.items())
            if key[1] != key[2]
        ]


class MoveState(StrEnum):
    """How one partition of a plan stands."""

    COMPLETED = "completed"
    IN_PROGRESS = "in progress"
    BETWEEN_DIRECTORIES = "between directories"
    NOT_MOVED = "not moved"
    MISSING = "does not exist"


class MoveResult(NamedTuple):
    """How one partition of a plan stands, and where its replicas are."""

    state: MoveState
    replicas: Sequence[int] = ()

    def __str__(self) -> str:
        if self.state is MoveState.NOT_MOVED:
            return f"not moved: its replicas are {','.join(map(str, self.replicas))}"
        return self.state.value


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the moves of a cluster have come."""

    partitions: int
    done_bytes: int
    total_bytes: int

    @property
    def percent(self) -> float:
        return 100.0 * self.done_bytes / self.total_bytes if self.total_bytes else 100.0


@dataclass(frozen=True, slots=True)
class Verification:
    """How each partition of a plan stands."""

    results: Mapping[TopicPartition, MoveResult]
    progress: Progress = field(default_factory=lambda: Progress(0, 0, 0))

    @property
    def is_complete(self) -> bool:
        return not self.unfinished

    @property
    def unfinished(self) -> dict[TopicPartition, MoveResult]:
        return {
            tp: result
            for tp, result in self.results.items()
            if result.state is not MoveState.COMPLETED
        }


def assignment_of(metadata: Metadata, topics: Iterable[str]) -> dict[TopicPartition, list[int]]:
    """Where the replicas of these topics are, the preferred leader first."""
    return {
        tp: metadata.topics[tp.topic].partitions[tp.partition].replicas
        for tp in metadata.partitions_of(topics)
    }


def leaders_of(metadata: Metadata, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The leader of each partition there is; -1 for one without."""
    leaders = {}
    for tp in tps:
        topic = metadata.topics.get(tp.topic)
        if topic is not None and tp.partition in topic.partitions:
            leaders[tp] = topic.partitions[tp.partition].leader
    return leaders


def propose(
    current: Assignment,
    brokers: Sequence[Broker],
    *,
    replication_factor: int | None = None,
    from_scratch: bool = False,
    rack_aware: bool = True,
) -> dict[TopicPartition, list[int]]:
    """The partitions that should move, and where to: the fewest that balance the brokers, or
    `from_scratch` what kafka-reassign-partitions proposes, which ignores where replicas are."""
    if from_scratch:
        proposed = generate(
            current, brokers, rack_aware=rack_aware, replication_factor=replication_factor
        )
        return {tp: replicas for tp, replicas in proposed.items() if replicas != current[tp]}
    if not rack_aware:
        brokers = [Broker(broker.id) for broker in brokers]
    changes = plan_minimal(current, brokers, replication_factor=replication_factor).changes
    return {tp: list(replicas) for tp, replicas in changes.items()}


def require_alive(metadata: Metadata, brokers: Iterable[int]) -> None:
    """Refuse brokers that are not alive: replicas on them would never be in sync."""
    if missing := sorted(set(brokers) - set(metadata.nodes)):
        named = ", ".join(map(str, missing))
        alive = ", ".join(map(str, sorted(metadata.nodes)))
        verb = "broker {} is" if len(missing) == 1 else "brokers {} are"
        raise KafkaError(
            ErrorCode.BROKER_NOT_AVAILABLE, f"{verb.format(named)} not alive; {alive} are"
        )


def require_valid(metadata: Metadata, current: Assignment, proposed: Assignment) -> None:
    """Refuse a plan that names a partition or broker there is not."""
    for tp, replicas in proposed.items():
        if tp not in current:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {tp} does not exist")
        if unknown := sorted(set(replicas) - set(metadata.nodes)):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{tp} would go to broker {unknown[0]}, which is not alive",
            )


def cost_of(
    current: Assignment,
    proposed: Assignment,
    sizes: Sizes,
    leaders: Mapping[TopicPartition, int],
) -> Cost:
    """What it takes to get from `current` to `proposed`."""
    cost = Cost({}, {}, {}, {})
    for tp, replicas in proposed.items():
        leader = leaders.get(tp, -1)
        size_bytes = _whole_bytes(sizes.get(tp, {}), leader)
        for broker in set(replicas) - set(current[tp]):
            _add(cost.gained, broker, 1)
            _add(cost.received, broker, size_bytes)
            _add(cost.sent, leader, size_bytes)
        for broker in set(current[tp]) - set(replicas):
            _add(cost.lost, broker, 1)
    return cost


def progress_of(
    ongoing: Mapping[TopicPartition, Ongoing],
    sizes: Sizes,
    leaders: Mapping[TopicPartition, int],
) -> Progress:
    """How many of the bytes of replicas being added have arrived."""
    done = total = 0
    for tp, state in ongoing.items():
        replicas = sizes.get(tp, {})
        whole = _whole_bytes(replicas, leaders.get(tp, -1))
        for broker in state.adding:
            total += whole
            done += min(replicas.get(broker, 0), whole)
    return Progress(len(ongoing), done, total)


def compare(
    wanted: Assignment,
    current: Assignment,
    ongoing: Collection[TopicPartition],
    between_directories: Collection[TopicPartition] = (),
) -> dict[TopicPartition, MoveResult]:
    """How each partition of a plan stands. One that is neither moving nor where it should be was
    cancelled, or another plan replaced this one."""
    results = {}
    for tp in sorted(wanted):
        if tp in ongoing:
            results[tp] = MoveResult(MoveState.IN_PROGRESS, current.get(tp, ()))
        elif tp not in current:
            results[tp] = MoveResult(MoveState.MISSING)
        elif list(current[tp]) != list(wanted[tp]):
            results[tp] = MoveResult(MoveState.NOT_MOVED, current[tp])
        elif tp in between_directories:
            results[tp] = MoveResult(MoveState.BETWEEN_DIRECTORIES, current[tp])
        else:
            results[tp] = MoveResult(MoveState.COMPLETED, current[tp])
    return results


def _whole_bytes(replicas: Mapping[int, int], leader: int) -> int:
    """The size of a partition: the leader's, or the largest known if the leader does not say."""
    return replicas.get(leader, max(replicas.values(), default=0))


def _add(totals: dict[int, int], broker: int, amount: int) -> None:
    totals[broker] = totals.get(broker, 0) + amount
