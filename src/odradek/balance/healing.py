"""Healing: the decisions. What is wrong, how long it must be so, and what forbids to act.

Rules
1. Each trouble has a clock that starts when it is first seen and is forgotten when it is over: a
   broker that comes back in time moves nothing, and in a rolling restart each has its own clock.
2. One repair at a time, of the trouble that is due longest, and only if no interlock holds.
3. An interlock says in words why nothing is done. Much that fails at once is not for a program: the
   network may be the reason, and a person has to look.
4. What is gone, failed or full is repaired; what is only slow or uneven is said, with the command
   for it, unless the settings ask for more. Then it waits for all repairs, and gives way to them.

Everything here is a function of what was observed; `watcher` observes and acts.
"""

import math
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from odradek.balance.plan import COPY, Move, Plan, PlanCost
from odradek.operations.plan import Assignment, Sizes
from odradek.placement import Broker, plan_minimal
from odradek.wire.topics import TopicPartition

HOUR_S = 3600.0
GONE_SHARE_MAX = 0.1
REPAIRS_PER_HOUR = 3
# A disk that is relieved, and one that receives, ends below this; a repair may fill one up to that.
DISK_WALL = 0.8
DISK_REPAIR_MAX = 0.95
EMPTY_SHARE = 0.2
# More than this of the live brokers slow at once is load, which no drain helps.
SLOW_SHARE_MAX = 0.1
# The cluster is unbalanced after so many looks in a row that say so.
LOOKS = 3
LOOK_S = 600.0
# A plan by load that found nothing to move is not made again before this.
RETRY_S = 1800.0
# The subject of what is wrong with no broker or topic alone.
CLUSTER = "cluster"


class Trigger(StrEnum):
    """What can be wrong with a broker, or with a topic."""

    BROKER_GONE = "broker gone"
    DIRECTORY_FAILED = "directory failed"
    DISK_FULL = "disk over 90 %"
    BROKER_SLOW = "slow"
    BROKER_EMPTY = "nearly empty"
    REPLICATION_LOW = "too few replicas"
    UNBALANCED = "unbalanced"


# These are said and not acted on unless the settings ask for it: what to do about them is a plan by
# load, and a person's choice.
ADVICE = {
    Trigger.BROKER_SLOW: "see `odradek load`; `odradek brokers drain {}` plans to empty it",
    Trigger.BROKER_EMPTY: "`odradek brokers add {}` plans to fill it",
    Trigger.UNBALANCED: "`odradek rebalance plan` plans to level it",
}
UNEVEN = frozenset({Trigger.BROKER_EMPTY, Trigger.UNBALANCED})


@dataclass(frozen=True, slots=True)
class Waits:
    """How long a trouble must last, in seconds, and how long a new controller is left alone."""

    broker_s: float = 900.0
    directory_s: float = 120.0
    disk_s: float = 300.0
    empty_s: float = 600.0
    replication_s: float = 600.0
    controller_s: float = 120.0

    def of(self, trigger: Trigger) -> float:
        return {
            Trigger.BROKER_GONE: self.broker_s,
            Trigger.DIRECTORY_FAILED: self.directory_s,
            Trigger.DISK_FULL: self.disk_s,
            Trigger.BROKER_SLOW: 0.0,  # its score has waited
            Trigger.BROKER_EMPTY: self.empty_s,
            Trigger.REPLICATION_LOW: self.replication_s,
            Trigger.UNBALANCED: 0.0,  # several looks have waited
        }[trigger]


@dataclass(frozen=True, slots=True)
class Seen:
    """The cluster at one moment. `holding` are the brokers that replicas are assigned to."""

    at_s: float
    live: frozenset[int]
    holding: frozenset[int]
    controller: int
    racks: Mapping[int, str | None] = field(default_factory=dict)
    failed: frozenset[int] = frozenset()
    full: frozenset[int] = frozenset()
    slow: frozenset[int] = frozenset()
    empty: frozenset[int] = frozenset()
    # Topics with fewer replicas than the settings ask for.
    low: frozenset[str] = frozenset()
    is_unbalanced: bool = False
    running: Sequence[str] = ()
    # Those of them that a watcher started for balance: repairs do not wait for them.
    yielding: frozenset[str] = frozenset()
    paused: str | None = None


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something wrong with a broker, by id, with a topic, by name, or with the cluster, and the
    seconds until something is done about it."""

    trigger: Trigger
    subject: int | str
    left_s: float

    def __str__(self) -> str:
        return described(self.trigger, self.subject)


def described(trigger: Trigger, subject: int | str) -> str:
    if trigger is Trigger.UNBALANCED:
        return f"{subject}: {trigger.value}"
    kind = "broker" if isinstance(subject, int) else "topic"
    return f"{kind} {subject}: {trigger.value}"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong, what to repair now, and if nothing although something is due, why. `stop` is a
    plan in the way that has to end first."""

    troubles: tuple[Trouble, ...] = ()
    repair: Trouble | None = None
    held_by: str = ""
    news: tuple[str, ...] = ()
    stop: str | None = None


