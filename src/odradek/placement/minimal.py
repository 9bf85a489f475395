"""A reassignment that reaches balance and rack safety while moving as few replicas as possible.

Kafka's own generate places every topic from scratch and so moves nearly everything. Here every
replica that may stay stays. Four deterministic steps, each leaving alone what is already right:

1. Drop what cannot stay: replicas on brokers that are not among the targets, and replicas that
   share a rack while a rack has none. Fill each gap with the lightest broker allowed.
2. Level the number of replicas per broker, first with what has to move anyway, then with more.
3. Level the number of partitions per preferred leader, by order alone: no data moves.
4. For each leader, level who comes second, and so who takes over what when it fails. Order alone.

Rack safe means: replicas in as many racks as there are, or as many as there are replicas. A move
that keeps a partition rack safe is the only kind that steps 2 to 4 make. Brokers without racks are
each a rack of their own.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from heapq import heapify, heappop
from itertools import zip_longest
from math import ceil

from odradek.placement.assignment import Broker, brokers_to_use
from odradek.placement.balancing import balance
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition


class Reason(Enum):
    """Why a replica moves."""

    BROKER_LEAVES = "its broker is not among the targets"
    RACK = "it shares a rack with another replica while a rack has none"
    BALANCE = "its broker has more than its share"
    REPLICATION_FACTOR = "the replication factor changes"


@dataclass(frozen=True, slots=True)
class ReplicaMove:
    """One replica that moves: no source when it is one more, no destination when one fewer."""

    partition: TopicPartition
    source: int | None
    destination: int | None
    reason: Reason


@dataclass(frozen=True, slots=True)
class MinimalPlan:
    """Where every replica shall be, and what that costs."""

    proposed: dict[TopicPartition, list[int]]
    changes: dict[TopicPartition, list[int]]
    moves: tuple[ReplicaMove, ...]
    leaders_changed: int

    @property
    def replicas_moved(self) -> int:
        """How many copies have to be made: the cost of the plan."""
        return sum(move.destination is not None for move in self.moves)

    def reasons(self) -> Counter[Reason]:
        """How many moves each reason explains."""
        return Counter(move.reason for move in self.moves)


def plan_minimal(
    current: Mapping[TopicPartition, Sequence[int]],
    brokers: Iterable[Broker],
    *,
    replication_factor: int | None = None,
) -> MinimalPlan:
    """Balance `current` over the target `brokers`, and only them, with the fewest moves.

    `replication_factor` changes that of every partition; by default each keeps its own.
    """
    layout = _Layout(current, brokers_to_use(brokers), replication_factor)
    layout.let_go()
    layout.fill()
    balance(layout.loads, _Replicas(layout, layout.free_to_move))
    balance(layout.loads, _Replicas(layout, layout.best_to_move))
    proposed = layout.replicas
    _balance_leaders(proposed, layout.rack_of)
    _balance_successors(proposed, layout.original)
    return MinimalPlan(
        proposed=proposed,
        changes={
            partition: replicas
            for partition, replicas in proposed.items()
            if replicas != list(current[partition])
        },
        moves=tuple(layout.moves()),
        leaders_changed=sum(
            replicas[0] != current[partition][0] for partition, replicas in proposed.items()
        ),
    )


class _Layout:
    """Which replica is on which broker, and which of them are where they were."""

    def __init__(
        self,
        current: Mapping[TopicPartition, Sequence[int]],
        brokers: Sequence[Broker],
        replication_factor: int | None,
    ) -> None:
        self.rack_of = {
            broker.id: broker.id if broker.rack is None else broker.rack for broker in brokers
        }
        self.rack_count = len(set(self.rack_of.values()))
        self.original = {partition: list(current[partition]) for partition in sorted(current)}
        self.factor = {
            partition: len(replicas) if replication_factor is None else replication_factor
            for partition, replicas in self.original.items()
        }
        for partition, factor in self.factor.items():
            if not 0 < factor <= len(brokers):
                raise KafkaError(
                    ErrorCode.INVALID_REPLICATION_FACTOR,
                    f"{partition} cannot have {factor} replicas on {len(brokers)} brokers.",
                )
        self.replicas: dict[TopicPartition, list[int]] = {}
        self.loads = dict.fromkeys(self.rack_of, 0)
        self.on: dict[int, dict[str, dict[TopicPartition, None]]] = {b: {} for b in self.rack_of}
        # What came to a broker, and what left it: both have moved, so to move either on is free.
        self.arrived: dict[int, dict[TopicPartition, None]] = {b: {} for b in self.rack_of}
        self.departed: dict[int, dict[TopicPartition, None]] = {b: {} for b in self.rack_of}
        self.let_go_for_rack: Counter[TopicPartition] = Counter()

    # Step 1: drop what cannot stay, and fill the gaps.

    def let_go(self) -> None:
        """Keep only replicas that may stay together on the target brokers."""
        for partition, replicas in self.original.items():
            kept = [broker for broker in replicas if broker in self.rack_of]
            self.replicas[partition] = kept
            for broker in kept:
                self.loads[broker] += 1
        for partition, replicas in self.replicas.items():
            while len(replicas) > self.factor[partition]:
                self._let_one_go(partition)
            while self._racks_to_spare(partition) < 0:
                self._let_one_go(partition)
                self.let_go_for_rack[partition] += 1
            for broker in replicas:
                self.on[broker].setdefault(partition.topic, {})[partition] = None

    def _let_one_go(self, partition: TopicPartition) -> None:
        """Of those that share a rack, else of all, the heaviest; the last of several, so that
        leaders stay."""
        replicas = self.replicas[partition]
        crowd = Counter(self.rack_of[broker] for broker in replicas)
        sharing = [broker for broker in replicas if crowd[self.rack_of[broker]] > 1]
        broker = max(reversed(sharing or replicas), key=self.loads.__getitem__)
        replicas.remove(broker)
        self.loads[broker] -= 1
        self.departed[broker][partition] = None

    def _racks_to_spare(self, partition: TopicPartition) -> int:
        """How many gaps may be filled from any rack; negative if even new racks will not do."""
        replicas, factor = self.replicas[partition], self.factor[partition]
        racks = len({self.rack_of[broker] for broker in replicas})
        return racks + factor - len(replicas) - min(factor, self.rack_count)

    def fill(self) -> None:
        """Fill every gap with the lightest broker allowed, in the place of the replica lost."""
        for partition, replicas in self.replicas.items():
            places = [
                place
                for place, broker in enumerate(self.original[partition])
                if broker not in replicas
            ]
            for gap in range(self.factor[partition] - len(replicas)):
                broker = self._lightest_allowed(partition)
                replicas.insert(places[gap] if gap < len(places) else len(replicas), broker)
                self.loads[broker] += 1
                self._arrive(partition, broker)

    def _lightest_allowed(self, partition: TopicPartition) -> int:
        replicas = self.replicas[partition]
        any_rack = self._racks_to_spare(partition) > 0
        used = {self.rack_of[broker] for broker in replicas}
        allowed = (
            broker
            for broker, rack in self.rack_of.items()
            if broker not in replicas and (any_rack or rack not in used)
        )
        return min(allowed, key=lambda broker: (self.loads[broker], broker))

    # Step 2: move replicas to level the brokers.

    def free_to_move(self, giver: int, taker: int) -> TopicPartition | None:
        """A replica that moves at no further cost: one that goes home, or that moves anyway."""
        arrived, departed = self.arrived[giver], self.departed[taker]
        for partition in departed:
            if partition in arrived and self._allowed(partition, giver, taker):
                return partition
        for partition in arrived:
            if self._allowed(partition, giver, taker):
                return partition
        for partition in departed:
            if giver in self.replicas[partition] and self._allowed(partition, giver, taker):
                return partition
        return None

    def best_to_move(self, giver: int, taker: int) -> TopicPartition | None:
        """A free one, else one of the topic that `giver` has most more of than `taker`; a follower
        if it can be."""
        if (free := self.free_to_move(giver, taker)) is not None:
            return free
        here, there = self.on[giver], self.on[taker]
        # Nearly always the first topic will do: a heap spares sorting the rest.
        topics = [(len(there.get(topic, ())) - len(here[topic]), topic) for topic in here]
        heapify(topics)
        while topics:
            _, topic = heappop(topics)
            led = None
            for partition in here[topic]:
                if self._allowed(partition, giver, taker):
                    if self.replicas[partition][0] != giver:
                        return partition
                    led = led or partition
            if led:
                return led
        return None

    def move(self, partition: TopicPartition, giver: int, taker: int) -> None:
        replicas = self.replicas[partition]
        replicas[replicas.index(giver)] = taker
        self._depart(partition, giver)
        self._arrive(partition, taker)

    def _allowed(self, partition: TopicPartition, giver: int, taker: int) -> bool:
        """Whether the partition stays on as many brokers and racks as it is on now."""
        replicas = self.replicas[partition]
        if taker in replicas:
            return False
        rack_of = self.rack_of
        left, entered = rack_of[giver], rack_of[taker]
        if left == entered:
            return True
        racks = [rack_of[broker] for broker in replicas]
        return entered not in racks or racks.count(left) > 1

    def _arrive(self, partition: TopicPartition, broker: int) -> None:
        self.on[broker].setdefault(partition.topic, {})[partition] = None
        if broker in self.original[partition]:
            del self.departed[broker][partition]
        else:
            self.arrived[broker][partition] = None

    def _depart(self, partition: TopicPartition, broker: int) -> None:
        of_topic = self.on[broker][partition.topic]
        del of_topic[partition]
        if not of_topic:
            del self.on[broker][partition.topic]
        if broker in self.original[partition]:
            self.departed[broker][partition] = None
        else:
            del self.arrived[broker][partition]

    # The report.

    def moves(self) -> Iterator[ReplicaMove]:
        """Each replica that moves, and why."""
        for partition, original in self.original.items():
            replicas = self.replicas[partition]
            lost = [broker for broker in original if broker not in replicas]
            gained = [broker for broker in replicas if broker not in original]
            # Brokers that must leave come first, so that a change of factor takes what is left.
            lost.sort(key=lambda broker: broker in self.rack_of)
            for_rack = self.let_go_for_rack[partition]
            for source, destination in zip_longest(lost, gained):
                if source is None or destination is None:
                    reason = Reason.REPLICATION_FACTOR
                elif source not in self.rack_of:
                    reason = Reason.BROKER_LEAVES
                elif for_rack > 0:
                    reason, for_rack = Reason.RACK, for_rack - 1
                else:
                    reason = Reason.BALANCE
                yield ReplicaMove(partition, source, destination, reason)


class _Replicas:
    """The replicas of a layout as things to level, each found by a rule of the layout."""

    def __init__(self, layout: _Layout, find: Callable[[int, int], TopicPartition | None]) -> None:
        self.layout = layout
        self.find = find
        # What was found since the last shift: a shift asks again for what was found for it.
        self.found: dict[tuple[int, int], TopicPartition | None] = {}

    def can_shift(self, giver: int, taker: int) -> bool:
        partition = self.found[giver, taker] = self.find(giver, taker)
        return partition is not None

    def shift(self, giver: int, taker: int) -> None:
        partition = self.found.get((giver, taker)) or self.find(giver, taker)
        assert partition is not None, "a shortest chain does not block itself"
        self.layout.move(partition, giver, taker)
        self.found.clear()


class _Places:
    """Partitions whose replica in one place of their order may change places with a later one."""

    def __init__(self, place: int, replicas: Mapping[TopicPartition, list[int]]) -> None:
        self.place = place
        self.replicas = replicas
        # For each holder of the place, and each who could have it instead: of which partitions.
        self.shared: dict[tuple[int, int], dict[TopicPartition, None]] = {}
        for partition in replicas:
            self._index(partition)

    def can_shift(self, giver: int, taker: int) -> bool:
        return (giver, taker) in self.shared

    def shift(self, giver: int, taker: int) -> None:
        partition = next(iter(self.shared[giver, taker]))
        replicas, place = self.replicas[partition], self.place
        for other in replicas[place + 1 :]:
            del self.shared[giver, other][partition]
            if not self.shared[giver, other]:
                del self.shared[giver, other]
        position = replicas.index(taker)
        replicas[place], replicas[position] = taker, giver
        self._index(partition)

    def _index(self, partition: TopicPartition) -> None:
        holder, *others = self.replicas[partition][self.place :]
        for other in others:
            self.shared.setdefault((holder, other), {})[partition] = None


def _balance_leaders(replicas: Mapping[TopicPartition, list[int]], brokers: Iterable[int]) -> None:
    """Step 3: level the number of partitions that each broker is the preferred leader of."""
    loads = dict.fromkeys(brokers, 0)
    for leader, *_ in replicas.values():
        loads[leader] += 1
    balance(loads, _Places(0, replicas))


def _balance_successors(
    replicas: Mapping[TopicPartition, list[int]], original: Mapping[TopicPartition, list[int]]
) -> None:
    """Step 4: level, for each leader, the number of partitions that each other takes over.

    A leader for whom nothing else changes is left alone if no broker would take over more than
    twice an even share: an order that is good enough is not worth a change.
    """
    led: dict[int, dict[TopicPartition, list[int]]] = {}
    for partition, brokers in replicas.items():
        if len(brokers) > 2:
            led.setdefault(brokers[0], {})[partition] = brokers
    for of_leader in led.values():
        loads = {broker: 0 for brokers in of_leader.values() for broker in brokers[1:]}
        for brokers in of_leader.values():
            loads[brokers[1]] += 1
        untouched = all(brokers == original[partition] for partition, brokers in of_leader.items())
        if not untouched or max(loads.values()) > 2 * ceil(len(of_leader) / len(loads)):
            balance(loads, _Places(1, of_leader))
