"""Running a pipeline: one streaming query for each sink, and one for each source's dead letters.

Every query has its own checkpoint under the pipeline's, so sinks do not wait for each other and a
sink that is added later begins at the beginning. A query that fails ends the run.
"""

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from odradek.spark.errors import OptionError, TableError
from odradek.spark.pipeline.formats import as_letters, decode
from odradek.spark.pipeline.spec import (
    AVAILABLE_NOW,
    Pipeline,
    Sink,
    Source,
    SpecError,
    Watermark,
)
from odradek.spark.pipeline.table_sink import TableSink
from odradek.spark.pipeline.topic_sink import TopicSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    Land = Callable[[DataFrame, int], int]

SETTLE_TIMEOUT_S = 60.0
POLL_S = 0.05
DEAD_LETTERS = "dead_letters"
BATCHES_REMEMBERED = 100
# Spark's words for a query that starts, and for a Python process that took it too long to.
INITIALIZING = "Initializing"
NOT_UP = "Python worker failed to connect back"
RESTARTS_MAX = 10
TOO_SLOW = (
    "a Python process did not come up within the 10 s that Spark gives it, which no setting changes"
)
FEWER_TASKS = (
    'give Spark fewer tasks at a time (master = "local[1]") or the machine less to do beside it'
)
COMMIT_GROUP = "commitgroup"
# The line of a failure that is ours, among what Spark wraps around it.
OURS = re.compile(r"^(?:.*: )?odradek\.[\w.]+: (.+)$", re.MULTILINE)
# Of any other, the last line of Python's traceback; Spark appends the plan of the query.
TRACEBACK = "Traceback (most recent call last)"
CAUSE = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception): .+)$", re.MULTILINE)
PLAN = "\n=== Streaming Query ==="
# Where that only says that Java failed, the reason that Java gives: what caused it, if it says so.
IN_JAVA = "An error occurred while calling"
JAVA_REASONS = [
    re.compile(rf"^{before}(?:[\w.$]+: )?(.+)$", re.MULTILINE) for before in ("Caused by: ", ": ")
]
# What Spark says of two queries that write to one checkpoint, by where it notices.
TWO_DRIVERS = ("CONCURRENT_STREAM_LOG_UPDATE", "Multiple streaming queries are concurrently using")


class PipelineFailed(Exception):
    """A query of the pipeline failed; says which and why."""


