"""Plans by cells of brokers: as good as a search of the whole, and the same wherever it is made."""

from collections.abc import Sequence

import pytest

pytest.importorskip("numba")
pytest.importorskip("pyarrow")

import numpy as np
from benchmarks.planner import skewed

from odradek.balance import kernels
from odradek.balance.cells import Solved, deal, find_in_cells, merge, packed, solve, unpacked
from odradek.balance.model import Cluster, Scope, assemble
from odradek.balance.rules import outside
from odradek.balance.search import Outcome, copied, find, new_state

pytestmark = pytest.mark.usefixtures("planner_kernels")


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    """102 brokers in three racks, of which one leaves."""
    return assemble(*skewed(102, 100_000, 1_000), scope=Scope(remove=frozenset({7})))


@pytest.fixture(scope="module")
def in_cells(cluster: Cluster) -> Outcome:
    return find_in_cells(cluster, 8)


def most_in_a_rack(cluster: Cluster, broker: np.ndarray) -> int:
    """The most replicas that any partition has in one rack."""
    f = cluster.problem
    keys = f.partition.astype(np.int64) * len(f.rack) + f.rack[broker]
    return int(np.unique(keys, return_counts=True)[1].max())


def test_every_broker_that_receives_is_in_one_cell_and_racks_are_dealt_evenly(
    cluster: Cluster,
) -> None:
    dealt = deal(cluster, 8)
    assert [len(brokers) for brokers in dealt] == [51, 50], "a cell has 50 at least"
    assert sorted(np.concatenate(dealt).tolist()) == sorted(set(range(102)) - {7})
    for rack in range(3):
        counts = [int((cluster.problem.rack[brokers] == rack).sum()) for brokers in dealt]
        assert max(counts) - min(counts) <= 1
    sums = new_state(cluster).sums
    loads = np.array([sums[brokers].mean(axis=0) for brokers in dealt])
    assert (np.abs(loads[0] / loads[1] - 1)[:4] < 0.1).all(), "a cell levels only what it has"


def test_it_costs_little_more_than_a_search_of_the_whole_and_meets_the_same_rules(
    cluster: Cluster, in_cells: Outcome
) -> None:
    whole = find(cluster)
    f = cluster.problem
    met = outside(whole.sums, cluster.bounds).sum()
    assert outside(in_cells.sums, cluster.bounds).sum() <= met
    assert in_cells.stuck == 0
    assert (in_cells.broker != 7).all(), "the one that leaves is empty"
    assert most_in_a_rack(cluster, in_cells.broker) == most_in_a_rack(cluster, f.home) == 1
    cost = [f.size[copied(cluster, found.broker)].sum() for found in (in_cells, whole)]
    assert cost[0] <= 1.1 * cost[1]
    state = new_state(cluster)
    state.broker[:], state.leader[:] = in_cells.broker, in_cells.leader
    kernels.count_up(f, state)
    assert (state.sums == in_cells.sums).all()


def test_the_same_input_gives_the_same_plan_in_whatever_order_cells_answer(
    cluster: Cluster, in_cells: Outcome
) -> None:
    def backwards(given: Sequence[bytes]) -> list[bytes]:
        return [solve(cell) for cell in reversed(given)][::-1]

    again = find_in_cells(cluster, 8, solve_all=backwards)
    assert (again.broker == in_cells.broker).all()
    assert (again.leader == in_cells.leader).all()


def test_a_cell_moves_nothing_of_others_and_takes_no_leadership_from_them(
    cluster: Cluster,
) -> None:
    state = new_state(cluster)
    for brokers in deal(cluster, 2):
        moved = unpacked(solve(packed(cluster, state, brokers)))
        assert len(moved.slots), "there is something to level"
        assert np.isin(state.broker[moved.slots], brokers).all()
        assert np.isin(moved.brokers, brokers).all()
        before = state.leader[cluster.problem.partition[moved.leaders]]
        assert np.isin(state.broker[before], brokers).all()


def test_of_two_moves_that_meet_in_a_rack_the_second_is_dropped(cluster: Cluster) -> None:
    f = cluster.problem
    p = next(p for p in range(len(f.start) - 1) if 7 not in f.home[f.start[p] : f.start[p + 1]])
    one, two, third = range(f.start[p], f.start[p + 1])
    free = [b for b in range(102) if b != 7 and b not in f.home[[one, two, third]]]
    same = [b for b in free if f.rack[b] == f.rack[f.home[third]]]
    nothing = np.zeros(0, np.int64)
    to_third = [
        Solved(np.array([slot]), np.array([b]), nothing, 0) for slot, b in ((one, same[0]),)
    ]
    state = new_state(cluster)
    merge(cluster, state, to_third)
    assert state.broker[one] == f.home[one], "the third is there"
    own = [b for b in free if f.rack[b] == f.rack[f.home[one]]]
    makes_room = Solved(np.array([third]), np.array([own[0]]), nothing, 0)
    merge(cluster, state, [makes_room])
    assert state.broker[third] == f.home[third], "the first is there"
    exchange = Solved(np.array([one]), np.array([own[0]]), nothing, 0)
    merge(cluster, state, [exchange])
    assert state.broker[one] == own[0], "within its rack it may"


def test_few_brokers_are_searched_as_a_whole() -> None:
    small = assemble(*skewed(12, 600, 20))
    assert deal(small, 8) == []
    whole, found = find(small), find_in_cells(small, 8)
    assert (found.broker == whole.broker).all()
