"""Running a pipeline: one streaming query for each sink, and one for each source's dead letters.

Every query has its own checkpoint under the pipeline's, so sinks do not wait for each other and a
sink that is added later begins at the beginning. A query that fails ends the run.
"""

import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from odradek.spark.pipeline.compacting import recover
from odradek.spark.pipeline.formats import as_letters, decode
from odradek.spark.pipeline.lake import FrameRows, Lake
from odradek.spark.pipeline.spec import AVAILABLE_NOW, Pipeline, Sink, SpecError, Watermark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    Batch = Callable[[DataFrame, int], None]

SETTLE_TIMEOUT_S = 60.0
POLL_S = 0.05
DEAD_LETTERS = "dead_letters"
BATCHES_REMEMBERED = 100
# Spark's words for a query that starts, and for a Python process that took it too long to.
INITIALIZING = "Initializing"
NOT_UP = "Python worker failed to connect back"
RESTARTS_MAX = 10
IS_REMOTE = re.compile(r"(?!file:)[a-z][a-z0-9+.-]*:")
# The line of a failure that is ours, among what Spark wraps around it.
OURS = re.compile(r"^(?:.*: )?odradek\.[\w.]+: (.+)$", re.MULTILINE)
# Of somebody else's, the last line of Python's traceback; Spark appends the plan of the query.
TRACEBACK = "Traceback (most recent call last)"
CAUSE = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception): .+)$", re.MULTILINE)
PLAN = "\n=== Streaming Query ==="


class PipelineFailed(Exception):
    """A query of the pipeline failed; says which and why."""


class Stopping(Exception):
    """A batch that is not begun any more because the pipeline stops."""


class RowsOut:
    """How many rows a sink has taken: in this run, and in each of its last batches."""

    def __init__(self) -> None:
        self.total = 0
        self._batches: dict[int, int] = {}

    def add(self, batch: int, rows: int) -> None:
        self.total += rows
        self._batches[batch] = rows
        self._batches.pop(batch - BATCHES_REMEMBERED, None)

    def of_batch(self, batch: int) -> int:
        return self._batches.get(batch, 0)


