"""Replica assignments and where they move. docs/spec/controller-and-replication.md section 4.7."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.controller.assignment import ReplicaAssignment


@pytest.mark.parametrize(
    ("current", "target", "expected"),
    [
        # the target first, then what is left of the origin
        (([1],), [2], ([2, 1], [2], [1])),
        (([1, 2, 3],), [4, 2, 5], ([4, 2, 5, 1, 3], [4, 5], [1, 3])),
        (([1, 2, 3],), [1, 2, 3, 4], ([1, 2, 3, 4], [4], [])),  # a replica more
        (([1, 2, 3],), [3, 1], ([3, 1, 2], [], [2])),  # a replica less
        (([1, 2, 3],), [3, 2, 1], ([3, 2, 1], [], [])),  # a reordering: nothing to do
        # replaced on the way: the origin is kept, what was being added and is not wanted goes
        (([3, 2, 1], [3], [1]), [4, 2], ([4, 2, 1], [4], [1])),
        # cancelled: back to the origin, whose order may be lost
        (([4, 2, 1], [4], [1]), [2, 1], ([2, 1], [], [])),
    ],
)
def test_reassign_to(
    current: tuple[list[int], ...], target: list[int], expected: tuple[list[int], ...]
) -> None:
    assert ReplicaAssignment(*current).reassign_to(target) == ReplicaAssignment(*expected)


def test_origin_and_target() -> None:
    moving = ReplicaAssignment([4, 2, 5, 1, 3], adding=[4, 5], removing=[1, 3])
    assert moving.origin == (2, 1, 3)
    assert moving.target == (4, 2, 5)
    assert moving.is_reassigning
    assert str(moving) == "replicas=[4,2,5,1,3] adding=[4,5] removing=[1,3]"


def test_at_rest() -> None:
    assignment = ReplicaAssignment([2, 1])
    assert assignment.origin == assignment.target == (2, 1)
    assert not assignment.is_reassigning
    assert str(assignment) == "replicas=[2,1]"


def test_a_replica_is_struck_from_every_list() -> None:
    moving = ReplicaAssignment([3, 2, 1], adding=[3], removing=[1])
    assert moving.without(3) == ReplicaAssignment([2, 1], [], [1])
    assert moving.without(1) == ReplicaAssignment([3, 2], [3], [])


replica_lists = st.lists(st.integers(0, 9), min_size=1, max_size=6, unique=True)


@given(replica_lists, st.lists(replica_lists, min_size=1, max_size=5))
def test_the_origin_survives_any_number_of_changes_of_mind(
    origin: list[int], targets: list[list[int]]
) -> None:
    assignment = ReplicaAssignment(origin)
    for target in targets:
        assignment = assignment.reassign_to(target)
        assert set(assignment.origin) == set(origin)
        assert assignment.target == tuple(target)
        assert set(assignment.replicas) == set(origin) | set(target)
        assert set(assignment.adding) == set(target) - set(origin)
        assert set(assignment.removing) == set(origin) - set(target)
    cancelled = assignment.reassign_to(assignment.origin)
    assert not cancelled.is_reassigning
    assert set(cancelled.replicas) == set(origin)
