"""A sink that is a Delta table: each batch of its query is landed there exactly once.

The query's id in Spark's checkpoint and the sink's name are the writer, the batch's number is its
transaction: a batch that Spark repeats is found and left alone, and a checkpoint that was thrown
away counts from 0 under another id. Between batches the table is kept in order: small files are
rewritten as few, and what the history does not need any more goes.
"""

import json
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.spark.errors import TableError
from odradek.spark.pipeline.spec import AVAILABLE_NOW, Pipeline, Sink
from odradek.spark.position import MARK
from odradek.spark.tables.append import Staging, append, open_for
from odradek.spark.tables.compaction import compact
from odradek.spark.tables.location import Location
from odradek.spark.tables.merge import merge
from odradek.spark.tables.retention import (
    commit_cost_s,
    default_history_s,
    properties,
    seconds,
    vacuum,
)
from odradek.spark.tables.schema import nullable
from odradek.spark.tables.table import Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from odradek.spark.tables.table import Table

logger = logging.getLogger(__name__)

MEGABYTE = 1024 * 1024
# What old log entries may add to a trigger before a warning.
COST_PART_MAX = 0.05
# A column of these types in a path is not what it was.
NO_PARTITIONS = ("float", "double", "binary")
TIME_ZONE = "spark.sql.session.timeZone"


class TableSink:
    """One sink's table. `open` it before the first batch."""

    def __init__(self, sink: Sink, pipeline: Pipeline) -> None:
        self._sink = sink
        self._pipeline = pipeline
        self._location = Location.of(sink.path, sink.storage)
        self._offsets = Path(pipeline.checkpoint) / sink.name / "offsets"
        self._table: Table | None = None
        self._staging: Staging | None = None
        self._schema = ""
        self._history_s, self._trigger_s = _history(sink, pipeline)
        self._since_compaction = 0
        self._vacuumed_at = time.monotonic()

    def open(self, frame: "DataFrame") -> None:
        """Make or check the table; TableError says which column does not fit."""
        self._schema = nullable(frame.schema.json())
        self._refuse_partitions(frame)
        table = open_for(
            self._location,
            self._schema,
            self._sink.partition_by,
            self._sink.new_columns,
            {**properties(self._history_s), **self._sink.properties},
        )
        self._table = table
        cost_s = commit_cost_s(self._history_s, self._trigger_s)
        if cost_s > COST_PART_MAX * self._trigger_s:
            logger.warning(
                "%s: a history of %.0f hours makes each commit %.0f ms longer",
                self._location.uri,
                self._history_s / 3600,
                cost_s * 1000,
            )
        vacuum(table)

    def _refuse_partitions(self, frame: "DataFrame") -> None:
        kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
        zone = frame.sparkSession.conf.get(TIME_ZONE)
        for name in self._sink.partition_by:
            if kinds[name] in NO_PARTITIONS:
                raise TableError(f"partition_by: {name} is {kinds[name]}, which no path can hold")
            if kinds[name] == "timestamp" and zone != "UTC":
                raise TableError(f"partition_by: {name} is a timestamp, so {TIME_ZONE} must be UTC")

    def land(self, frame: "DataFrame", number: int, query: str) -> int:
        """Land a batch; how many rows it added or changed."""
        table, sink = self._table, self._sink
        assert table is not None
        batch = Batch(f"{query}/{sink.name}", number, self._notes(number, query))
        if sink.mode == "update":
            landed = merge(table, batch, frame.toArrow(), sink.merge_on)
        else:
            mode = "overwrite" if sink.mode == "complete" else "append"
            landed = append(table, batch, self._schema, lambda: self._write(frame, batch), mode)
        self._since_compaction += 1
        if sink.compact.every and self._since_compaction >= sink.compact.every:
            self.tidy()
        return landed.rows

    def _write(self, frame: "DataFrame", batch: Batch) -> list[Any]:
        assert self._table is not None
        if self._location.root is None:
            from odradek.spark.tables.arrow_writer import write_arrow

            return write_arrow(frame, self._table)
        if self._staging is None:
            self._staging = Staging(self._location.root, batch.writer, self._sink.partition_by)
            self._staging.clear()
        return self._staging.write(frame, batch.number)

    def _notes(self, number: int, query: str) -> dict[str, str]:
        """What the history says of a batch; its offsets are where it ended."""
        notes = {
            "odradek.pipeline": self._pipeline.name,
            "odradek.query": query,
            "odradek.sink": self._sink.name,
            "odradek.batch": str(number),
        }
        try:
            lines = (self._offsets / str(number)).read_text().splitlines()[2:]
            ends = [_without_mark(json.loads(line)) for line in lines]
        except (OSError, ValueError):
            return notes  # a checkpoint that is not a directory of this machine
        return {**notes, "odradek.offsets": json.dumps(ends[0] if len(ends) == 1 else ends)}

    def tidy(self) -> None:
        """Rewrite small files; and from time to time remove what nothing needs any more."""
        if self._table is None or not self._sink.compact.every:
            return
        self._since_compaction = 0
        how = self._sink.compact
        for done in compact(self._table, how.target_mb * MEGABYTE, how.min_files):
            logger.info("%s: %d files became one", self._location.uri, len(done.files))
        if time.monotonic() - self._vacuumed_at >= self._history_s / 4:
            vacuum(self._table, full=False)
            self._vacuumed_at = time.monotonic()


def _without_mark(offset: Any) -> Any:
    return {name: value for name, value in offset.items() if name != MARK}


def _history(sink: Sink, pipeline: Pipeline) -> tuple[float, float]:
    """How long versions are kept, and how long a trigger is."""
    trigger = pipeline.trigger
    trigger_s = seconds(trigger) if trigger and trigger != AVAILABLE_NOW else 1.0
    return seconds(sink.history) if sink.history else default_history_s(trigger_s), trigger_s