class JavaEnded(PipelineFailed):
    """Spark's Java process is not there any more."""

    def __init__(self) -> None:
        super().__init__(
            "the Java process of Spark has ended; the pipeline resumes where it stopped"
        )


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
    """The queries of a pipeline on a session, from `start` until `stop` or their end.

    `tell` is called with progress until the first batches report."""

    def __init__(
        self,
        pipeline: Pipeline,
        spark: "SparkSession",
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.pipeline = pipeline
        self.queries: dict[str, StreamingQuery] = {}
        self._spark = spark
        self._tell = tell
        self._stopping = threading.Event()
        self._rows: dict[str, RowsOut] = {}
        self._writers: dict[str, Any] = {}
        self._tables: list[TableSink] = []
        self._restarts_left = RESTARTS_MAX
        # The group that a query commits to; that of all queries under "".
        self._groups: dict[str, str] = {}

    def start(self) -> None:
        """Build the views and start every query; SpecError if Spark refuses what the file says."""
        try:
            with java_is_there():
                letters = self._build_views("")
                sinks = self.pipeline.sinks
                frames = {}
                for sink in sinks:
                    with self._in_file(f"sink {sink.name}"):
                        self._check_columns(sink)
                with_letters = letters if self.pipeline.dead_letters else {}
                # Queries that share a source have read it to different places.
                has_own_views = len(sinks) + len(with_letters) > 1 and self._has_commit_group()
                for sink in sinks:
                    if has_own_views:
                        self._build_views(sink.name)
                    frames[sink.name] = self._spark.table(sink.view)
                for sink in sinks:
                    with self._in_file(f"sink {sink.name}"):
                        self._start_sink(sink, frames[sink.name])
                for source in with_letters:
                    name = f"{DEAD_LETTERS}_{source}"
                    frame = (self._build_views(name) if has_own_views else letters)[source]
                    with self._in_file(f"dead letters of {source}"):
                        self._start_letters(name, source, frame)
        except BaseException:
            self.stop()
            raise

    @contextmanager
    def _in_file(self, where: str) -> Iterator[None]:
        """What Spark refuses is the file's fault, and is said with its place."""
        from pyspark.errors import AnalysisException, ParseException

        try:
            yield
        except (AnalysisException, ParseException) as error:
            raise SpecError(f"{self.pipeline.name}: {where}: {plain_text(error)}") from None

    # Views

    def _has_commit_group(self) -> bool:
        return any(
            name.lower() == COMMIT_GROUP
            for source in self.pipeline.sources
            for name in source.options
        )

    def _build_views(self, query: str) -> "dict[str, DataFrame]":
        """Make every view, for one query if it is named; what could not be decoded, by source."""
        letters: dict[str, DataFrame] = {}
        for source in self.pipeline.sources:
            with self._in_file(f"source {source.name}"):
                decoded = decode(self._read(source, query), source)
                self._view(source.name, decoded.events, source.watermark)
                if decoded.letters is not None:
                    letters[source.name] = decoded.letters
        for step in self.pipeline.steps:
            with self._in_file(f"step {step.name}"):
                self._view(step.name, self._spark.sql(step.sql), step.watermark)
        return letters

    def _read(self, source: Source, query: str) -> "DataFrame":
        if source.kind == "topic":
            options = {
                name: f"{value}-{query}" if query and name.lower() == COMMIT_GROUP else value
                for name, value in source.options.items()
            }
            if groups := [of for name, of in options.items() if name.lower() == COMMIT_GROUP]:
                self._groups[query] = groups[0]
            return self._spark.readStream.format("odradek").options(**options).load()
        reader: Any = self._spark.read if source.static else self._spark.readStream
        if source.kind == "table":
            from odradek.spark.tables.source import TableSource

            self._spark.dataSource.register(TableSource)
            reader = reader.format(TableSource.name())
        else:
            reader = reader.format(source.kind)
        if source.schema:
            reader = reader.schema(source.schema)
        frame: DataFrame = reader.options(**source.options).load(source.path)
        return frame

    def _view(self, name: str, frame: "DataFrame", watermark: Watermark | None) -> None:
        if watermark is not None:
            frame = frame.withWatermark(watermark.column, watermark.delay)
        frame.createOrReplaceTempView(name)

    def _check_columns(self, sink: Sink) -> None:
        """Before the first query starts, rather than in its first batch."""
        columns = self._spark.table(sink.view).columns
        named = [("partition_by", name) for name in sink.partition_by]
        named += [("merge_on", name) for name in sink.merge_on]
        if sink.key and "value" not in columns:
            named.append(("key", sink.key))
        for field, name in named:
            if name not in columns:
                raise SpecError(
                    f"{self.pipeline.name}: sink {sink.name}: {field}: there is no column {name}; "
                    f"there are {', '.join(columns)}"
                )

    # Queries

    def _start_sink(self, sink: Sink, frame: "DataFrame") -> None:
        identity: Future[str] = Future()
        land = {
            "table": self._to_table,
            "topic": self._to_topic,
            "console": self._to_console,
        }[sink.kind](sink, frame, identity)
        # A table takes what changed as an upsert and the whole as an overwrite.
        query = self._start(sink.name, self._batches(sink.name, frame, land).outputMode(sink.mode))
        identity.set_result(query.id)

    def _start_letters(self, name: str, source: str, frame: "DataFrame") -> None:
        of_source = next(one for one in self.pipeline.sources if one.name == source)
        options = {
            **of_source.connection,
            **self.pipeline.dead_letter_options,
            "topic": self.pipeline.dead_letters,
        }
        identity: Future[str] = Future()
        topic = self._topic(options, f"dead letters of {source}")

        def send(batch: "DataFrame", number: int) -> int:
            letters = as_letters(batch, self.pipeline.name)
            return topic.land(letters, number, identity.result())

        identity.set_result(self._start(name, self._batches(name, frame, send)).id)

    def _batches(self, name: str, frame: "DataFrame", land: "Land") -> Any:
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
        self._tell(f"{name}: starting, and waiting for its first batch")
        query: StreamingQuery = self._writers[name].start()
        self.queries[name] = query
        # One after the other: each starts Python processes, which Spark gives 10 s to come up.
        _wait_while(query, lambda status: status["message"].startswith(INITIALIZING))
        return query

    # Sinks: each takes a batch and says how many rows it was

    def _to_table(self, sink: Sink, frame: "DataFrame", identity: "Future[str]") -> "Land":
        table = TableSink(sink, self.pipeline)
        try:
            table.open(frame)
        except TableError as error:
            raise SpecError(f"{sink.where}: sink {sink.name}: {error}") from None
        self._tables.append(table)
        return lambda rows, number: table.land(rows, number, identity.result())

    def _to_topic(self, sink: Sink, frame: "DataFrame", identity: "Future[str]") -> "Land":
        clusters = [source.connection for source in self.pipeline.sources if source.bootstrap]
        options = {
            **(clusters[0] if clusters else {}),
            **sink.options,
            "topic": sink.topic,
        }
        topic = self._topic(options, f"{sink.where}: sink {sink.name}")
        return lambda rows, number: topic.land(
            as_records(rows, sink.key), number, identity.result()
        )

    def _topic(self, options: Mapping[str, str], where: str) -> TopicSink:
        try:
            return TopicSink(options)
        except OptionError as error:
            raise SpecError(f"{where}: {error}") from None

    def _to_console(self, sink: Sink, frame: "DataFrame", identity: "Future[str]") -> "Land":
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
        with java_is_there():
            is_going = self.is_active()
            for name, query in list(self.queries.items()):
                error = query.exception()
                if error is None or self._stopping.is_set():
                    continue
                if any(text in str(error) for text in TWO_DRIVERS):
                    raise PipelineFailed(
                        f"{name}: another driver runs this pipeline on the same checkpoint, "
                        f"{self.pipeline.checkpoint}; only one can, and this one stops"
                    )
                if NOT_UP not in str(error):
                    raise PipelineFailed(f"{name}: {plain_text(error)}")
                self._restart(name)
                is_going = True
        if not is_going and self.pipeline.trigger == AVAILABLE_NOW:
            while self._tables:
                self._tables.pop().tidy()
        return is_going

    def _restart(self, name: str) -> None:
        """Start a query again whose Python was too slow; PipelineFailed once it was too often."""
        from pyspark.errors import StreamingQueryException

        if not self._restarts_left:
            raise PipelineFailed(
                f"{name}: {TOO_SLOW}, nor did it after {RESTARTS_MAX} restarts; {FEWER_TASKS}"
            )
        self._restarts_left -= 1
        count = RESTARTS_MAX - self._restarts_left
        self._tell(
            f"{name}: {TOO_SLOW}; restart {count} of {RESTARTS_MAX}. If it recurs, {FEWER_TASKS}"
        )
        # Its failure is known before Spark lets another query have its name.
        with suppress(StreamingQueryException):
            self.queries[name].awaitTermination(int(SETTLE_TIMEOUT_S))
        self._begin(name)

    def wait(self) -> None:
        """Until every query has come to its end."""
        pause = threading.Event()
        while self.goes_on():
            pause.wait(POLL_S)

    def stop(self) -> None:
        """Let batches that have begun end, begin no other, and stop."""
        self._stopping.set()
        try:
            with java_is_there():
                for query in self.queries.values():
                    _wait_while(query, lambda status: status["isTriggerActive"])
                    query.stop()
        except JavaEnded:
            pass  # and its queries with it

    def group_of(self, name: str) -> str | None:
        """The consumer group that a query commits to, if its source has one."""
        return self._groups.get(name, self._groups.get(""))

    def rows_out(self, name: str) -> RowsOut:
        """What the sink of a query has taken in this run."""
        return self._rows.get(name) or RowsOut()


@contextmanager
def java_is_there() -> Iterator[None]:
    """JavaEnded in place of the many things that are raised when Java was killed; PipelineFailed in
    place of what Java itself raises."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors.exceptions.captured import CapturedException

    try:
        yield
    except (Py4JJavaError, CapturedException) as error:
        raise PipelineFailed(plain_text(error)) from error
    except (Py4JError, ConnectionError) as error:
        raise JavaEnded from error


def _wait_while(query: "StreamingQuery", holds: Callable[[Mapping[str, Any]], bool]) -> None:
    waited_s = 0.0
    pause = threading.Event()
    while waited_s < SETTLE_TIMEOUT_S and query.isActive and holds(query.status):
        pause.wait(POLL_S)
        waited_s += POLL_S


def as_records(rows: "DataFrame", key: str) -> "DataFrame":
    """Rows for a topic: those with a column `value` as they are, others as JSON."""
    from pyspark.sql.functions import col, struct, to_json

    if "value" in rows.columns:
        return rows
    value = to_json(struct(*(col(f"`{name}`") for name in rows.columns))).alias("value")
    columns = [col(key).cast("string").alias("key"), value] if key else [value]
    return rows.select(*columns)


def plain_text(error: Exception) -> str:
    """What went wrong, in one line, without what Spark wraps around it."""
    text = str(error).split(PLAN)[0]
    ours = OURS.search(text)
    if ours:
        return ours[1].strip()
    causes = CAUSE.findall(text) if TRACEBACK in text else []
    cause: str = causes[-1] if causes else text.split("\n\n")[0].split("\nJVM stacktrace")[0]
    if IN_JAVA in cause:
        reasons = [found[1] for reason in JAVA_REASONS if (found := reason.search(text))]
        cause = reasons[0] if reasons else cause
    return " ".join(cause.split())
