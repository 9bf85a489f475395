"""Positions as a user writes them, and offsets kept within a log."""

import pytest

from odradek.operations.offset_reset import parse_selection, shifted
from odradek.operations.positions import AT_END, AT_START, Position, Range, clamp
from odradek.wire.topics import TopicPartition

TP = TopicPartition("t", 0)


def test_what_is_a_position() -> None:
    assert Position.parse("earliest") == AT_START
    assert Position.parse("latest") == AT_END
    assert Position.parse("7") == Position(offset=7)
    assert Position.parse("-2") == Position(offset=-2)
    assert Position.parse("@1000") == Position(timestamp_ms=1000)
    assert Position.parse("1970-01-01T00:00:01+00:00") == Position(timestamp_ms=1000)


@pytest.mark.parametrize("text", ["now", "", "@", "@100000000000000000000", "2024-13-01"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is not a position; use earliest, latest"):
        Position.parse(text)


@pytest.mark.parametrize(("offset", "found"), [(5, 5), (0, 3), (99, 9), (-2, 7), (-99, 3)], ids=str)
def test_an_offset_stays_within_the_log(offset: int, found: int) -> None:
    assert clamp(offset, Range(3, 9)) == found


def test_a_shift_stays_within_the_log_and_begins_at_its_start() -> None:
    log = {TP: Range(3, 9)}
    assert shifted({TP: 5}, 2, log) == {TP: 7}
    assert shifted({TP: 5}, -100, log) == {TP: 3}
    assert shifted({TP: 5}, 100, log) == {TP: 9}
    assert shifted({TP: None}, 1, log) == {TP: 4}


def test_partitions_are_selected_by_name_and_number() -> None:
    assert parse_selection("orders") == ("orders", None)
    assert parse_selection("orders:0,2") == ("orders", [0, 2])
    with pytest.raises(ValueError, match="orders:0,1, not 'orders:x'"):
        parse_selection("orders:x")
