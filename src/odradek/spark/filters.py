"""Filters of a batch read turned into narrower ranges. Pure.

Only what surely has no row that the query wants is left out, and Spark checks every row again, so a
filter that is not understood costs time and nothing else. A lower bound on the time becomes an
offset: the first record at or after it. An upper bound does not: times of records need not be in
order, and one that is late would be missing.
"""

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from odradek.wire.topics import TopicPartition

LONG_MAX = 2**63 - 1
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What rows the filters leave room for; None is all."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    first_offset: int = 0
    until_offset: int = LONG_MAX
    since_ms: int | None = None

    def includes(self, partition: TopicPartition) -> bool:
        return (self.topics is None or partition.topic in self.topics) and (
            self.partitions is None or partition.partition in self.partitions
        )


def wanted_by(filters: Iterable[Filter]) -> Wanted:
    """The filters, all of which hold for a wanted row."""
    wanted = Wanted()
    for one in filters:
        wanted = _narrow(wanted, one)
    return wanted


def _narrow(wanted: Wanted, one: Filter) -> Wanted:
    attribute: tuple[str, ...] = getattr(one, "attribute", ())
    if len(attribute) != 1:
        return wanted
    column = attribute[0]
    if column == "topic" and (values := _values(one, str)) is not None:
        known = wanted.topics
        return replace(wanted, topics=values if known is None else known & values)
    if column == "partition" and (values := _values(one, int)) is not None:
        chosen = wanted.partitions
        return replace(wanted, partitions=values if chosen is None else chosen & values)
    if column == "offset":
        return _narrow_offset(wanted, one)
    if column == "timestamp":
        return _narrow_time(wanted, one)
    return wanted


def _values(one: Filter, kind: type) -> "frozenset | None":  # type: ignore[type-arg]  # of `kind`
    if isinstance(one, EqualTo | EqualNullSafe):
        values = (one.value,)
    elif isinstance(one, In):
        values = tuple(one.value)
    else:
        return None
    return frozenset(values) if all(isinstance(value, kind) for value in values) else None


def _narrow_offset(wanted: Wanted, one: Filter) -> Wanted:
    first, until = 0, LONG_MAX
    values = _values(one, int)
    if values:
        first, until = min(values), max(values) + 1
    elif isinstance(one, GreaterThanOrEqual) and isinstance(one.value, int):
        first = one.value
    elif isinstance(one, GreaterThan) and isinstance(one.value, int):
        first = one.value + 1
    elif isinstance(one, LessThan) and isinstance(one.value, int):
        until = one.value
    elif isinstance(one, LessThanOrEqual) and isinstance(one.value, int):
        until = one.value + 1
    return replace(
        wanted,
        first_offset=max(wanted.first_offset, first),
        until_offset=min(wanted.until_offset, until),
    )


def _narrow_time(wanted: Wanted, one: Filter) -> Wanted:
    if not isinstance(one, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual):
        return wanted
    value = one.value
    if not isinstance(value, datetime.datetime) or value.tzinfo is None:
        return wanted
    since_ms = (value - EPOCH) // datetime.timedelta(milliseconds=1)
    if since_ms < 0:
        return wanted
    known = wanted.since_ms
    return replace(wanted, since_ms=since_ms if known is None else max(known, since_ms))
