"""Pacing: the decisions. Which moves of plans start now, in which steps, and how many at a time.

A plan may ask for thousands of moves. Three limits hold at every start, over all that moves: so
many partitions in the cluster, so many on a broker, and so many bytes on a broker. A broker takes
part in a move as its source, the leader that is read from, or as its target, the broker that a
replica is added to. What waits starts in the order of the plan, but a move whose brokers are busy
lets later ones pass that need other brokers. It keeps the brokers that are too full for it closed
to those: a large move would never start otherwise.

A partition changes one replica at a time: [1,2,3] to [4,5,6] is three steps, so that a broker never
sends one partition to several others at once, and the move can stop between two steps.

The limit of each broker adapts (additive increase, multiplicative decrease): it falls by half when
partitions show strain, and grows by one while it is used up. The limits are recomputed from what
moves, so a new controller keeps them; only the adapted values begin again.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.wire.topics import TopicPartition

PACE_MIN = 1
# Shrinks of ISRs are counted over the last minute, which is so many observations.
SHRINK_OBSERVATIONS = 6
SHRINKS_MAX = 1


class MoveStep(NamedTuple):
    """A move that starts or is under way: who reads, who is read from, and how much."""

    tp: TopicPartition
    targets: tuple[int, ...]
    source: int
    bytes: int

    @property
    def brokers(self) -> frozenset[int]:
        """Where it weighs. One that copies nothing weighs nothing: it adds no replica, or its
        partition has no leader to copy from, maybe for good."""
        if not self.targets or self.source < 0:
            return frozenset()
        return frozenset((*self.targets, self.source))


@dataclass(frozen=True, slots=True)
class Limits:
    """What may move at a time. `per_broker` is the adapted limit of each broker that has one."""

    cluster: int
    per_broker_default: int
    bytes_per_broker: int
    per_broker: Mapping[int, int] = field(default_factory=dict)

    def of(self, broker: int) -> int:
        return self.per_broker.get(broker, self.per_broker_default)


def choose(
    waiting: Iterable[MoveStep], in_flight: Collection[MoveStep], limits: Limits
) -> list[TopicPartition]:
    """Who of those that wait starts now, in order.

    A move that is larger than the limit of bytes starts where nothing else moves.
    """
    room = limits.cluster - sum(1 for step in in_flight if step.brokers)
    counts: Counter[int] = Counter()
    sizes: Counter[int] = Counter()
    for step in in_flight:
        for broker in step.brokers:
            counts[broker] += 1
            sizes[broker] += step.bytes
    closed: set[int] = set()
    chosen = []
    for step in waiting:
        if room <= 0:
            break
        full = {
            broker
            for broker in step.brokers
            if counts[broker] >= limits.of(broker)
            or (counts[broker] and sizes[broker] + step.bytes > limits.bytes_per_broker)
        }
        if full or closed & step.brokers:
            closed |= full
            continue
        room -= 1
        chosen.append(step.tp)
        for broker in step.brokers:
            counts[broker] += 1
            sizes[broker] += step.bytes
    return chosen


def next_step(
    current: Sequence[int], target: Sequence[int], racks: Mapping[int, str | None]
) -> tuple[int, ...] | None:
    """The replicas to move to next on the way to the target; None if that is where they are.

    At most one is added. Until the last step as many go as come, and of all exchanges the one is
    made that leaves the partition in the most racks. The replicas that stay keep their places, and
    of those that leave, the first, which is the preferred leader, leaves last.
    """
    if tuple(current) == tuple(target):
        return None
    missing = [id for id in target if id not in current]
    if len(missing) <= 1:
        return tuple(target)
    if len(current) < len(target):
        return (*current, missing[0])
    surplus = [id for id in current if id not in target]

    def exchanged(leaves: int, comes: int) -> tuple[int, ...]:
        return tuple(comes if id == leaves else id for id in current)

    def rack_count(replicas: Iterable[int]) -> int:
        return len({racks.get(id) or id for id in replicas})

    exchanges = [exchanged(leaves, comes) for comes in missing for leaves in reversed(surplus)]
    return max(exchanges, key=rack_count)


class Health(NamedTuple):
    """What the controller sees of one partition."""

    in_sync: int
    replicas: int  # without those being added
    min_isr: int
    all_live: bool
    is_led: bool

    @property
    def is_at_min(self) -> bool:
        """Whether the next replica that falls out stops writes. A partition that has never had
        more in sync than it needs is not in danger through a move."""
        return self.in_sync <= self.min_isr and self.in_sync < self.replicas

    @property
    def is_under_min(self) -> bool:
        return self.in_sync < min(self.min_isr, self.replicas)

    @property
    def urgency(self) -> int:
        """Repairs go first: of partitions under the minimum, then of those at it."""
        return 0 if self.is_under_min else 1 if self.is_at_min else 2


@dataclass(slots=True)
class Pace:
    """How many moves each broker takes at a time, adapted to what is observed.

    `start` and `most` are settings: the limit of a broker nothing is known of, and the largest.
    """

    start: int
    most: int
    of_broker: dict[int, int] = field(default_factory=dict)
    _shrinks: list[Counter[int]] = field(default_factory=list)

    def configure(self, start: int, most: int) -> None:
        """Take over the settings. One that has changed is a new start for every broker."""
        if (start, most) != (self.start, self.most):
            self.start, self.most = start, most
            self.of_broker.clear()

    def default(self) -> int:
        return min(self.start, self.most)

    def observe(
        self, moving: Mapping[int, int], strained: Collection[int], shrinks: Counter[int]
    ) -> dict[int, tuple[int, int]]:
        """One observation: how much moves on each broker, which have a partition at its minimum,
        and how often an ISR shrank on each, apart from the partitions that move. Returns the
        limits that changed, before and after."""
        self._shrinks = [*self._shrinks[-(SHRINK_OBSERVATIONS - 1) :], shrinks]
        lately: Counter[int] = sum(self._shrinks, Counter())
        changed = {}
        for broker in sorted({*moving, *strained, *lately}):
            before = self.of_broker.get(broker, self.default())
            after = before
            if broker in strained or lately[broker] > SHRINKS_MAX:
                after = max(PACE_MIN, before // 2)
            elif moving.get(broker, 0) >= before:
                after = min(self.most, before + 1)
            if after != before:
                self.of_broker[broker] = after
                changed[broker] = (before, after)
        return changed
