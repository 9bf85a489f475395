"""Finding a plan: repair what breaks a hard rule, relieve brokers, take back what was not needed.

The width K of the search is the dial between time and quality. A first plan is made with a small K,
to its end; what is left of a budget goes into larger ones, each from the original placement, and
the cheapest of the best is kept. The budget is counted in evaluations, so that a plan does not
depend on the machine. Each step lowers the pull on the brokers, so a search may be stopped at any
visit: by a count, by the clock, or by hand; and the same count gives the same plan again, because
what is done first does not depend on how much may be done.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from odradek.balance import kernels
from odradek.balance.burden import Company, find_burdens, taken_as_given
from odradek.balance.kernels import EVALUATIONS, SEED, Problem, State
from odradek.balance.minimum import meet_minimum
from odradek.balance.model import Cluster
from odradek.balance.rules import DISK, HAIR, Array, beyond_wall, outside

USUAL_WIDTHS = (24, 96)
# The second only after so few evaluations of the first.
NARROW_EVALUATIONS_MAX = 2_000_000
# For what is left of a budget.
WIDER_WIDTHS = (96, 400)
FIRST_SEED = 0x2545F491
ROUNDS_MAX = 200
ROUNDS_COMPARED = 4
# Rounds that lower the pull by less than this have come to an end, and a plan that does so without
# a repair is not worth carrying out.
LEAST_GAIN = 0.02
PULL_MIN = 1e-9
# How often a plan is planned again from where it leads, until nothing more moves.
CONTINUATIONS_MAX = 8
# After so many evaluations the search looks up, at the clock or for Ctrl-C.
SLICE = 100_000


class Stopped(Exception):
    """The budget is used up."""


@dataclass(slots=True)
class Budget:
    """How much may be spent.

    `evaluations` ends the search when so many are made, and `should_stop` when it says so; without
    either the search ends by itself, with the widths that its first results allow. `stop` ends it
    from outside, from a signal's handler or another thread.
    """

    evaluations: int | None = None
    should_stop: Callable[[int], bool] | None = None
    spent: int = 0
    is_cut: bool = False

    @property
    def has_more(self) -> bool:
        """Whether something is left that was given."""
        if self.is_cut or (self.evaluations is not None and self.spent >= self.evaluations):
            return False
        return self.evaluations is not None or self.should_stop is not None

    def stop(self) -> None:
        self.is_cut = True

    def check(self, spent: int) -> None:
        """Stopped if it is used up."""
        self.is_cut = self.is_cut or (
            (self.evaluations is not None and spent >= self.evaluations)
            or (self.should_stop is not None and self.should_stop(spent))
        )
        if self.is_cut:
            raise Stopped


class Outcome(NamedTuple):
    """A placement that a search reached from another."""

    broker: Array
    leader: Array
    sums: Array
    pull: float
    cost: float
    stuck: int  # replicas that may not stay and found no place

    def is_like(self, cluster: Cluster) -> bool:
        """Whether nothing has moved."""
        home, first = cluster.problem.home, cluster.problem.first
        return bool((self.broker == home).all() and (self.leader == first).all())


def new_state(cluster: Cluster) -> State:
    """The placement as it is."""
    f = cluster.problem
    slots, brokers = len(f.home), len(f.rack)
    cells = max(len(f.frozen) * f.crowd_stride, brokers)
    state = State(
        broker=f.home.copy(),
        leader=f.first.copy(),
        sums=np.zeros((brokers, kernels.DIMENSION_COUNT), np.int64),
        arriving=np.zeros(brokers, np.int64),
        entries=np.zeros(slots + slots // 4 + 16 * brokers, np.int32),
        begin=np.zeros(brokers, np.int64),
        held=np.zeros(brokers, np.int64),
        room=np.zeros(brokers, np.int64),
        place=np.zeros(slots, np.int32),
        crowd=np.zeros(cells, np.int16),
        weight=np.zeros((slots, 5), np.float32),
        failures=np.zeros((brokers, kernels.DIMENSION_COUNT), np.int8),
        cursor=np.zeros(brokers, np.int64),
        vector=np.zeros((3, kernels.DIMENSION_COUNT), np.int64),
        chosen=np.zeros((2, kernels.WIDTH_MAX), np.int32),
        worth=np.zeros(kernels.WIDTH_MAX, np.float64),
        targets=np.zeros(kernels.TARGETS * kernels.DRAWS, np.int32),
        counters=np.zeros(2, np.int64),
    )
    state.counters[SEED] = FIRST_SEED
    kernels.count_up(f, state)
    return state


def pulls(cluster: Cluster, sums: Array) -> Array:
    """How hard each broker is pulled in each dimension."""
    f = cluster.problem
    far = np.maximum(sums - f.high, 0) + np.maximum(f.low - sums, 0)
    beyond = np.maximum(sums - f.wall, 0)
    result: Array = far.astype(np.float64) ** 2 * f.scale + (
        beyond.astype(np.float64) ** 2 * f.wall_scale
    )
    return result


def find(cluster: Cluster, budget: Budget | None = None) -> Outcome:
    """The best placement within a budget; the one there is, if no other is worth its cost."""
    budget = budget or Budget()
    company = Company(cluster)
    found = _settled(cluster, USUAL_WIDTHS, NARROW_EVALUATIONS_MAX, budget, company)
    if budget.has_more:
        wider = _settled(cluster, WIDER_WIDTHS, None, budget, company)
        # A search that was cut off is unfinished; the one before it was not.
        if not budget.is_cut and _is_better(wider, found, len(cluster.problem.rack)):
            found = wider
    return found


def _settled(
    cluster: Cluster,
    widths: Sequence[int],
    narrow_max: int | None,
    budget: Budget,
    company: Company,
) -> Outcome:
    """What was found is searched again, as if it had been carried out, until nothing more moves: so
    a plan that was carried out is followed by none."""
    here = cluster
    found = widest(here, widths, narrow_max, budget, company)
    for _ in range(CONTINUATIONS_MAX):
        if found.is_like(here) or budget.is_cut:
            break
        here = carried_out(here, found)
        found = widest(here, widths, narrow_max, budget, company)
    return found._replace(cost=cost_of(cluster, found.broker, found.leader))


def widest(
    cluster: Cluster,
    widths: Sequence[int],
    narrow_max: int | None,
    budget: Budget,
    company: Company,
) -> Outcome:
    """The best of a narrow search and of wider ones, unless the narrower took too long for that."""
    before = budget.spent
    best = _search(cluster, widths[0], budget, company)
    for width in widths[1:]:
        spent = budget.spent - before
        # Without a move there is no cost to lower, unless something is still outside.
        if budget.is_cut or not spent or (narrow_max is not None and spent > narrow_max):
            break
        found = _search(cluster, width, budget, company)
        if not budget.is_cut and _is_better(found, best, len(cluster.problem.rack)):
            best = found
    return best


def _is_better(found: Outcome, best: Outcome, brokers: int) -> bool:
    """Fewer left out, then less pull, then less cost. Brokers within a hair's breadth of their
    bands are as good as inside."""
    if found.stuck != best.stuck:
        return found.stuck < best.stuck
    hairs = brokers * HAIR**2
    if found.pull < best.pull * (1 - LEAST_GAIN) - hairs:
        return True
    return found.pull <= best.pull + hairs and found.cost < best.cost


def _search(cluster: Cluster, width: int, budget: Budget, company: Company) -> Outcome:
    """One search from the placement as it is. What it gains beside repairs must be worth it."""
    f = cluster.problem
    state = new_state(cluster)
    stuck = repair(cluster, state)
    repaired, led = state.broker.copy(), state.leader.copy()
    start = _total_pull(cluster, state, company)
    try:
        _improve(cluster, state, width, budget, company)
    except Stopped:
        pass
    budget.spent += int(state.counters[EVALUATIONS])
    reached = _total_pull(cluster, state, company)
    if start - reached <= max(PULL_MIN, start * LEAST_GAIN):
        state.broker[:] = repaired
        state.leader[:] = led
        kernels.count_up(f, state)
        reached = start
    cost = cost_of(cluster, state.broker, state.leader)
    return Outcome(state.broker, state.leader, state.sums, reached, cost, stuck)


def resumed(cluster: Cluster, broker: Array, leader: Array, width: int, budget: Budget) -> State:
    """A placement that was reached so far, improved further. What it does as well without is taken
    back."""
    state = new_state(cluster)
    state.broker[:] = broker
    state.leader[:] = leader
    kernels.count_up(cluster.problem, state)
    _improve(cluster, state, width, budget, Company(cluster))
    budget.spent += int(state.counters[EVALUATIONS])
    return state


def repair(cluster: Cluster, state: State) -> int:
    """Move what breaks a hard rule; how many replicas found no place."""
    f = cluster.problem
    stuck = _relocate(f, state, np.flatnonzero(f.must_leave))
    # A topic with a minimum of leaders is moved for hard rules alone, and excluded ones are not.
    kernels.repair_racks(f._replace(frozen=cluster.excluded), state)
    for topic, minimum in cluster.leaders_min.items():
        meet_minimum(cluster, state, topic, minimum)
    return stuck


def _relocate(f: Problem, state: State, slots: Array) -> int:
    """Move slots off their brokers; how many found no place. The largest first: what is small fits
    in later."""
    return int(kernels.repair_places(f, state, slots[np.argsort(-f.size[slots], kind="stable")]))


def relocated(cluster: Cluster, slots: Array) -> Array:
    """The broker of every slot when these have left theirs, and nothing else has moved."""
    state = new_state(cluster)
    _relocate(cluster.problem, state, slots)
    return state.broker


def _improve(cluster: Cluster, state: State, width: int, budget: Budget, company: Company) -> None:
    burdened = taken_as_given(cluster, find_burdens(cluster, state, company))
    relieve(burdened, state, width, budget)
    if kernels.spread(burdened.problem, state):
        relieve(burdened, state, width, budget)
    for _ in range(2):
        # Burdens that shared a broker have parted.
        burdened = taken_as_given(cluster, find_burdens(cluster, state, company))
        _take_back(burdened.problem, state)
        # What is taken back for nothing may leave a broker a little outside, and another less so.
        relieve(burdened, state, width, budget)


def relieve(cluster: Cluster, state: State, width: int, budget: Budget) -> None:
    """Visit brokers outside their bands, worst first, until there is none that could be relieved,
    or rounds gain little: neither the pull falls nor the number of those outside."""
    rounds: list[tuple[float, int]] = []
    state.failures[:] = 0
    for _ in range(ROUNDS_MAX):
        by_broker = pulls(cluster, state.sums).sum(axis=1)
        wrong = outside(state.sums, cluster.bounds) | beyond_wall(state.sums, cluster.bounds)
        hopeful = wrong & (state.failures < kernels.FAILURES_MAX)
        visited = np.flatnonzero(hopeful.any(axis=1) & (by_broker > 0.0))
        if not len(visited):
            return
        rounds.append((float(by_broker.sum()), int(wrong.sum())))
        if len(rounds) > ROUNDS_COMPARED:
            (past, wrong_then), (now, wrong_now) = rounds[-1 - ROUNDS_COMPARED], rounds[-1]
            if past - now < past * LEAST_GAIN and wrong_now >= wrong_then:
                return
        order = visited[np.argsort(-by_broker[visited], kind="stable")].astype(np.int32)
        at = 0
        while at < len(order):
            spent = int(state.counters[EVALUATIONS])
            limit = spent + SLICE
            if budget.evaluations is not None:
                limit = min(limit, budget.evaluations - budget.spent)
            at = int(kernels.visit_each(cluster.problem, state, order, at, width, limit))
            budget.check(budget.spent + int(state.counters[EVALUATIONS]))


def _take_back(f: Problem, state: State) -> None:
    """Undo what the placement does as well without, the largest first."""
    stays = f.frozen[f.topic].astype(bool)
    for _ in range(ROUNDS_COMPARED):
        slots = np.flatnonzero((state.broker != f.home) & ~stays[f.partition] & (f.pinned == 0))
        slots = slots[np.argsort(-f.size[slots], kind="stable")]
        partitions = np.flatnonzero(
            (state.leader != f.first) & ~stays & (f.pinned[state.leader] == 0)
        )
        if not kernels.take_back(f, state, slots, partitions):
            return


def _total_pull(cluster: Cluster, state: State, company: Company) -> float:
    """How hard all brokers are pulled, beside what no plan could change."""
    burdened = taken_as_given(cluster, find_burdens(cluster, state, company))
    total = float(pulls(burdened, state.sums).sum())
    return total + float(kernels.topic_pulls(cluster.problem, state))


def carried_out(cluster: Cluster, found: Outcome | State) -> Cluster:
    """The cluster after a plan."""
    f = cluster.problem
    return replace(
        cluster,
        problem=f._replace(
            home=found.broker,
            first=found.leader,
            must_leave=(f.must_leave & (found.broker == f.home)).astype(np.uint8),
            disk_before=found.sums[:, DISK].copy(),
        ),
    )


def copied(cluster: Cluster, broker: Array) -> Array:
    """The slots whose broker had no replica of their partition: what has to be copied."""
    f = cluster.problem
    slots = np.flatnonzero(broker != f.home)
    new = np.ones(len(slots), bool)
    for at, slot in enumerate(slots):
        p = f.partition[slot]
        new[at] = broker[slot] not in f.home[f.start[p] : f.start[p + 1]]
    return slots[new]


def cost_of(cluster: Cluster, broker: Array, leader: Array) -> float:
    """What reaching a placement costs, in mean sizes."""
    f = cluster.problem
    slots = copied(cluster, broker)
    copies = f.size[slots].sum() / f.mean_size + f.copy_price * len(slots)
    return float(copies + kernels.FREE_PRICE * int((leader != f.first).sum()))
