"""The arithmetic of batches and tasks, with the vectors of Spark's own documentation and rules."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.spark.ranges import OffsetRange, limit_batch, nested_offsets, read_nested, split
from odradek.wire.topics import TopicPartition


def tp(partition: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, partition)


def r(partition: int, start: int, end: int) -> OffsetRange:
    return OffsetRange(tp(partition), start, end)


def test_one_spelling_of_an_offset() -> None:
    offsets = {tp(10): 3, tp(2): 1, tp(0, "a"): 7}
    assert json.dumps(nested_offsets(offsets)) == '{"a": {"0": 7}, "t": {"2": 1, "10": 3}}'
    assert read_nested(nested_offsets(offsets)) == offsets
    backwards = nested_offsets(dict(reversed(offsets.items())))
    assert json.dumps(backwards) == json.dumps(nested_offsets(offsets))


@pytest.mark.parametrize("text", ["[]", '{"t":[]}', '{"t":{"0":"1"}}', '{"t":{"x":1}}', "null"])
def test_what_is_no_offset_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_nested(json.loads(text))


def test_three_equal_partitions_and_ten_give_nine() -> None:
    begin = {tp(i): 0 for i in range(3)}
    latest = {tp(i): 100 for i in range(3)}
    assert limit_batch(10, begin, latest) == {tp(i): 3 for i in range(3)}


def test_twenty_equal_partitions_and_ten_give_twenty() -> None:
    begin = {tp(i): 0 for i in range(20)}
    latest = {tp(i): 100 for i in range(20)}
    assert sum(limit_batch(10, begin, latest).values()) == 20


def test_a_share_never_passes_the_end_and_the_idle_stay() -> None:
    begin = {tp(0): 5, tp(1): 90, tp(2): 10}
    latest = {tp(0): 5, tp(1): 100, tp(2): 1000}
    limited = limit_batch(10_000, begin, latest)
    assert limited == latest


def test_a_huge_limit_does_not_overflow() -> None:
    assert limit_batch(2**63 - 1, {tp(0): 2**62}, {tp(0): 2**63 - 1}) == {tp(0): 2**63 - 1}


def test_nothing_asked_is_one_task_per_range_without_the_empty() -> None:
    assert split([r(0, 0, 5), r(1, 3, 3), r(2, 7, 9)]) == [r(0, 0, 5), r(2, 7, 9)]
    assert split([r(0, 0, 5), r(2, 7, 9)], min_partitions=2) == [r(0, 0, 5), r(2, 7, 9)]


def test_max_records_cuts_with_the_remainder_last() -> None:
    assert split([r(0, 0, 10)], max_records=4) == [r(0, 0, 3), r(0, 3, 6), r(0, 6, 10)]


def test_min_partitions_shares_by_size() -> None:
    assert split([r(0, 0, 100), r(1, 0, 100)], min_partitions=4) == [
        r(0, 0, 50),
        r(0, 50, 100),
        r(1, 0, 50),
        r(1, 50, 100),
    ]


def test_a_small_range_stays_whole_and_the_rest_share_what_is_left() -> None:
    ranges = [r(0, 0, 1), r(1, 0, 300)]
    assert split(ranges, min_partitions=4) == [
        r(0, 0, 1),
        r(1, 0, 100),
        r(1, 100, 200),
        r(1, 200, 300),
    ]


@pytest.mark.parametrize(
    ("wanted", "min_partitions", "max_records", "expected"),
    [
        # More tasks than offsets: none is empty.
        ([r(0, 0, 1)], 4, None, [r(0, 0, 1)]),
        ([r(0, 1, 5)], 3, None, [r(0, 1, 2), r(0, 2, 3), r(0, 3, 5)]),
        # Half is rounded up: 1.5 of 3 tasks are 2, each.
        ([r(0, 0, 2), r(1, 0, 2)], 3, None, [r(0, 0, 1), r(0, 1, 2), r(1, 0, 1), r(1, 1, 2)]),
        # Exactly as many as asked for: nothing is cut.
        ([r(0, 0, 9), r(1, 0, 1)], 2, None, [r(0, 0, 9), r(1, 0, 1)]),
        # Each rule by itself, then both: the larger number of tasks counts.
        ([r(0, 0, 10)], None, 10, [r(0, 0, 10)]),
        ([r(0, 0, 11)], None, 10, [r(0, 0, 5), r(0, 5, 11)]),
        ([r(0, 0, 11)], 2, 10, [r(0, 0, 5), r(0, 5, 11)]),
        ([r(0, 0, 4)], 4, 2, [r(0, 0, 1), r(0, 1, 2), r(0, 2, 3), r(0, 3, 4)]),
        ([], 3, 3, []),
    ],
)
def test_how_ranges_are_cut(
    wanted: list[OffsetRange],
    min_partitions: int | None,
    max_records: int | None,
    expected: list[OffsetRange],
) -> None:
    assert split(wanted, min_partitions, max_records) == expected


@pytest.mark.parametrize(
    ("limit", "sizes", "shares"),
    [
        (10, [100, 100, 100], [3, 3, 3]),
        (3, [1, 1000], [1, 2]),  # 0.003 becomes 1, 2.997 becomes 2
        (100, [30, 10], [30, 10]),
        (20, [30, 10], [15, 5]),
        (1, [5, 5, 5], [1, 1, 1]),
        (7, [0, 10], [0, 7]),
    ],
)
def test_how_a_limit_is_shared(limit: int, sizes: list[int], shares: list[int]) -> None:
    begin = {tp(i): 40 for i in range(len(sizes))}
    latest = {tp(i): 40 + size for i, size in enumerate(sizes)}
    limited = limit_batch(limit, begin, latest)
    assert [limited[tp(i)] - 40 for i in range(len(sizes))] == shares


ranges = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(0, 10**5)), min_size=1, max_size=8
).map(lambda pairs: [r(i, start, start + size) for i, (start, size) in enumerate(pairs)])


@given(ranges, st.none() | st.integers(1, 50), st.none() | st.integers(1, 10**5))
def test_tasks_cover_exactly_what_was_asked(
    wanted: list[OffsetRange], min_partitions: int | None, max_records: int | None
) -> None:
    if max_records is not None and sum(x.size for x in wanted) // max_records > 5000:
        max_records *= 1000
    tasks = split(wanted, min_partitions, max_records)
    assert all(task.size > 0 for task in tasks)
    if max_records is not None:
        assert all(task.size <= max_records for task in tasks)
    for whole in wanted:
        of_it = [task for task in tasks if task.topic_partition == whole.topic_partition]
        assert sum(task.size for task in of_it) == whole.size
        for one, following in itertools.pairwise(of_it):
            assert one.end == following.start
        if whole.size:
            assert (of_it[0].start, of_it[-1].end) == (whole.start, whole.end)
