"""A plan by cells of brokers: each cell is searched on its own, anywhere, and the cells together
make one plan. For clusters that are too large for one processor.

1. On the driver: repair what breaks a hard rule, then give leaderships away, which costs no bytes.
2. Brokers are dealt into cells, as many of each rack in every cell, so that cells bear as much as
   each other. A cell moves the replicas on its brokers among its brokers. A broker keeps its whole
   band, so heavy replicas fit; splitting by topics would leave each part a fraction of every band,
   and they fit nowhere.
3. The moves of all cells are merged in the order of the cells. A move after which two replicas
   would share a rack, because another cell has moved there, is dropped.
4. On the driver: one search over all brokers, from there, for what is still outside.

What lies outside of a cell is seen by it as **strangers**, a broker for each rack: they hold the
other replicas of its partitions, so that racks are kept, and neither give nor take anything.

The same cluster and number of cells give the same plan, wherever and in whatever order cells are
searched. PLANNER.md section 4.4.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from odradek.balance import kernels
from odradek.balance.kernels import EVALUATIONS, Problem, State
from odradek.balance.model import LIVE, Brokers, Cluster
from odradek.balance.rules import (
    LEADER_IN,
    LEADERS,
    RESOURCES,
    UNLIMITED,
    Array,
    Limits,
    Thresholds,
)
from odradek.balance.search import (
    Budget,
    Outcome,
    carried_out,
    cost_of,
    find,
    new_state,
    relieve,
    repair,
    resumed,
)

# A smaller cell is too far from the mean of all, and copies in vain: with 25 brokers 17 % more
# bytes than a search of the whole, with 50 brokers 2 %.
BROKERS_MIN = 50
WIDTH = 48
DEALT_BY = [*RESOURCES, LEADER_IN]
# What taking a leadership from a stranger would weigh: no gain is as much.
FORBIDDEN = 1e12


class Solved(NamedTuple):
    """What a cell moves: slots to brokers, and leaderships to slots, by their numbers in the whole
    cluster; and what that took."""

    slots: Array
    brokers: Array
    leaders: Array
    evaluations: int


Solve = Callable[[Sequence[bytes]], list[bytes]]


def solve_here(cells: Sequence[bytes]) -> list[bytes]:
    """Search cells one after the other in this process."""
    return [solve(cell) for cell in cells]


def find_in_cells(
    cluster: Cluster, count: int, budget: Budget | None = None, solve_all: Solve = solve_here
) -> Outcome:
    """The placement that so many cells find, or fewer where there are few brokers."""
    budget = budget or Budget()
    dealt = deal(cluster, count)
    if len(dealt) < 2:
        return find(cluster, budget)
    state = _prepared(cluster)
    parts = [unpacked(each) for each in solve_all([packed(cluster, state, of) for of in dealt])]
    budget.spent += int(state.counters[EVALUATIONS]) + sum(part.evaluations for part in parts)
    merge(cluster, state, parts)
    reached = resumed(cluster, state.broker, state.leader, WIDTH, budget)
    # And from there as if it had been carried out, until nothing more moves.
    found = find(carried_out(cluster, reached), budget)
    return found._replace(cost=cost_of(cluster, found.broker, found.leader))


def deal(cluster: Cluster, count: int) -> list[Array]:
    """The brokers of each cell: all that may receive, and of each rack as many in one cell as in
    another, give or take one. A cell can only level what it has, so each gets what brings it
    nearest to the mean: the brokers that are farthest from their share are dealt first."""
    f = cluster.problem
    count = min(count, len(f.receivers) // BROKERS_MIN)
    if count < 2:
        return []
    sums = new_state(cluster).sums[f.receivers]
    distance = (sums * f.inverse_share[f.receivers] - 1.0)[:, DEALT_BY]
    weight = (distance**2).sum(axis=1)
    total = np.zeros((count, len(DEALT_BY)))
    cells: list[list[int]] = [[] for _ in range(count)]
    racks = f.rack[f.receivers]
    for rack in np.unique(racks):
        here = np.flatnonzero(racks == rack)
        taken = np.zeros(count, np.int64)
        for at in here[np.argsort(-weight[here], kind="stable")].tolist():
            # Only a cell with the fewest of the rack, then with the fewest of all, may take it.
            sizes = np.array([len(cell) for cell in cells])
            open_ = taken == taken.min()
            open_ &= sizes == sizes[open_].min()
            after = ((total + distance[at]) ** 2).sum(axis=1) - (total**2).sum(axis=1)
            cell = int(np.argmin(np.where(open_, after, np.inf)))
            cells[cell].append(int(f.receivers[at]))
            taken[cell] += 1
            total[cell] += distance[at]
    return [np.sort(np.array(cell)) for cell in cells]


def _prepared(cluster: Cluster) -> State:
    """The cluster repaired, with leaderships where they relieve."""
    state = new_state(cluster)
    repair(cluster, state)
    # Where no broker receives, only leaderships can change.
    none = cluster.problem.receivers[:0]
    led_alone = replace(cluster, problem=cluster.problem._replace(receivers=none))
    relieve(led_alone, state, WIDTH, Budget())
    return state


# One cell: a cluster of its own, that travels as bytes.


def packed(cluster: Cluster, state: State, brokers: Array) -> bytes:
    """A cell of these brokers, as bytes."""
    problem, slots, reached = _cut_out(cluster, state, brokers)
    arrays = {name: np.asarray(value) for name, value in problem._asdict().items()}
    share = _with_strangers(cluster.bounds.share, brokers, len(problem.rack), 0)
    arrays |= {"own_slots": slots, "own_brokers": brokers, "share": share}
    return _written({**arrays, "reached": reached[0], "led_by": reached[1]})


def _written(arrays: Mapping[str, Array]) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)  # type: ignore[arg-type]  # an array may be called as an option is
    return file.getvalue()


def _cut_out(
    cluster: Cluster, state: State, brokers: Array
) -> tuple[Problem, Array, tuple[Array, Array]]:
    """The problem of a cell, the numbers of its slots in the whole, and the placement so far."""
    f = cluster.problem
    index = np.full(len(f.rack), -1, np.int64)
    index[brokers] = np.arange(len(brokers))
    racks = np.unique(f.rack)
    seen_as = np.where(index >= 0, index, len(brokers) + np.searchsorted(racks, f.rack))
    seen_as = seen_as.astype(f.home.dtype)
    partitions = np.unique(f.partition[index[state.broker] >= 0])
    counts = np.diff(f.start)[partitions]
    start = np.append(0, np.cumsum(counts)).astype(f.start.dtype)
    shift = f.start[partitions] - start[:-1]
    slots = np.repeat(shift, counts) + np.arange(start[-1])
    first = (f.first[partitions] - shift).astype(f.first.dtype)
    leader = (state.leader[partitions] - shift).astype(f.first.dtype)
    broker = seen_as[state.broker[slots]]
    total = len(brokers) + len(racks)
    low = _with_strangers(f.low, brokers, total, 0)
    scale = _with_strangers(f.scale, brokers, total, 0.0)
    # A stranger that leads fewer than it did would weigh more than any gain.
    low[:, LEADERS][len(brokers) :] = np.bincount(broker[leader], minlength=total)[len(brokers) :]
    scale[:, LEADERS][len(brokers) :] = FORBIDDEN
    problem = f._replace(
        start=start,
        partition=np.repeat(np.arange(len(partitions), dtype=f.partition.dtype), counts),
        topic=f.topic[partitions],
        size=f.size[slots],
        rates=f.rates[partitions],
        home=seen_as[f.home[slots]],
        first=first,
        # What has to leave its broker has left it, or found no place among all brokers.
        must_leave=np.zeros(len(slots), f.must_leave.dtype),
        pinned=np.zeros(len(slots), f.pinned.dtype),
        allowed=_with_strangers(f.allowed.T, brokers, total, 0).T.copy(),
        rack=np.append(f.rack[brokers], racks).astype(f.rack.dtype),
        receivers=np.arange(len(brokers), dtype=f.receivers.dtype),
        low=low,
        high=_with_strangers(f.high, brokers, total, UNLIMITED),
        wall=_with_strangers(f.wall, brokers, total, UNLIMITED),
        scale=scale,
        wall_scale=_with_strangers(f.wall_scale, brokers, total, 0.0),
        inverse_share=_with_strangers(f.inverse_share, brokers, total, 0.0),
        disk_before=_with_strangers(f.disk_before, brokers, total, 0),
        disk_peak=_with_strangers(f.disk_peak, brokers, total, UNLIMITED),
        crowd_stride=total if f.crowd_stride else 0,
    )
    return problem, slots, (broker, leader)


def _with_strangers(values: Array, brokers: Array, total: int, stranger: float) -> Array:
    """Rows of brokers, and after them rows of strangers."""
    result = np.full((total, *values.shape[1:]), stranger, values.dtype)
    result[: len(brokers)] = values[brokers]
    return result


def solve(cell: bytes) -> bytes:
    """Search a cell, and return what moves, as bytes."""
    with np.load(io.BytesIO(cell), allow_pickle=False) as found:
        arrays = {name: found[name] for name in found.files}
    own_slots, own_brokers, share, reached, led_by = (
        arrays.pop(name) for name in ("own_slots", "own_brokers", "share", "reached", "led_by")
    )
    numbers = ("crowd_stride", "mean_size", "copy_price")
    f = Problem(**{name: a.item() if name in numbers else a for name, a in arrays.items()})
    budget = Budget()
    state = resumed(_as_cluster(f, share), reached, led_by, WIDTH, budget)
    moved = np.flatnonzero(state.broker != reached)
    led = np.flatnonzero(state.leader != led_by)
    return _written(
        {
            "slots": own_slots[moved],
            "brokers": own_brokers[state.broker[moved]],
            "leaders": own_slots[state.leader[led]],
            "evaluations": np.array(budget.spent),
        }
    )


def _as_cluster(f: Problem, share: Array) -> Cluster:
    """What a search asks of a cluster; it has no use for names. Racks were repaired before, over
    all brokers: so all topics are excluded from that."""
    count = len(f.rack)
    brokers = Brokers(np.arange(count), [None] * count, [LIVE] * count, share, [()] * count)
    bounds = Limits(share, f.low, f.high, f.wall)
    excluded = np.ones(len(f.frozen), np.uint8)
    return Cluster(f, [], np.zeros(0), brokers, bounds, [], Thresholds(), excluded, {}, f.size)


def unpacked(answer: bytes) -> Solved:
    """What a cell answered."""
    with np.load(io.BytesIO(answer), allow_pickle=False) as found:
        return Solved(found["slots"], found["brokers"], found["leaders"], int(found["evaluations"]))


def merge(cluster: Cluster, state: State, parts: Sequence[Solved]) -> None:
    """Make the moves of all cells, in order. One that would bring two replicas of a partition into
    one rack, because of another cell's move, is dropped."""
    f = cluster.problem
    for part in parts:
        left = list(zip(part.slots.tolist(), part.brokers.tolist(), strict=True))
        while left:
            # Of a partition with two replicas in the cell, one may have to make room for the other.
            blocked = []
            for slot, broker in left:
                if kernels.crowding(f, state, slot, broker) > 0:
                    blocked.append((slot, broker))
                else:
                    kernels.move(f, state, slot, broker)
            left = blocked if len(blocked) < len(left) else []
        for slot in part.leaders.tolist():
            kernels.lead(f, state, int(f.partition[slot]), slot)
