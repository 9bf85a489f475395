"""What a stream remembers, and the table of what may happen to a topic between two batches."""

import json
from dataclasses import replace

import pytest

from odradek.spark.position import (
    Found,
    Identity,
    Position,
    next_position,
    progress,
    ranges_between,
)
from odradek.spark.ranges import OffsetRange
from odradek.wire.topics import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def position(offsets: dict[TopicPartition, int], first: tuple[int, int] = (0, 77)) -> Position:
    return Position(offsets, {}, Identity({}, dict.fromkeys(offsets, first)))


def found(
    latest: dict[TopicPartition, int],
    earliest: int = 0,
    first: tuple[int, int] | None = (0, 77),
) -> Found:
    firsts = {} if first is None else dict.fromkeys(latest, first)
    return Found(latest, dict.fromkeys(latest, earliest), Identity({}, firsts))


def test_an_offset_goes_there_and_back_and_has_one_spelling() -> None:
    one = Position({B: 7, A: 5}, {A: 1}, Identity({"u": "id-1"}, {A: (0, 77)}, {A: 3}))
    text = json.dumps(one.to_json())
    assert text == (
        '{"t": {"0": 5, "1": 7}, "@odradek": {"begin": {"t": {"0": 1}}, "ids": {"u": "id-1"}, '
        '"first": {"t": {"0": [0, 77]}}, "epoch": {"t": {"0": 3}}}}'
    )
    assert Position.from_json(json.loads(text)) == one


def test_an_offset_of_sparks_own_format_is_understood() -> None:
    one = Position.from_json({"t": {"0": 5}})
    assert one == Position({A: 5})
    assert one.to_json() == {"t": {"0": 5}}
    # Nothing is known of what was read, so nothing can be said to have changed.
    assert progress(one, found({A: 9}, first=(0, 5))).losses == ()


def test_the_first_batch_carries_its_own_start() -> None:
    initial = Position({A: 5, B: 6}, {A: 5, B: 6})
    there = found({A: 9, B: 9})
    end = next_position(initial, there, progress(initial, there), there.latest)
    assert end.begin == {A: 5, B: 6}
    # Spark asks for the start again after a crash; a later answer must not skip anything.
    later = Position({A: 8, B: 9}, {A: 8, B: 9})
    ranges, unknown = ranges_between(later, end)
    assert ranges == [OffsetRange(A, 5, 9), OffsetRange(B, 6, 9)]
    assert unknown == []
    after = next_position(
        end, found({A: 10, B: 9}), progress(end, found({A: 10, B: 9})), {A: 10, B: 9}
    )
    assert after.begin == {}


def test_nothing_new_is_the_same_offset_to_the_letter() -> None:
    before = position({A: 5})
    # Retention has moved the first record meanwhile.
    there = found({A: 5}, earliest=3, first=(3, 99))
    going = progress(before, there)
    assert going.losses == ()
    assert next_position(before, there, going, there.latest) is before


def test_a_new_partition_is_read_from_its_beginning() -> None:
    before = position({A: 5})
    there = found({A: 5, B: 4})
    going = progress(before, there)
    assert (going.begin, going.losses) == ({A: 5, B: 0}, ())
    end = next_position(before, there, going, there.latest)
    assert ranges_between(before, end) == ([OffsetRange(B, 0, 4)], [])
    late = progress(before, found({A: 5, B: 4}, earliest=2))
    assert [loss.condition for loss in late.losses] == [
        "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO"
    ]


def test_a_partition_that_went_away_leaves_the_offset() -> None:
    before = position({A: 5, B: 5})
    there = found({A: 5})
    going = progress(before, there)
    assert [loss.condition for loss in going.losses] == ["PARTITIONS_DELETED"]
    assert next_position(before, there, going, there.latest).offsets == {A: 5}
    grouped = progress(before, there, group_id="g")
    assert grouped.losses[0].condition == "PARTITIONS_DELETED_AND_GROUP_ID_CONFIG_PROVIDED"


def test_a_partition_that_came_and_went_while_we_looked() -> None:
    there = replace(found({A: 5}), gone=frozenset({B}))
    losses = progress(position({A: 5}), there).losses
    assert [loss.condition for loss in losses] == ["INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS"]
    known = progress(position({A: 5, B: 5}), there).losses
    assert [loss.condition for loss in known] == ["PARTITIONS_DELETED"]