@dataclass(slots=True)
class Looks:
    """Whether the cluster is unbalanced: one look at the load says little, several in a row do."""

    interval_s: float = LOOK_S
    _at_s: float = -math.inf
    _in_a_row: int = 0

    def is_due(self, at_s: float) -> bool:
        return at_s >= self._at_s + self.interval_s

    def add(self, at_s: float, is_uneven: bool) -> None:
        self._at_s = at_s
        self._in_a_row = self._in_a_row + 1 if is_uneven else 0

    def is_unbalanced(self) -> bool:
        return self._in_a_row >= LOOKS

    def clear(self) -> None:
        """What was seen is being changed."""
        self._in_a_row = 0


class Healer:
    """Keeps the clocks. One observation in, one diagnosis out."""

    def __init__(
        self,
        waits: Waits,
        repairs_per_hour: int = REPAIRS_PER_HOUR,
        acts_on: frozenset[Trigger] = frozenset(),
    ) -> None:
        self._waits = waits
        self._advice = {key: text for key, text in ADVICE.items() if key not in acts_on}
        self._in_vain: dict[tuple[Trigger, int | str], float] = {}
        self._since: dict[tuple[Trigger, int | str], float] = {}
        self._advised: set[tuple[Trigger, int | str]] = set()
        self._racks: dict[int, str | None] = {}
        self._controller = -1
        self._controller_since = 0.0
        self._repairs: deque[float] = deque(maxlen=repairs_per_hour)

    def observe(self, seen: Seen) -> Diagnosis:
        self._racks.update(seen.racks)
        if seen.controller != self._controller:
            self._controller, self._controller_since = seen.controller, seen.at_s
        found: list[tuple[Trigger, int | str]] = [
            *((Trigger.BROKER_GONE, broker) for broker in sorted(seen.holding - seen.live)),
            *((Trigger.DIRECTORY_FAILED, broker) for broker in sorted(seen.failed & seen.live)),
            *((Trigger.DISK_FULL, broker) for broker in sorted(seen.full & seen.live)),
            *(
                (Trigger.BROKER_SLOW, broker)
                for broker in sorted(seen.slow & seen.live & seen.holding)
            ),
            *((Trigger.BROKER_EMPTY, broker) for broker in sorted(seen.empty & seen.live)),
            *((Trigger.REPLICATION_LOW, topic) for topic in sorted(seen.low)),
            *([(Trigger.UNBALANCED, CLUSTER)] if seen.is_unbalanced else []),
        ]
        news = [described(*key) for key in found if key not in self._since]
        news += [f"{described(*key)}: over" for key in self._since if key not in found]
        self._since = {key: self._since.get(key, seen.at_s) for key in found}
        troubles = tuple(
            Trouble(what, of, max(0.0, since + self._waits.of(what) - seen.at_s))
            for (what, of), since in self._since.items()
        )
        news += self._said(troubles)
        due = self._due(seen, troubles)
        if due is None:
            return Diagnosis(troubles, news=tuple(news))
        stop = None
        if due.trigger not in ADVICE and seen.running and set(seen.running) <= seen.yielding:
            stop, seen = seen.running[0], replace(seen, running=())
        held_by = self._interlock(seen, due)
        if held_by:
            return Diagnosis(troubles, None, held_by, tuple(news))
        return Diagnosis(troubles, None if stop else due, "", tuple(news), stop)

    def _due(self, seen: Seen, troubles: Sequence[Trouble]) -> Trouble | None:
        """What to act on now: repairs first, then a slow broker, then what is uneven. The latter
        waits until nothing else is wrong."""
        kinds = {of.trigger for of in troubles}
        calm_for = {
            Trigger.BROKER_SLOW: kinds <= {*UNEVEN, Trigger.BROKER_SLOW},
            **dict.fromkeys(UNEVEN, kinds <= UNEVEN),
        }
        due = [
            of
            for of in troubles
            if not of.left_s
            and of.trigger not in self._advice
            and calm_for.get(of.trigger, True)
            and seen.at_s >= self._in_vain.get((of.trigger, of.subject), -math.inf)
        ]
        return min(
            due,
            key=lambda of: (of.trigger in ADVICE, self._since[of.trigger, of.subject]),
            default=None,
        )

    def _said(self, troubles: Sequence[Trouble]) -> list[str]:
        """What to do about those that are not repaired, once for each."""
        due = [of for of in troubles if not of.left_s and of.trigger in self._advice]
        new = [of for of in due if (of.trigger, of.subject) not in self._advised]
        self._advised = {(of.trigger, of.subject) for of in due}
        return [f"{of}: {self._advice[of.trigger].format(of.subject)}" for of in new]

    def found_nothing(self, trouble: Trouble, at_s: float) -> None:
        """A plan by load for this trouble moves nothing: the next one not before a while."""
        self._in_vain[trouble.trigger, trouble.subject] = at_s + RETRY_S

    def repaired(self, at_s: float) -> None:
        """A repair was started."""
        self._repairs.append(at_s)

    def _interlock(self, seen: Seen, due: Trouble) -> str:
        gone = seen.holding - seen.live
        known = seen.live | seen.holding
        if seen.paused is not None:
            return f"paused: {seen.paused}"
        if seen.running:
            return f"plan {seen.running[0]} is being carried out"
        if len(gone) > max(1, int(GONE_SHARE_MAX * len(known))):
            return f"{len(gone)} of {len(known)} brokers are gone: is it the network?"
        if (rack := self._rack_gone(gone, known)) is not None:
            return f"all brokers of rack {rack} are gone: is it the network?"
        if seen.at_s - self._controller_since < self._waits.controller_s:
            return "the controller has changed just now"
        slow = seen.slow & seen.live
        if due.trigger is Trigger.BROKER_SLOW and len(slow) > max(
            1, int(SLOW_SHARE_MAX * len(seen.live))
        ):
            return f"{len(slow)} of {len(seen.live)} brokers are slow: is it the load?"
        most = self._repairs.maxlen
        if len(self._repairs) == most and seen.at_s - self._repairs[0] < HOUR_S:
            return f"{most} repairs within an hour"
        return ""

    def _rack_gone(self, gone: frozenset[int], known: frozenset[int]) -> str | None:
        members: dict[str, set[int]] = {}
        for broker in known:
            rack = self._racks.get(broker)
            if rack is not None:
                members.setdefault(rack, set()).add(broker)
        whole = sorted(rack for rack, of in members.items() if of <= gone)
        # A rack of one broker is gone with it: that is a broker, where racks stand for machines.
        return next((rack for rack in whole if len(members[rack]) > 1), None)