class Run:
    """The queries of a pipeline on a session, from `start` until `stop` or their end."""

    def __init__(self, pipeline: Pipeline, spark: "SparkSession") -> None:
        self.pipeline = pipeline
        self.queries: dict[str, StreamingQuery] = {}
        self._spark = spark
        self._stopping = threading.Event()
        self._rows: dict[str, RowsOut] = {}
        self._writers: dict[str, Any] = {}
        self._restarts_left = RESTARTS_MAX

    def start(self) -> None:
        """Build the views and start every query; SpecError if Spark refuses what the file says."""
        from pyspark.errors import AnalysisException, ParseException

        letters: dict[str, DataFrame] = {}
        where = ""
        try:
            for source in self.pipeline.sources:
                where = f"source {source.name}"
                raw = self._spark.readStream.format("odradek").options(**source.options).load()
                decoded = decode(self._spark, raw, source)
                self._view(source.name, decoded.events, source.watermark)
                if decoded.letters is not None and self.pipeline.dead_letters:
                    letters[source.name] = decoded.letters
            for step in self.pipeline.steps:
                where = f"step {step.name}"
                self._view(step.name, self._spark.sql(step.sql), step.watermark)
            for sink in self.pipeline.sinks:
                where = f"sink {sink.name}"
                self._check_columns(sink)
            for sink in self.pipeline.sinks:
                where = f"sink {sink.name}"
                self._start_sink(sink)
            for name, frame in letters.items():
                where = f"dead letters of {name}"
                self._start_letters(name, frame)
        except (AnalysisException, ParseException) as error:
            self.stop()
            raise SpecError(f"{self.pipeline.name}: {where}: {plain_text(error)}") from None
        except BaseException:
            self.stop()
            raise

    def _view(self, name: str, frame: "DataFrame", watermark: Watermark | None) -> None:
        if watermark is not None:
            frame = frame.withWatermark(watermark.column, watermark.delay)
        frame.createOrReplaceTempView(name)

    def _check_columns(self, sink: Sink) -> None:
        """Before the first query starts, rather than in its first batch."""
        columns = self._spark.table(sink.view).columns
        named = [("partition_by", name) for name in sink.partition_by]
        if sink.key and "value" not in columns:
            named.append(("key", sink.key))
        for field, name in named:
            if name not in columns:
                raise SpecError(
                    f"{self.pipeline.name}: sink {sink.name}: {field}: there is no column {name}; "
                    f"there are {', '.join(columns)}"
                )

    # Queries

    def _start_sink(self, sink: Sink) -> None:
        frame = self._spark.table(sink.view)
        if sink.kind == "parquet" and IS_REMOTE.match(sink.path):
            # Spark's own sink for file systems where a rename is no rename.
            writer = frame.writeStream.format("parquet").option("path", sink.path)
            if sink.partition_by:
                writer = writer.partitionBy(*sink.partition_by)
            self._start(sink.name, writer)
            return
        identity: Future[str] = Future()
        land = {
            "parquet": self._to_lake,
            "topic": self._to_topic,
            "console": self._to_console,
        }[sink.kind](sink, identity)
        query = self._start(sink.name, self._batches(sink.name, frame, land).outputMode(sink.mode))
        identity.set_result(query.id)

    def _start_letters(self, source: str, frame: "DataFrame") -> None:
        of_source = next(one for one in self.pipeline.sources if one.name == source)
        options = {
            "kafka.bootstrap.servers": of_source.bootstrap,
            "topic": self.pipeline.dead_letters,
        }

        def send(batch: "DataFrame", number: int) -> int:
            return _write(as_letters(batch, self.pipeline.name), options)

        name = f"{DEAD_LETTERS}_{source}"
        self._start(name, self._batches(name, frame, send))

    def _batches(
        self, name: str, frame: "DataFrame", land: "Callable[[DataFrame, int], int]"
    ) -> Any:
        def batch(rows: "DataFrame", number: int) -> None:
            if self._stopping.is_set():
                raise Stopping
            self._rows[name].add(number, land(rows, number))

        self._rows[name] = RowsOut()
        return frame.writeStream.foreachBatch(batch)

    def _start(self, name: str, writer: Any) -> "StreamingQuery":
        writer = writer.queryName(name)
        writer = writer.option("checkpointLocation", f"{self.pipeline.checkpoint}/{name}")
        if self.pipeline.trigger == AVAILABLE_NOW:
            writer = writer.trigger(availableNow=True)
        elif self.pipeline.trigger:
            writer = writer.trigger(processingTime=self.pipeline.trigger)
        self._writers[name] = writer
        return self._begin(name)

    def _begin(self, name: str) -> "StreamingQuery":
        query: StreamingQuery = self._writers[name].start()
        self.queries[name] = query
        # One after the other: each starts Python processes, which Spark gives 10 s to come up.
        _wait_while(query, lambda status: status["message"].startswith(INITIALIZING))
        return query

    # Sinks: each takes a batch and says how many rows it was

    def _to_lake(self, sink: Sink, identity: "Future[str]") -> "Callable[[DataFrame, int], int]":
        recover(Lake(sink.path, sink.name))

        def land(rows: "DataFrame", number: int) -> int:
            # A checkpoint that was thrown away counts its batches from 0 again: not the same ones.
            lake = Lake(sink.path, f"{sink.name}-{identity.result()}")
            return lake.land(number, FrameRows(rows, sink.partition_by)).rows

        return land

    def _to_topic(self, sink: Sink, identity: "Future[str]") -> "Callable[[DataFrame, int], int]":
        options = {
            "kafka.bootstrap.servers": self.pipeline.sources[0].bootstrap,
            **sink.options,
            "topic": sink.topic,
        }
        return lambda rows, number: _write(as_records(rows, sink.key), options)

    def _to_console(self, sink: Sink, identity: "Future[str]") -> "Callable[[DataFrame, int], int]":
        def show(rows: "DataFrame", number: int) -> int:
            count = rows.count()
            if count:
                print(f"{sink.name}, batch {number}: {count} rows", flush=True)
                rows.show(truncate=False)
            return count

        return show

    # The life of a run

    def is_active(self) -> bool:
        return any(query.isActive for query in self.queries.values())

    def goes_on(self) -> bool:
        """Whether there is a query that has not ended; PipelineFailed if one has failed.

        One whose Python was too slow, as it may be where the machine is busy, is started again."""
        is_going = self.is_active()
        for name, query in list(self.queries.items()):
            error = query.exception()
            if error is None or self._stopping.is_set():
                continue
            if NOT_UP not in str(error) or not self._restarts_left:
                raise PipelineFailed(f"{name}: {plain_text(error)}")
            self._restarts_left -= 1
            self._begin(name)
            is_going = True
        return is_going

    def wait(self) -> None:
        """Until every query has come to its end."""
        pause = threading.Event()
        while self.goes_on():
            pause.wait(POLL_S)

    def stop(self) -> None:
        """Let batches that have begun end, begin no other, and stop."""
        self._stopping.set()
        for query in self.queries.values():
            _wait_while(query, lambda status: status["isTriggerActive"])
            query.stop()

    def rows_out(self, name: str) -> RowsOut:
        """What the sink of a query has taken in this run; Spark's own file sink does not say."""
        return self._rows.get(name) or RowsOut()


def _wait_while(query: "StreamingQuery", holds: Callable[[Mapping[str, Any]], bool]) -> None:
    waited_s = 0.0
    pause = threading.Event()
    while waited_s < SETTLE_TIMEOUT_S and query.isActive and holds(query.status):
        pause.wait(POLL_S)
        waited_s += POLL_S


def _write(rows: "DataFrame", options: Mapping[str, str]) -> int:
    from pyspark.sql import Observation
    from pyspark.sql.functions import count, lit

    counted = Observation()
    observed = rows.observe(counted, count(lit(1)).alias("rows"))
    observed.write.format("odradek").options(**options).mode("append").save()
    return int(counted.get["rows"])


def as_records(rows: "DataFrame", key: str) -> "DataFrame":
    """Rows for a topic: those with a column `value` as they are, others as JSON."""
    from pyspark.sql.functions import col, struct, to_json

    if "value" in rows.columns:
        return rows
    value = to_json(struct(*(col(f"`{name}`") for name in rows.columns))).alias("value")
    columns = [col(key).cast("string").alias("key"), value] if key else [value]
    return rows.select(*columns)


def plain_text(error: Exception) -> str:
    """What went wrong, without what Spark wraps around it."""
    text = str(error).split(PLAN)[0]
    ours = OURS.search(text)
    if ours:
        return ours[1].strip()
    if TRACEBACK in text and (causes := CAUSE.findall(text)):
        return str(causes[-1]).strip()
    return text.split("\n\n")[0].split("\nJVM stacktrace")[0].strip()