@pytest.mark.parametrize(
    ("first", "latest", "what"),
    [
        ((0, 77), 9, "same"),
        ((3, 99), 9, "same"),  # retention
        ((0, 78), 9, "another"),  # already longer than what was read: the built-in reads on
        ((0, 78), 3, "another"),
        (None, 5, "same"),  # emptied
        (None, 0, "shrunk"),
        ((0, 77), 3, "shrunk"),  # a tail lost with an unclean leader
    ],
)
def test_a_recreated_log_is_recognized_by_its_first_record(
    first: tuple[int, int] | None, latest: int, what: str
) -> None:
    going = progress(position({A: 5}), found({A: latest}, first=first))
    expected = {"same": (5, 0), "another": (0, 1), "shrunk": (latest, 1)}[what]
    assert (going.begin[A], len(going.losses)) == expected
    assert (A in going.restarted) == (what == "another")
    assert (A in going.shrunk) == (what == "shrunk")


@pytest.mark.parametrize(
    ("epoch", "first", "is_another"),
    [
        (3, (0, 77), True),  # the same leader, whose log cannot go back
        (0, (0, 77), True),  # a topic begins at epoch 0
        (4, (0, 77), False),  # the next leader, which was not compacted yet
        (4, (4, 88), False),
        (4, (4, 89), True),  # another record in the place of the first
        (4, None, False),
        (None, (0, 77), True),
    ],
)
@pytest.mark.parametrize("was_empty", [False, True])
def test_the_log_of_the_next_leader_may_begin_earlier(
    epoch: int | None, first: tuple[int, int] | None, is_another: bool, was_empty: bool
) -> None:
    firsts = {B: (4, 88)} if was_empty else {A: (4, 88), B: (4, 88)}
    before = Position({A: 4, B: 9}, {}, Identity({}, firsts, {A: 3, B: 3}))
    there = found({A: 9, B: 9}, first=first)
    epochs = {} if epoch is None else {A: epoch, B: epoch}
    going = progress(before, replace(there, identity=replace(there.identity, epochs=epochs)))
    # An empty log tells nothing of the time of its next record.
    a_is_another = is_another and not (was_empty and first == (4, 89))
    assert going.restarted == {
        part for part, other in ((A, a_is_another), (B, is_another)) if other
    }


def test_an_offset_written_without_epochs_is_judged_by_its_first_record() -> None:
    before = Position.from_json({"t": {"0": 5}, "@odradek": {"first": {"t": {"0": [3, 77]}}}})
    for first, restarted in (((0, 70), {A}), ((3, 77), set()), ((4, 80), set())):
        there = found({A: 9}, first=first)
        there = replace(there, identity=replace(there.identity, epochs={A: 6}))
        assert progress(before, there).restarted == restarted
        end = next_position(before, there, progress(before, there), there.latest)
        assert end.identity.epochs == {A: 6}


def test_an_empty_log_that_is_made_again_and_filled() -> None:
    emptied = Position({A: 5}, {}, Identity({}, {B: (0, 1)}))
    assert progress(emptied, found({A: 9}, first=(0, 9))).restarted == {A}
    assert progress(emptied, found({A: 9}, earliest=5, first=(5, 9))).restarted == frozenset()


def test_ids_decide_where_there_are_ids() -> None:
    before = Position({A: 5}, {}, Identity({"t": "one"}))
    same = Found({A: 9}, {A: 0}, Identity({"t": "one"}))
    other = Found({A: 9}, {A: 0}, Identity({"t": "two"}))
    assert progress(before, same).losses == ()
    assert progress(before, other).restarted == {A}


def test_a_log_known_by_its_id_is_the_same_where_the_cluster_reports_no_ids() -> None:
    before = Position({A: 1000}, {}, Identity({"t": "one"}))
    going = progress(before, found({A: 1200}))
    assert (going.begin, going.losses) == ({A: 1000}, ())
    end = next_position(before, found({A: 1200}), going, {A: 1200})
    assert progress(end, found({A: 1300}, first=(0, 78))).restarted == {A}, (
        "its first record tells now"
    )


def test_a_topic_made_again_is_read_from_its_beginning_also_when_repeated() -> None:
    before = position({A: 5})
    there = found({A: 3}, first=(0, 78))
    end = next_position(before, there, progress(before, there), there.latest)
    assert end.begin == {A: 0}
    again = Position.from_json(json.loads(json.dumps(end.to_json())))
    assert ranges_between(before, again) == ([OffsetRange(A, 0, 3)], [])
    assert progress(again, found({A: 7}, first=(0, 78))).begin == {A: 3}


def test_a_batch_without_data_reads_nothing_again() -> None:
    end = Position({A: 5}, {A: 0})
    assert ranges_between(end, end) == ([], [])


def test_what_neither_end_tells_is_named() -> None:
    assert ranges_between(Position({}), Position({A: 5})) == ([], [A])
