"""Filters as ranges: never narrower than the rows that are wanted."""

import datetime

from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from odradek.spark.filters import LONG_MAX, Wanted, wanted_by
from odradek.wire.topics import TopicPartition

NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
NOON_MS = int(NOON.timestamp() * 1000)


def test_topics_and_partitions() -> None:
    wanted = wanted_by(
        [In(("topic",), ("a", "b")), EqualTo(("topic",), "b"), In(("partition",), (1, 2))]
    )
    assert wanted == Wanted(frozenset("b"), frozenset((1, 2)))
    assert wanted.includes(TopicPartition("b", 2))
    assert not wanted.includes(TopicPartition("a", 2))
    assert not wanted.includes(TopicPartition("b", 0))


def test_offsets_from_every_comparison() -> None:
    column = ("offset",)
    assert wanted_by([GreaterThan(column, 5), LessThan(column, 9)]) == Wanted(
        first_offset=6, until_offset=9
    )
    assert wanted_by([GreaterThanOrEqual(column, 5), LessThanOrEqual(column, 9)]) == Wanted(
        first_offset=5, until_offset=10
    )
    assert wanted_by([In(column, (7, 3))]) == Wanted(first_offset=3, until_offset=8)
    assert wanted_by([EqualTo(column, 4), LessThan(column, 2)]).until_offset == 2


def test_a_time_only_bounds_from_below() -> None:
    column = ("timestamp",)
    assert wanted_by([GreaterThanOrEqual(column, NOON)]).since_ms == NOON_MS
    assert wanted_by([EqualTo(column, NOON)]).since_ms == NOON_MS
    later = NOON + datetime.timedelta(microseconds=1500)
    assert (
        wanted_by([GreaterThan(column, NOON), GreaterThan(column, later)]).since_ms == NOON_MS + 1
    )
    # A record that came late may have a time before one that came earlier.
    assert wanted_by([LessThan(column, NOON)]) == Wanted()
    before_1970 = datetime.datetime(1960, 1, 1, tzinfo=datetime.UTC)
    assert wanted_by([GreaterThan(column, before_1970)]) == Wanted()


def test_what_is_not_understood_leaves_everything() -> None:
    assert wanted_by(
        [
            IsNotNull(("topic",)),
            Not(EqualTo(("topic",), "a")),
            EqualTo(("value",), b"x"),
            EqualTo(("headers", "key"), "x"),
            EqualTo(("topic",), None),
            LessThan(("partition",), 3),
        ]
    ) == Wanted(until_offset=LONG_MAX)