class Space(NamedTuple):
    """The bytes that a broker's disks hold, and those that are used."""

    capacity: int
    used: int


def would_fill(moves: Sequence[Move], space: Mapping[int, Space]) -> str:
    """Why a repair must not be done: a disk would be filled above what is allowed while replicas
    arrive; empty if none would."""
    arriving: Counter[int] = Counter()
    for move in moves:
        new = set(move.after) - set(move.before)
        for broker in new:
            arriving[broker] += move.bytes // len(new)
    for broker, size in sorted(arriving.items()):
        of = space.get(broker)
        if of is not None and of.used + size > DISK_REPAIR_MAX * of.capacity:
            share = (of.used + size) / of.capacity
            return f"the repair would fill broker {broker} to {share:.0%}"
    return ""


def nearly_empty(current: Assignment, live: Collection[int]) -> frozenset[int]:
    """Live brokers with less than a fifth of their share of all replicas."""
    counts = Counter(broker for replicas in current.values() for broker in replicas)
    share = sum(counts.values()) / max(1, len(live))
    # A cluster with a handful of partitions has brokers without any, and that is no news.
    if share * EMPTY_SHARE < 1:
        return frozenset()
    return frozenset(id for id in live if counts[id] < EMPTY_SHARE * share)


@dataclass(frozen=True, slots=True)
class Repair:
    """The plan that repairs a broker's loss, and the partitions that it cannot help."""

    plan: Plan
    hopeless: tuple[str, ...]


