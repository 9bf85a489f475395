"""The decisions of reassignment: every error of the API, and who starts when."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.controller import reassignment_rules
from odradek.controller.assignment import ReplicaAssignment
from odradek.wire.errors import ErrorCode
from odradek.wire.topics import TopicPartition

LIVE = {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ([], "the replica list is empty"),
        ([2, 2], "a broker is named twice in [2, 2]"),
        ([2, -1], "a broker id is negative in [2, -1]"),
        ([2, 9], "brokers to add [2, 9] are not all alive; alive are [1, 2, 3, 4]"),
    ],
)
def test_targets_that_are_refused(target: list[int], message: str) -> None:
    error = reassignment_rules.invalid_target(target, ReplicaAssignment([1]), LIVE)
    assert error is not None
    assert (error.error, error.message) == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def test_only_replicas_to_add_must_be_alive() -> None:
    current = ReplicaAssignment([9, 1])
    assert reassignment_rules.invalid_target([9, 2], current, LIVE) is None
    assert reassignment_rules.invalid_target([9], current, LIVE) is None


def test_what_a_request_asks_for() -> None:
    resting = ReplicaAssignment([1, 2])
    moving = resting.reassign_to([3, 2])
    assert reassignment_rules.wanted(resting, [3, 2]) == ReplicaAssignment([3, 2, 1], [3], [1])
    assert reassignment_rules.wanted(resting, None) is None  # nothing to cancel
    assert reassignment_rules.wanted(moving, None) == ReplicaAssignment([2, 1])
    assert reassignment_rules.wanted(moving, [4]) == ReplicaAssignment([4, 2, 1], [4], [2, 1])


@pytest.mark.parametrize(
    ("assignment", "isr", "complete"),
    [
        (ReplicaAssignment([1, 2]), None, True),  # nothing moves
        (ReplicaAssignment([2, 1], [2], [1]), (1,), False),
        (ReplicaAssignment([2, 1], [2], [1]), (1, 2), True),
        (ReplicaAssignment([2, 1], [2], [1]), None, False),  # no state node
        (ReplicaAssignment([1, 2, 3], [], [3]), (3, 1), False),  # what stays must be in sync
        (ReplicaAssignment([1, 2, 3], [], [3]), (2, 1), True),
    ],
)
def test_complete(
    assignment: ReplicaAssignment, isr: tuple[int, ...] | None, complete: bool
) -> None:
    assert reassignment_rules.is_complete(assignment, isr) is complete


def test_a_plan_keeps_an_in_sync_replica() -> None:
    assert reassignment_rules.loses_last_in_sync([1, 2], (3, 2)) is None
    error = reassignment_rules.loses_last_in_sync([1, 2], (3,))
    assert error is not None
    assert error.error is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def tps(count: int) -> list[TopicPartition]:
    return [TopicPartition("t", number) for number in range(count)]


def moves(
    *names: TopicPartition,
) -> dict[TopicPartition, tuple[ReplicaAssignment, ReplicaAssignment]]:
    current = ReplicaAssignment([1])
    return {name: (current, current.reassign_to([2])) for name in names}


def test_as_many_start_as_there_is_room_for_in_order() -> None:
    a, b, c, d = tps(4)
    admission = reassignment_rules.admit(moves(b, c, d), in_flight=[a], waiting=0, in_flight_max=3)
    assert list(admission.start) == [b, c]
    assert admission.wait == {d: (2,)}


def test_a_new_move_does_not_overtake_waiting_ones() -> None:
    a, b = tps(2)
    admission = reassignment_rules.admit(moves(b), in_flight=[a], waiting=5, in_flight_max=100)
    assert admission.wait == {b: (2,)}


def test_a_move_under_way_or_done_immediately_takes_no_slot() -> None:
    a, b, c = tps(3)
    moving = ReplicaAssignment([2, 1], [2], [1])
    shrinking = ReplicaAssignment([1, 2])
    asked = {
        a: (moving, moving.reassign_to([3])),  # a change of mind
        b: (shrinking, shrinking.reassign_to([2, 1])),  # a reordering
        **moves(c),
    }
    admission = reassignment_rules.admit(asked, in_flight=[a], waiting=0, in_flight_max=1)
    assert list(admission.start) == [a, b]
    assert list(admission.wait) == [c]


def test_the_next_to_start() -> None:
    a, b, c, d = tps(4)
    assert reassignment_rules.next_to_start([b, c, d], [a], 3) == [b, c]
    assert reassignment_rules.next_to_start([b, c, d], [a], 1) == []
    assert reassignment_rules.next_to_start([], [a], 3) == []


requests = st.lists(
    st.one_of(
        st.tuples(st.just("move"), st.integers(0, 9)),
        st.tuples(st.just("cancel"), st.integers(0, 9)),
        st.tuples(st.just("arrive"), st.integers(0, 9)),
    ),
    max_size=60,
)


@given(requests, st.integers(1, 4))
@settings(max_examples=150)
def test_never_more_in_flight_than_allowed_and_everything_ends(
    history: list[tuple[str, int]], in_flight_max: int
) -> None:
    """A model of the queue around the decisions: whatever is asked, moves are bounded, first come
    is first served, and once nobody asks for more, everybody arrives."""
    in_flight: dict[TopicPartition, ReplicaAssignment] = {}
    waiting: dict[TopicPartition, tuple[int, ...]] = {}
    current = {tp: ReplicaAssignment([1]) for tp in tps(10)}
    names = tps(10)

    def start_waiting() -> None:
        for tp in reassignment_rules.next_to_start(list(waiting), in_flight, in_flight_max):
            in_flight[tp] = current[tp] = current[tp].reassign_to(waiting.pop(tp))

    def arrive(tp: TopicPartition) -> None:
        current[tp] = ReplicaAssignment(in_flight.pop(tp).target)
        start_waiting()

    for what, number in history:
        tp = names[number]
        if what == "move":
            target = [2] if current[tp].replicas[0] == 1 else [1]
            wanted = reassignment_rules.wanted(current[tp], target)
            assert wanted is not None
            waiting.pop(tp, None)
            admission = reassignment_rules.admit(
                {tp: (current[tp], wanted)},
                in_flight=in_flight,
                waiting=len(waiting),
                in_flight_max=in_flight_max,
            )
            waiting.update(admission.wait)
            for name, assignment in admission.start.items():
                in_flight[name] = current[name] = assignment
                if not assignment.is_reassigning:
                    arrive(name)
        elif what == "cancel":
            waiting.pop(tp, None)
            cancelled = reassignment_rules.wanted(current[tp], None)
            if cancelled is not None:
                assert reassignment_rules.is_complete(cancelled, None), "a cancel ends at once"
                in_flight[tp] = current[tp] = cancelled
                arrive(tp)
        elif tp in in_flight:
            arrive(tp)
        start_waiting()
        assert len(in_flight) <= in_flight_max
        assert not (waiting and len(in_flight) < in_flight_max), "room is used"
    for _ in range(len(names) + 1):
        for tp in list(in_flight):
            arrive(tp)
    assert not in_flight
    assert not waiting
