"""Who of a plan's moves starts, in which steps, and how the limits adapt."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.controller.plan_pace import Health, Limits, MoveStep, Pace, choose, next_step
from odradek.wire.topics import TopicPartition

LIMITS = Limits(cluster=100, per_broker_default=2, bytes_per_broker=100)


def step(number: int, source: int, target: int, size: int = 1) -> MoveStep:
    return MoveStep(TopicPartition("t", number), (target,), source, size)


def chosen(
    waiting: Sequence[MoveStep], in_flight: Sequence[MoveStep], limits: Limits = LIMITS
) -> list[int]:
    return [tp.partition for tp in choose(waiting, in_flight, limits)]


def test_a_broker_counts_as_source_and_as_target() -> None:
    waiting = [step(0, 1, 2), step(1, 2, 3), step(2, 4, 2), step(3, 4, 5)]
    assert chosen(waiting, []) == [0, 1, 3], "2 has two: one sent, one received"
    assert chosen(waiting, [step(9, 2, 9)]) == [0, 3]
    assert chosen(waiting, [step(9, 2, 9), step(8, 9, 2)]) == [3]


def test_the_cluster_has_a_limit_too() -> None:
    waiting = [step(number, 2 * number, 2 * number + 1) for number in range(9)]
    assert chosen(waiting, [step(90, 90, 91)], Limits(4, 2, 100)) == [0, 1, 2]


def test_bytes_are_limited_and_a_large_move_starts_alone() -> None:
    assert chosen([step(0, 1, 2, 60), step(1, 1, 3, 50)], []) == [0]
    assert chosen([step(0, 1, 2, 60), step(1, 1, 3, 40)], []) == [0, 1]
    assert chosen([step(0, 1, 2, 1000)], []) == [0], "it would never start otherwise"
    assert chosen([step(0, 1, 2, 1000)], [step(9, 1, 3)]) == []


def test_a_large_move_is_not_overtaken_on_the_broker_it_waits_for() -> None:
    moving = [step(9, 1, 3, 50)]
    assert chosen([step(0, 1, 2, 90), step(1, 1, 4, 10), step(2, 2, 5, 10)], moving) == [2]


def test_what_copies_nothing_needs_no_broker() -> None:
    busy = [step(8, 1, 2), step(9, 1, 2)]
    assert choose([MoveStep(TopicPartition("t", 0), (), 1, 0)], busy, LIMITS) == [("t", 0)]


def test_a_move_of_a_partition_without_a_leader_holds_no_place() -> None:
    stuck = [step(8, -1, 2), step(9, -1, 2)]
    assert chosen([step(0, 1, 2), step(1, 3, 2)], stuck, Limits(2, 2, 100)) == [0, 1]


@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.integers(6, 9), st.integers(0, 150)).map(
            lambda of: step(0, *of)
        ),
        max_size=30,
    ),
    st.dictionaries(st.integers(1, 9), st.integers(1, 4)),
    st.integers(1, 20),
)
def test_limits_hold_and_room_is_used(
    steps: list[MoveStep], per_broker: dict[int, int], cluster: int
) -> None:
    limits = Limits(cluster, 2, 100, per_broker)
    waiting = [of._replace(tp=TopicPartition("t", number)) for number, of in enumerate(steps)]
    starting = [waiting[number] for number in chosen(waiting, [], limits)]
    assert len(starting) <= cluster
    counts = Counter(broker for of in starting for broker in of.brokers)
    for broker, count in counts.items():
        assert count <= limits.of(broker)
        assert count == 1 or sum(s.bytes for s in starting if broker in s.brokers) <= 100
    assert bool(starting) == bool(waiting), "the first always starts where nothing moves"
    # Round by round everything starts.
    left, rounds = waiting, 0
    while left:
        begun = set(choose(left, [], limits))
        left = [of for of in left if of.tp not in begun]
        rounds += 1
    assert rounds <= len(waiting)


@pytest.mark.parametrize(
    ("current", "target", "expected"),
    [
        ([1, 2, 3], [1, 2, 3], None),
        ([1, 2, 3], [2, 1, 3], (2, 1, 3)),
        ([1, 2, 3], [4, 2, 3], (4, 2, 3)),
        ([1, 2, 3], [4, 5, 6], (1, 2, 4)),
        ([1, 2, 4], [4, 5, 6], (1, 5, 4)),
        ([1], [2, 3], (1, 2)),
        ([1, 2, 3], [4], (4,)),
    ],
)
def test_one_replica_comes_at_a_time(
    current: list[int], target: list[int], expected: tuple[int, ...] | None
) -> None:
    assert next_step(current, target, {}) == expected


def test_the_exchange_is_made_that_keeps_the_racks() -> None:
    racks = {1: "a", 2: "b", 3: "c", 4: "c", 5: "a", 6: "b"}
    assert next_step([1, 2, 3], [5, 6, 4], racks) in {(5, 2, 3), (1, 6, 3), (1, 2, 4)}
    # 4 is in the rack of 1: to put it in the place of 3 would leave two racks.
    assert next_step([1, 2, 3], [4, 6, 3], {1: "a", 2: "b", 3: "c", 4: "a", 6: "b"}) in {
        (4, 2, 3),
        (1, 6, 3),
    }


@given(
    st.permutations(range(8)).map(lambda of: of[:3]),
    st.permutations(range(8)),
    st.integers(1, 5),
    st.lists(st.sampled_from(["a", "b", "c", None]), min_size=8, max_size=8),
)
def test_steps_arrive_with_no_fewer_replicas_or_racks_at_any_moment(
    before: list[int], others: list[int], factor: int, places: list[str | None]
) -> None:
    racks = dict(enumerate(places))
    target = tuple(others[:factor])
    at = tuple(before)

    def count(replicas: Sequence[int]) -> int:
        return len({racks[id] or id for id in replicas})

    fewest = min(len(before), len(target))
    for _ in range(10):
        step = next_step(at, target, racks)
        if step is None:
            break
        assert len(set(step)) == len(step) >= fewest
        assert len(set(step) - set(at)) <= 1
        assert count(step) >= min(count(before), count(target))
        at = step
    assert at == target


def test_health() -> None:
    assert not Health(3, 3, 2, True, True).is_at_min
    assert Health(2, 3, 2, True, True).is_at_min
    assert not Health(1, 1, 1, True, True).is_at_min, "it never had more"
    assert Health(1, 3, 2, True, True).is_under_min
    assert not Health(1, 1, 2, True, True).is_under_min, (
        "a minimum that cannot be reached says nothing"
    )
    assert [Health(n, 3, 2, True, True).urgency for n in (1, 2, 3)] == [0, 1, 2]


def test_the_pace_grows_by_one_where_it_is_used_up_and_falls_by_half() -> None:
    pace = Pace(5, 7)
    calm: Counter[int] = Counter()
    assert pace.observe({1: 5, 2: 3}, set(), calm) == {1: (5, 6)}
    assert pace.observe({1: 6}, set(), calm) == {1: (6, 7)}
    assert pace.observe({1: 7}, set(), calm) == {}, "7 is the most"
    assert pace.observe({1: 7, 2: 5}, {1}, calm) == {1: (7, 3), 2: (5, 6)}
    assert pace.observe({1: 7}, {1}, calm) == {1: (3, 1)}
    assert pace.observe({1: 7}, {1}, calm) == {}, "never none"


def test_more_than_one_shrink_a_minute_slows_a_broker_down() -> None:
    pace = Pace(4, 4)
    calm: Counter[int] = Counter()
    assert pace.observe({}, set(), Counter({1: 1})) == {}
    for _ in range(5):
        assert pace.observe({1: 1}, set(), calm) == {}
    assert pace.observe({1: 1}, set(), Counter({1: 1})) == {}, "the first was a minute ago"
    assert pace.observe({1: 1}, set(), Counter({1: 1})) == {1: (4, 2)}


def test_a_setting_that_changes_is_a_new_start() -> None:
    pace = Pace(5, 20, {1: 9})
    pace.configure(5, 20)
    assert pace.of_broker == {1: 9}
    pace.configure(2, 20)
    assert pace.of_broker == {}
    assert pace.default() == 2
    pace.configure(50, 20)
    assert pace.default() == 20
