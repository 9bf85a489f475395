"""Reading a range of a topic once: `spark.read.format("odradek")`.

`earliest` and `latest` are carried to the tasks and looked up there, so that running the same
DataFrame again sees new records, as with Spark's own format (docs/spec/spark-kafka-format.md
section 3).
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from odradek.client.reader import EARLIEST, LATEST
from odradek.spark.errors import OptionError, plainly
from odradek.spark.filters import Wanted, wanted_by
from odradek.spark.lookup import Chosen, Lookup, Offsets
from odradek.spark.options import SourceOptions
from odradek.spark.range_reader import RangePartition, partitions_of, read_range
from odradek.spark.ranges import OffsetRange, split

if TYPE_CHECKING:
    import pyarrow as pa


class _PushFilters:
    """`pushFilters` that Spark uses where it may push filters and overlooks where it may not.

    Spark refuses a reader that overrides the method while push-down is switched off, which is its
    default, and does not say whether it is on. It recognises an override by the bound method's
    function, so that is what is kept here: filters that are not pushed are Spark's own work anyway.
    """

    def __get__(
        self, reader: "BatchReader", owner: type | None = None
    ) -> "Callable[[list[Filter]], Iterable[Filter]]":
        push = functools.partial(BatchReader.narrow, reader)
        push.__func__ = DataSourceReader.pushFilters  # type: ignore[attr-defined]  # see above
        return push


class BatchReader(DataSourceReader):
    """Plans the ranges, and reads one in each task."""

    pushFilters = _PushFilters()  # type: ignore[assignment]  # noqa: N815  # a descriptor

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._wanted = Wanted()

    def narrow(self, filters: list[Filter]) -> Iterable[Filter]:
        """Read less if the filters allow it; Spark still checks every row."""
        self._wanted = wanted_by(filters)
        return filters

    def partitions(self) -> list[InputPartition]:
        with plainly():
            lookup = Lookup(self._options)
            try:
                chosen = lookup.chosen()
                ranges = plan(lookup, chosen, self._options, self._wanted)
            finally:
                lookup.close()
        # Spark reads an empty list as one task that knows what to do.
        return partitions_of(ranges, chosen.topic_ids) or [InputPartition(None)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        if isinstance(partition, RangePartition):
            yield from read_range(self._options, partition.bounds)


def plan(
    lookup: Lookup, chosen: Chosen, options: SourceOptions, wanted: Wanted
) -> list[OffsetRange]:
    """The tasks' ranges. Those at the ends of the log keep EARLIEST and LATEST."""
    start = lookup.resolve(options.start, chosen.partitions, is_start=True)
    end = lookup.resolve(options.end, chosen.partitions, is_start=False)
    found_start, found_end = lookup.concrete(start), lookup.concrete(end)
    for partition in sorted(found_start):
        if found_start[partition] > found_end[partition]:
            raise OptionError(
                "RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET: "
                f"{partition} would be read from {found_start[partition]} to {found_end[partition]}"
            )
    whole = [OffsetRange(tp, found_start[tp], found_end[tp]) for tp in sorted(found_start)]
    ranges = [
        OffsetRange(r.topic_partition, *_narrowed(r, since, wanted))
        for r, since in _since(lookup, wanted, whole)
    ]
    # A start that was moved by a filter is not the start of the log any more.
    start = {
        r.topic_partition: r.start
        if r.start > found_start[r.topic_partition]
        else start[r.topic_partition]
        for r in ranges
    }
    end = {
        r.topic_partition: r.end if r.end < found_end[r.topic_partition] else end[r.topic_partition]
        for r in ranges
    }
    if options.min_partitions is not None or options.max_records is not None:
        ranges = split(ranges, options.min_partitions, options.max_records)
    opened = _with_open_ends(ranges, start, end)
    return [r for r in opened if r.end == LATEST or r.start < r.end]


def _since(
    lookup: Lookup, wanted: Wanted, ranges: list[OffsetRange]
) -> Iterator[tuple[OffsetRange, int]]:
    """The ranges that may have wanted rows, each with the first offset of a wanted time."""
    included = [r for r in ranges if wanted.includes(r.topic_partition)]
    if wanted.since_ms is None:
        yield from ((r, 0) for r in included)
        return
    times = {r.topic_partition: wanted.since_ms for r in included}
    found = lookup.at_times(times)
    for r in included:
        offset = found[r.topic_partition]
        yield r, r.end if offset is None else offset


def _narrowed(r: OffsetRange, since: int, wanted: Wanted) -> tuple[int, int]:
    start = min(max(r.start, since, wanted.first_offset), r.end)
    return start, max(start, min(r.end, wanted.until_offset))


def _with_open_ends(ranges: list[OffsetRange], start: Offsets, end: Offsets) -> list[OffsetRange]:
    """The first piece of a partition keeps a symbolic start, the last a symbolic end."""
    last = {r.topic_partition: index for index, r in enumerate(ranges)}
    seen = set()
    opened = []
    for index, r in enumerate(ranges):
        tp = r.topic_partition
        first = EARLIEST if tp not in seen and start[tp] == EARLIEST else r.start
        until = LATEST if last[tp] == index and end[tp] == LATEST else r.end
        opened.append(OffsetRange(tp, first, until))
        seen.add(tp)
    return opened
