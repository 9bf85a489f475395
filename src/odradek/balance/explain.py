"""What a plan says about itself: why each replica moves, what rules it meets, and which it cannot.

A rule that is not met is either out of reach, and then there is a proof that a person can check
with pencil and paper, or the search has not found the way, which is not the same and is said so.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from odradek.balance import kernels
from odradek.balance.bound import least_bytes
from odradek.balance.burden import ALONE, BORNE, Burdens, Company, find_burdens, loads
from odradek.balance.kernels import State
from odradek.balance.minimum import MINIMUM, lacking, too_few_partitions
from odradek.balance.model import Cluster
from odradek.balance.plan import (
    COPY,
    IMPROVED,
    LEADERSHIP,
    MET,
    NOT_FOUND,
    UNATTAINABLE,
    BrokerResult,
    Move,
    Plan,
    PlanCost,
    RuleResult,
    Span,
)
from odradek.balance.rules import (
    CPU,
    DIMENSIONS,
    DISK,
    IN,
    LEADER_IN,
    LEADERS,
    OUT,
    REPLICAS,
    TOPIC_SPREAD,
    Array,
    beyond_wall,
    outside,
)
from odradek.balance.search import Outcome, new_state, pulls

ALLOWED = "allowed brokers"
RACKS = "racks"
WALLS = {CPU: "cpu capacity", IN: "in capacity", OUT: "out capacity", DISK: "disk capacity"}
WALLS[REPLICAS] = "replica capacity"
NOT_PROVEN = "not found within the budget"
# Of brokers, by index, and the dimensions that they stay outside of, why.
Reasons = dict[int, dict[int, str]]
# What a copy is assumed to run at where nothing else is known.
RATE = 50_000_000


@dataclass(frozen=True, slots=True)
class Facts:
    """What a plan needs to know beside the placement."""

    id: str
    created_ms: int
    load_as_of_ms: int
    coverage: float
    rate: int = RATE


class Change(NamedTuple):
    """One partition that changes: the brokers it touches, and what that adds to each."""

    partition: int
    before: tuple[int, ...]  # indexes of brokers, the leader first
    after: tuple[int, ...]
    brokers: Array
    delta: Array  # by those brokers and dimension
    bytes: int
    hard_rule: str


def explain(cluster: Cluster, found: Outcome, facts: Facts, evaluations: int) -> Plan:
    """The plan that leads from a cluster to a placement."""
    changes = _changes(cluster, found)
    state = new_state(cluster)
    before = state.sums
    moves = _moves(cluster, before, changes, facts.rate)
    reasons = reasons_outside(cluster, found, state)
    return Plan(
        id=facts.id,
        created_ms=facts.created_ms,
        load_as_of_ms=facts.load_as_of_ms,
        moves=moves,
        rules=tuple(_rules(cluster, before, found, reasons)),
        brokers=tuple(_brokers(cluster, before, found, reasons)),
        cost=_cost(cluster, moves, facts.rate),
        bound=least_bytes(cluster),
        coverage=facts.coverage,
        evaluations=evaluations,
    )


# Moves.


def _changes(cluster: Cluster, found: Outcome) -> list[Change]:
    f = cluster.problem
    touched = np.unique(
        np.concatenate(
            (
                f.partition[np.flatnonzero(found.broker != f.home)],
                np.flatnonzero(found.leader != f.first),
            )
        )
    )
    changes = []
    for p in touched.tolist():
        slots = range(f.start[p], f.start[p + 1])
        before = _leader_first(f.home, slots, f.first[p])
        after = _leader_first(found.broker, slots, found.leader[p])
        if before != after:
            changes.append(_change(cluster, found, p, before, after))
    return changes


def _leader_first(broker: Array, slots: range, leader: int) -> tuple[int, ...]:
    rest = [int(broker[slot]) for slot in slots if slot != leader]
    return (int(broker[leader]), *rest)


def _change(
    cluster: Cluster, found: Outcome, p: int, before: tuple[int, ...], after: tuple[int, ...]
) -> Change:
    f = cluster.problem
    slots = range(f.start[p], f.start[p + 1])
    size_on = {int(found.broker[slot]): int(f.size[slot]) for slot in slots}
    stored_on = {int(found.broker[slot]): int(cluster.stored[slot]) for slot in slots}
    size_was = {int(f.home[slot]): int(f.size[slot]) for slot in slots}
    brokers = sorted({*before, *after})
    delta = np.zeros((len(brokers), len(DIMENSIONS)), np.int64)
    for sign, replicas, sizes in ((-1, before, size_was), (1, after, size_on)):
        for place, broker in enumerate(replicas):
            delta[brokers.index(broker)] += sign * _load(f.rates[p], sizes[broker], place == 0)
    return Change(
        partition=p,
        before=before,
        after=after,
        brokers=np.array(brokers),
        delta=delta,
        bytes=sum(size for broker, size in stored_on.items() if broker not in before),
        hard_rule=_hard_rule(cluster, p, slots, before, after),
    )


def _load(rates: Array, size: int, leads: bool) -> Array:
    rate_in, out_leader, out_follower, cpu_leader, cpu_follower = rates.tolist()
    return np.array(
        [
            cpu_leader if leads else cpu_follower,
            rate_in,
            out_leader if leads else out_follower,
            size,
            1,
            int(leads),
            rate_in if leads else 0,
            out_leader,
        ],
        np.int64,
    )


def _hard_rule(
    cluster: Cluster, p: int, slots: range, before: tuple[int, ...], after: tuple[int, ...]
) -> str:
    f = cluster.problem
    if any(f.must_leave[slot] and int(f.home[slot]) not in after for slot in slots):
        return ALLOWED
    if int(f.topic[p]) in cluster.leaders_min:
        return MINIMUM
    racks_before = {int(f.rack[broker]) for broker in before}
    racks_after = {int(f.rack[broker]) for broker in after}
    return RACKS if len(racks_after) > len(racks_before) else ""


def _fall(cluster: Cluster, sums: Array, change: Change) -> tuple[Array, bool]:
    """How much less brokers are pulled by a change, by broker and dimension, and whether it stays
    within their walls."""
    rows = change.brokers
    here = sums[rows]
    there = here + change.delta
    f = cluster.problem
    local = replace(
        cluster,
        problem=f._replace(
            low=f.low[rows],
            high=f.high[rows],
            wall=f.wall[rows],
            scale=f.scale[rows],
            wall_scale=f.wall_scale[rows],
        ),
    )
    fits = not ((there > f.wall[rows]) & (change.delta > 0)).any()
    return pulls(local, here) - pulls(local, there), fits


def _moves(cluster: Cluster, sums: Array, changes: Sequence[Change], rate: int) -> tuple[Move, ...]:
    """Changes in the order to carry them out, each with what it gains when its turn comes."""
    alone = [_fall(cluster, sums, change) for change in changes]

    def urgency(at: int) -> tuple[int, float, int]:
        change, (fall, _) = changes[at], alone[at]
        kind = 0 if change.hard_rule else 1 if not change.bytes else 2
        return kind, -float(fall.sum()) / max(change.bytes / rate, 1e-3), change.partition

    order = sorted(range(len(changes)), key=urgency)
    sums = sums.copy()
    left: dict[int, int] = {}
    moves: list[Move] = []
    for at in order:
        change = changes[at]
        fall, _ = _fall(cluster, sums, change)
        helps_alone = alone[at][1] and alone[at][0].sum() > 0
        rule, gain = _reason(cluster, sums, change, fall)
        because = None
        if not helps_alone and not change.hard_rule:
            freed = [left[broker] for broker in change.after if broker in left]
            because = max(freed, default=None)
        for broker in set(change.before) - set(change.after) or {change.before[0]}:
            left[broker] = len(moves)
        sums[change.brokers] += change.delta
        moves.append(_move(cluster, change, rule, gain, rate, because))
    return tuple(moves)


def _move(
    cluster: Cluster, change: Change, rule: str, gain: str, rate: int, because: int | None
) -> Move:
    return Move(
        topic=cluster.topics[cluster.problem.topic[change.partition]],
        partition=int(cluster.number[change.partition]),
        before=tuple(cluster.broker_id(broker) for broker in change.before),
        after=tuple(cluster.broker_id(broker) for broker in change.after),
        kind=COPY if set(change.before) != set(change.after) else LEADERSHIP,
        rule=rule,
        gain=gain,
        bytes=change.bytes,
        seconds=round(change.bytes / rate, 3),
        because_of=because,
    )


def _reason(cluster: Cluster, sums: Array, change: Change, fall: Array) -> tuple[str, str]:
    if change.hard_rule == ALLOWED:
        gone = sorted(set(change.before) - set(change.after))
        names = ", ".join(str(cluster.broker_id(broker)) for broker in gone)
        return ALLOWED, f"leaves broker {names}"
    if change.hard_rule == MINIMUM:
        return MINIMUM, f"broker {cluster.broker_id(change.after[0])} leads one more of its topic"
    if change.hard_rule == RACKS:
        racks = len({int(cluster.problem.rack[broker]) for broker in change.after})
        return RACKS, f"in {racks} racks instead of {racks - 1}"
    by_dimension = fall.sum(axis=0)
    dimension = int(np.argmax(by_dimension))
    if by_dimension[dimension] <= 0:
        return TOPIC_SPREAD, "fewer replicas of a topic on one broker, or room for another move"
    at = int(np.argmax(fall[:, dimension]))
    broker = int(change.brokers[at])
    share = max(int(cluster.bounds.share[broker, dimension]), 1)
    now = int(sums[broker, dimension])
    then = now + int(change.delta[at, dimension])
    rule = DIMENSIONS[dimension]
    if now > cluster.bounds.wall[broker, dimension]:
        rule = WALLS[dimension]
    name = f"broker {cluster.broker_id(broker)}: {DIMENSIONS[dimension]}"
    return rule, f"{name} {now / share:.2f} → {then / share:.2f} of its share"


def _cost(cluster: Cluster, moves: Sequence[Move], rate: int) -> PlanCost:
    """A new replica is fetched from the leader; the busiest end decides how long it all takes."""
    live = {cluster.broker_id(index) for index in cluster.problem.receivers.tolist()}
    sent: dict[int, int] = {}
    received: dict[int, int] = {}
    copies = 0
    for move in moves:
        new = set(move.after) - set(move.before)
        copies += len(new)
        if new:
            leader = next((each for each in move.before if each in live), move.before[0])
            sent[leader] = sent.get(leader, 0) + move.bytes
            for broker in new:
                received[broker] = received.get(broker, 0) + move.bytes // len(new)
    busiest = max(sorted(sent), key=sent.__getitem__, default=None)
    most = max([*sent.values(), *received.values()], default=0)
    return PlanCost(
        bytes=sum(move.bytes for move in moves),
        copies=copies,
        leaderships=sum(move.kind == LEADERSHIP for move in moves),
        seconds=round(most / rate, 3),
        rate=rate,
        busiest=busiest,
        busiest_bytes=0 if busiest is None else sent[busiest],
    )


def _brokers(
    cluster: Cluster, before: Array, found: Outcome, reasons: Reasons
) -> list[BrokerResult]:
    bounds = cluster.bounds
    return [
        BrokerResult(
            broker=cluster.broker_id(at),
            rack=cluster.brokers.racks[at],
            state=cluster.brokers.states[at],
            resources={
                name: Span(
                    *(
                        int(each[at, d])
                        for each in (before, found.sums, bounds.share, bounds.low, bounds.high)
                    )
                )
                for d, name in enumerate(DIMENSIONS)
            },
            reasons={DIMENSIONS[d]: text for d, text in reasons.get(at, {}).items()},
        )
        for at in range(len(cluster.brokers.ids))
    ]


# Rules.


def _rules(cluster: Cluster, before: Array, found: Outcome, reasons: Reasons) -> list[RuleResult]:
    f = cluster.problem
    results = [
        _hard(ALLOWED, int(f.must_leave.sum()), found.stuck, _stranded(cluster, found)),
        _hard(RACKS, _crowded(cluster, f.home), _crowded(cluster, found.broker), NOT_PROVEN),
    ]
    results += _minimum_rule(cluster, found)
    walls_before = beyond_wall(before, cluster.bounds).sum(axis=0)
    walls_after = beyond_wall(found.sums, cluster.bounds).sum(axis=0)
    for dimension, name in WALLS.items():
        proof = _missing_capacity(cluster, found, dimension) or NOT_PROVEN
        results.append(
            _hard(name, int(walls_before[dimension]), int(walls_after[dimension]), proof)
        )
    out_before, out_after = outside(before, cluster.bounds), outside(found.sums, cluster.bounds)
    pull_before, pull_after = pulls(cluster, before), pulls(cluster, found.sums)
    for dimension, name in enumerate(DIMENSIONS):
        if name in cluster.thresholds.off:
            continue
        were, are = int(out_before[:, dimension].sum()), int(out_after[:, dimension].sum())
        improved = pull_after[:, dimension].sum() < pull_before[:, dimension].sum()
        proof = _proof(cluster, dimension, reasons) if are else ""
        results.append(_soft(name, were, are, improved, proof))
    if f.crowd_stride and TOPIC_SPREAD not in cluster.thresholds.off:
        results.append(_topic_rule(cluster, found))
    return results


def _hard(name: str, were: int, are: int, proof: str) -> RuleResult:
    state = MET if not are else NOT_FOUND if proof == NOT_PROVEN else UNATTAINABLE
    return RuleResult(name, state, were, are, proof if are else "")


def _soft(name: str, were: int, are: int, improved: bool, proof: str) -> RuleResult:
    if not are:
        return RuleResult(name, MET, were, are)
    if proof:
        return RuleResult(name, UNATTAINABLE, were, are, proof)
    return RuleResult(name, IMPROVED if improved else NOT_FOUND, were, are, NOT_PROVEN)


def _minimum_rule(cluster: Cluster, found: Outcome) -> list[RuleResult]:
    """Whether brokers lead as many as they must of the topics that have a minimum."""
    f = cluster.problem
    rows = [
        (
            lacking(cluster, topic, least, f.home, f.first),
            lacking(cluster, topic, least, found.broker, found.leader),
            too_few_partitions(cluster, topic, least),
        )
        for topic, least in cluster.leaders_min.items()
    ]
    if not rows:
        return []
    proof = next((proof for _, _, proof in rows if proof), NOT_PROVEN)
    return [_hard(MINIMUM, sum(row[0] for row in rows), sum(row[1] for row in rows), proof)]


def _topic_rule(cluster: Cluster, found: Outcome) -> RuleResult:
    state = new_state(cluster)
    were = int(kernels.topic_outside(cluster.problem, state))
    state.broker[:], state.leader[:] = found.broker, found.leader
    kernels.count_up(cluster.problem, state)
    are = int(kernels.topic_outside(cluster.problem, state))
    return _soft(TOPIC_SPREAD, were, are, are < were, "")


def _crowded(cluster: Cluster, broker: Array) -> int:
    """How many partitions are in fewer racks than they could be."""
    f = cluster.problem
    if not len(f.partition):
        return 0
    racks = f.rack[broker].astype(np.int64)
    pairs = np.unique(f.partition.astype(np.int64) * (int(f.rack.max()) + 1) + racks)
    found = np.bincount(pairs // (int(f.rack.max()) + 1), minlength=len(f.start) - 1)
    live = len(np.unique(f.rack[f.receivers]))
    return int((found < np.minimum(np.diff(f.start), live)).sum())


def _stranded(cluster: Cluster, found: Outcome) -> str:
    f = cluster.problem
    slots = np.flatnonzero((f.must_leave > 0) & (found.broker == f.home))
    if not len(slots):
        return NOT_PROVEN
    p = int(f.partition[slots[0]])
    factor = int(f.start[p + 1] - f.start[p])
    takers = int(f.allowed[f.group[f.topic[p]]].sum())
    if factor > takers:
        return (
            f"{cluster.name(p)} has {factor} replicas, and {takers} brokers may hold them: "
            f"{factor - takers} more needed"
        )
    return NOT_PROVEN


def _missing_capacity(cluster: Cluster, found: Outcome, dimension: int) -> str:
    """The sum: all walls together are less than all load."""
    f = cluster.problem
    walls = f.wall[f.receivers, dimension]
    load, room = int(found.sums[:, dimension].sum()), int(walls.sum())
    if load <= room:
        return ""
    largest = int(np.argmax(walls))
    missing = -(-(load - room) // int(walls[largest]))
    like = cluster.broker_id(int(f.receivers[largest]))
    return (
        f"{DIMENSIONS[dimension]}: the walls of {len(walls)} brokers add up to {room:,} for "
        f"{load:,}: {missing} more like broker {like} needed"
    )


def _proof(cluster: Cluster, dimension: int, reasons: Reasons) -> str:
    """Why no plan brings every broker into its band, and for how many it is not shown; empty where
    it is for none."""
    texts = [each[dimension] for each in reasons.values() if dimension in each]
    proofs = [text for text in texts if text != NOT_PROVEN]
    proof = _largest_replica(cluster, dimension) or _forced_rack(cluster, dimension)
    proof = proof or next(iter(proofs), "")
    if proof and len(proofs) < len(texts):
        proof += f"; {len(texts) - len(proofs)} of {len(texts)} brokers {NOT_PROVEN}"
    return proof


def reasons_outside(cluster: Cluster, found: Outcome, state: State) -> Reasons:
    """Why each broker that stays outside its band does so, by dimension."""
    here = outside(found.sums, cluster.bounds)
    reasons: Reasons = {}
    if not here.any():
        return reasons
    state = state._replace(broker=found.broker, leader=found.leader)
    company = Company(cluster)
    burdens = find_burdens(cluster, state, company)
    concerned = np.flatnonzero(here.any(axis=0)).tolist()
    by_rack = {d: _forced_rack(cluster, d) for d in concerned}
    too_little = {d: _left_over(cluster, company, d) for d in concerned}
    for broker, dimension in np.argwhere(here).tolist():
        text = NOT_PROVEN
        filled_up = np.flatnonzero(
            (burdens.slot[broker] >= 0) & (burdens.filled[broker] == dimension)
        )
        if burdens.slot[broker, dimension] >= 0:
            text = _burden(cluster, found, burdens, broker, dimension)
        elif len(filled_up):
            text = _burden(cluster, found, burdens, broker, int(filled_up[0]))
        elif found.sums[broker, dimension] < cluster.bounds.low[broker, dimension]:
            text = too_little[dimension] or by_rack[dimension] or NOT_PROVEN
        elif by_rack[dimension]:
            text = by_rack[dimension]
        reasons.setdefault(broker, {})[dimension] = text
    return reasons


def _burden(cluster: Cluster, found: Outcome, burdens: Burdens, broker: int, dimension: int) -> str:
    """What a broker has that would be too much for any."""
    slot = int(burdens.slot[broker, dimension])
    filled = int(burdens.filled[broker, dimension])
    p = int(cluster.problem.partition[slot])
    leads = found.leader[p] == slot
    load = int(loads(cluster, np.array([slot]), np.array([leads]))[0, dimension])
    share, high = (
        max(int(each[broker, dimension]), 1) for each in (cluster.bounds.share, cluster.bounds.high)
    )
    name, what = cluster.name(p), DIMENSIONS[dimension]
    if filled == ALONE:
        return _too_large(name, load / share, what)
    least = float(burdens.least[broker, dimension])
    return (
        f"{name} {'as leader' if leads else 'as follower'} is {load / share:.0%} of a broker's "
        f"share of {what}, and filling up {DIMENSIONS[filled]} takes {(least - load) / share:.1%} "
        f"more at least: {least / share:.1%} of {high / share:.1%}"
    )


def _too_large(name: str, part: float, what: str) -> str:
    return f"{name} alone is {part:.0%} of a broker's share of {what}: more partitions would help"


def _largest_replica(cluster: Cluster, dimension: int) -> str:
    f = cluster.problem
    heaviest = {
        CPU: f.rates[:, 3],
        IN: f.rates[:, 0],
        OUT: f.rates[:, 1],
        LEADER_IN: f.rates[:, 0],
        DISK: np.maximum.reduceat(f.size, f.start[:-1]) if len(f.size) else f.size,
    }.get(dimension)
    if heaviest is None or not len(heaviest):
        return ""
    p = int(np.argmax(heaviest))
    high = int(f.high[f.receivers, dimension].max())
    if heaviest[p] <= high:
        return ""
    share = max(int(cluster.bounds.share[f.receivers, dimension].max()), 1)
    return _too_large(cluster.name(p), heaviest[p] / share, DIMENSIONS[dimension])


def _left_over(cluster: Cluster, company: Company, dimension: int) -> str:
    """What replicas that are too large alone leave for the brokers that have none of them."""
    f = cluster.problem
    if dimension not in BORNE or not len(f.size):
        return ""
    top = int(f.high[f.receivers, dimension].max())
    followers = np.diff(f.start) - 1
    roles = [(f.size, np.ones(1, np.int64))]
    if dimension != DISK:
        roles = [
            (company.load(dimension, 1, np.maximum), np.ones(1, np.int64)),
            (company.load(dimension, 0, np.maximum), followers),
        ]
    large = sum(int(((load > top) * times).sum()) for load, times in roles)
    left = sum(int((np.where(load > top, 0, load) * times).sum()) for load, times in roles)
    lows = np.sort(f.low[f.receivers, dimension])[: max(len(f.receivers) - large, 0)]
    needed = int(lows.sum())
    if not large or left >= needed:
        return ""
    return (
        f"{DIMENSIONS[dimension]}: beside {large} replicas that are too large for any "
        f"broker {left:,} are left, and the other {len(lows)} brokers need {needed:,}"
    )


def _forced_rack(cluster: Cluster, dimension: int) -> str:
    """Where a partition has as many replicas as there are racks, each rack has one of them."""
    f = cluster.problem
    racks = f.rack[f.receivers]
    names = np.unique(racks)
    factor = np.diff(f.start)
    forced = np.flatnonzero(factor >= len(names))
    if len(names) < 2 or dimension in (LEADERS, LEADER_IN) or not len(forced):
        return ""
    if dimension == REPLICAS:
        load = len(forced)
    elif dimension == DISK:
        load = int(np.minimum.reduceat(f.size, f.start[:-1])[forced].sum())
    else:
        load = int(f.rates[forced, {CPU: 4, IN: 0, OUT: 2}.get(dimension, 1)].sum())
    for rack in names.tolist():
        inside = f.receivers[racks == rack]
        if load > int(f.high[inside, dimension].sum()):
            name = cluster.rack_names[rack] or f"of broker {cluster.broker_id(int(inside[0]))}"
            brokers = "one broker" if len(inside) == 1 else f"{len(inside)} brokers"
            return (
                f"rack {name} has {brokers}, and each of {len(forced)} partitions must have a "
                f"replica in it"
            )
    return ""
