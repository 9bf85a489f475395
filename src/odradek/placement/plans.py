"""Plans as kafka-reassign-partitions makes them: what to propose, what moves, what to throttle.

A move's sources are all the replicas a partition has today, its destinations those it shall gain.
The throttle strings name, per topic, the sources on the leaders' side and the destinations on the
followers' side, `partition:broker`, sorted as strings. docs/spec/controller-and-replication.md,
section 1.4.
"""

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import NamedTuple

from odradek.placement.assignment import Broker, RackAwareMode, assign_replicas, brokers_to_use
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition, group_by_topic


class Move(NamedTuple):
    """One partition on the move: who has it, and who shall get it."""

    sources: frozenset[int]
    destinations: frozenset[int]


class Ongoing(NamedTuple):
    """A reassignment under way: all replicas, and those of them being added and removed."""

    replicas: Sequence[int]
    adding: Sequence[int] = ()
    removing: Sequence[int] = ()


class Throttles(NamedTuple):
    """What throttling a plan means: a string per topic and side, and the brokers that need a rate.

    The strings are the values of `leader.replication.throttled.replicas` and
    `follower.replication.throttled.replicas`.
    """

    leaders: dict[str, str]
    followers: dict[str, str]
    brokers: frozenset[int]


def generate(
    current: Mapping[TopicPartition, Sequence[int]],
    brokers: Iterable[Broker],
    *,
    rack_aware: bool = True,
    replication_factor: int | None = None,
    rng: Random | None = None,
) -> dict[TopicPartition, list[int]]:
    """Place each topic again on the brokers, as if just created. It ignores where replicas are."""
    mode = RackAwareMode.ENFORCED if rack_aware else RackAwareMode.DISABLED
    brokers = brokers_to_use(brokers, mode)
    rng = rng or Random()
    by_topic = group_by_topic(
        (partition, replication_factor or len(current[partition])) for partition in sorted(current)
    )
    return {
        TopicPartition(topic, index): replicas
        for topic, factors in by_topic.items()
        for index, replicas in assign_replicas(brokers, len(factors), factors[0], rng=rng).items()
    }


def move_map(
    current: Mapping[TopicPartition, Sequence[int]],
    proposed: Mapping[TopicPartition, Sequence[int]],
    ongoing: Mapping[TopicPartition, Ongoing] | None = None,
) -> dict[TopicPartition, Move]:
    """All that will be moving: the proposed partitions, and those already under way.

    A proposed partition that is already being reassigned keeps that reassignment's sources: what
    is still being added has nothing to give.
    """
    moves = {
        partition: Move(
            frozenset(state.replicas) - frozenset(state.adding), frozenset(state.adding)
        )
        for partition, state in (ongoing or {}).items()
    }
    for partition, replicas in proposed.items():
        if partition in moves:
            sources = moves[partition].sources
        elif current.get(partition):
            sources = frozenset(current[partition])
        else:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} has no replica to move from."
            )
        moves[partition] = Move(sources, frozenset(replicas) - sources)
    return dict(sorted(moves.items()))


def throttles(moves: Mapping[TopicPartition, Move]) -> Throttles:
    """The throttle settings of a move map."""
    leaders: dict[str, set[str]] = {}
    followers: dict[str, set[str]] = {}
    involved: set[int] = set()
    for (topic, partition), move in moves.items():
        leaders.setdefault(topic, set()).update(f"{partition}:{broker}" for broker in move.sources)
        followers.setdefault(topic, set()).update(
            f"{partition}:{broker}" for broker in move.destinations - move.sources
        )
        involved |= move.sources | move.destinations
    return Throttles(_joined(leaders), _joined(followers), frozenset(involved))


def _joined(components: Mapping[str, set[str]]) -> dict[str, str]:
    return {topic: ",".join(sorted(parts)) for topic, parts in components.items()}