def plan_relief(
    trouble: Trouble,
    current: Assignment,
    on_disk: Mapping[TopicPartition, int],
    need: int,
    targets: Mapping[Broker, Space],
    *,
    id: str,
    now_ms: int,
    rate: int,
) -> Repair:
    """Take `need` bytes off a full disk that holds these replicas: the largest that are not more
    than is needed, then the smallest that is enough. Each goes to the broker that is least full
    with it, stays below its wall, and leaves the partition in as many racks."""
    racks = {broker.id: broker.rack or broker.id for broker in targets}
    space = {broker.id: of for broker, of in targets.items()}
    arriving: Counter[int] = Counter()
    moves: list[Move] = []

    def fullness(broker: int, size: int) -> float:
        return (space[broker].used + arriving[broker] + size) / max(1, space[broker].capacity)

    def try_move(tp: TopicPartition) -> int:
        size, before = on_disk[tp], tuple(current[tp])
        others = {racks.get(broker, broker) for broker in before if broker != trouble.subject}
        count = len({racks.get(broker, broker) for broker in before})
        fitting = [
            broker
            for broker in space
            if broker not in before
            and len(others | {racks[broker]}) >= count
            and fullness(broker, size) <= DISK_WALL
        ]
        if not fitting:
            return 0
        target = min(fitting, key=lambda broker: (fullness(broker, size), broker))
        arriving[target] += size
        after = tuple(target if broker == trouble.subject else broker for broker in before)
        what = trouble.trigger.value
        moves.append(Move(*tp, before, after, COPY, what, str(trouble), size, size / rate))
        return size

    by_size = sorted((tp for tp in on_disk if tp in current), key=lambda tp: (-on_disk[tp], tp))
    larger = []
    for tp in by_size:
        if on_disk[tp] > need:
            larger.append(tp)
        else:
            need -= try_move(tp)
    for tp in reversed(larger):
        if need > 0:
            need -= try_move(tp)
    return Repair(plan_of(moves, id, now_ms, rate), ())


def plan_repair(
    trouble: Trouble,
    current: Assignment,
    lost: Mapping[TopicPartition, int],
    targets: Sequence[Broker],
    sizes: Sizes,
    *,
    id: str,
    now_ms: int,
    rate: int,
    by_load: Mapping[TopicPartition, Sequence[int]] | None = None,
) -> Repair:
    """Put the lost replicas on other brokers: where the load says, if that is known, else by count.
    `lost` names each partition that has lost its replica, with its leader; without a leader there
    is nothing to copy from."""
    hopeless = {tp for tp, leader in lost.items() if leader < 0 or len(current[tp]) > len(targets)}
    fitting = {tp: of for tp, of in current.items() if len(of) <= len(targets)}
    if by_load is not None:
        changes = by_load
    else:
        changes = plan_minimal(fitting, targets).changes if fitting else {}
    moves = []
    for tp in sorted(lost.keys() - hopeless):
        before, after = tuple(current[tp]), tuple(changes.get(tp, current[tp]))
        new = set(after) - set(before)
        if not new:
            continue
        each = max(sizes.get(tp, {}).values(), default=0)
        size = each * len(new)
        moves.append(
            Move(*tp, before, after, COPY, trouble.trigger.value, str(trouble), size, size / rate)
        )
    return Repair(plan_of(moves, id, now_ms, rate), tuple(sorted(map(str, hopeless))))


def plan_more_replicas(
    trouble: Trouble,
    current: Assignment,
    wanted: Mapping[str, int],
    brokers: Sequence[Broker],
    sizes: Sizes,
    *,
    id: str,
    now_ms: int,
    rate: int,
) -> Repair:
    """Give the partitions of some topics as many replicas as they should have, or as there are
    brokers. None leaves: those that are there keep their places, so their leader stays. Each comes
    to a rack with the fewest of its partition, and there to the broker with the fewest of all."""
    rack_of = {broker.id: broker.rack or broker.id for broker in brokers}
    held = Counter(id for replicas in current.values() for id in replicas)
    moves = []
    for tp in sorted(tp for tp in current if tp.topic in wanted):
        after = list(current[tp])
        while len(after) < min(wanted[tp.topic], len(brokers)):
            racks = Counter(rack_of.get(id) for id in after)
            new = min(
                (id for id in rack_of if id not in after),
                key=lambda id: (racks[rack_of[id]], held[id], id),
                default=None,
            )
            if new is None:
                break
            after.append(new)
            held[new] += 1
        added = len(after) - len(current[tp])
        if added:
            size = added * max(sizes.get(tp, {}).values(), default=0)
            what = trouble.trigger.value
            before = tuple(current[tp])
            gain = f"from {len(before)} to {len(after)} replicas"
            moves.append(Move(*tp, before, tuple(after), COPY, what, gain, size, size / rate))
    return Repair(plan_of(moves, id, now_ms, rate), ())


def plan_of(moves: Sequence[Move], id: str, now_ms: int, rate: int) -> Plan:
    """A plan of moves that no search has found."""
    total = sum(move.bytes for move in moves)
    cost = PlanCost(total, len(moves), 0, total / rate, rate, None, 0)
    return Plan(id, now_ms, now_ms, tuple(moves), (), (), cost, total, 0.0, 0)
