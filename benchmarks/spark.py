"""Rows per second through Spark: batch read, stream with AvailableNow, sink.

Each beside its ceiling: the same rows made in memory as Arrow batches by a source that does nothing
else, and for the sink thrown away. Once `make peers` has brought Spark's own connector, the same
topics are read and written by that too, in the same session. They take turns, and each figure is
the median of its rounds. Processor time, of Spark, its workers and the broker together, is shown as
well: it changes little when the machine has other things to do.

ODRADEK_BENCH_SCALE divides the numbers of rows, for a quick look.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from odradek.client.blocking_client import Blocking
from odradek.client.values import NewTopic, check
from odradek.spark.source import COLUMNS
from odradek.testing.cluster import Cluster

SCALE = int(os.environ.get("ODRADEK_BENCH_SCALE", "1"))
READ_ROWS = 10_000_000 // SCALE
WRITE_ROWS = 5_000_000 // SCALE
VALUE_BYTES = 100
PARTITIONS = 4
ROUNDS = 3
# As many as a batch of ours has.
CEILING_ROWS = 20_000

OURS, THEIRS, CEILING = "odradek", "kafka", "ceiling"
INTEROP = Path(__file__).parent.parent / "tests" / "interop"
CONNECTOR = INTEROP / "harness" / "lib" / "spark-kafka"
# What is to be reached: a share of the ceiling, and so many times the connector.
TARGETS = {"read": (0.5, 1.5), "stream": (0.5, 1.5), "write": (None, 1.2)}


class Ceiling(DataSource):
    """Rows of the same shape from memory, and a sink that forgets them."""

    @classmethod
    def name(cls) -> str:
        return CEILING

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: Any) -> DataSourceReader:
        return CeilingReader()

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return CeilingStream()

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        return CeilingWriter()


def partitions() -> list[InputPartition]:
    return [InputPartition(number) for number in range(PARTITIONS)]


def rows_in_memory() -> Iterator[pa.RecordBatch]:
    from odradek.spark.decode import SCHEMA, TIMESTAMP

    count = CEILING_ROWS
    rows = pa.RecordBatch.from_arrays(
        [
            pa.nulls(count, pa.binary()),
            pa.array([b"x" * VALUE_BYTES] * count, pa.binary()),
            pa.repeat(pa.scalar("bench"), count),
            pa.repeat(pa.scalar(0, pa.int32()), count),
            pa.array(range(count), pa.int64()),
            pa.array([1_700_000_000_000_000] * count, TIMESTAMP),
            pa.repeat(pa.scalar(0, pa.int32()), count),
        ],
        schema=SCHEMA,
    )
    for _ in range(READ_ROWS // PARTITIONS // count):
        yield rows


class CeilingReader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return rows_in_memory()


class CeilingStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """All rows are one batch."""

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        pass

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"batch": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        return {"batch": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return rows_in_memory()


class CeilingWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class Run(NamedTuple):
    """What one run of a job took."""

    seconds: float
    processor_seconds: float


def processor_seconds() -> float:
    """What this process and all below it have used so far, those that have ended included."""
    ticks = 0
    waiting = [os.getpid()]
    while waiting:
        process = Path("/proc") / str(waiting.pop())
        try:
            ticks += sum(map(int, (process / "stat").read_text().rpartition(")")[2].split()[11:15]))
            for task in (process / "task").iterdir():
                waiting += map(int, (task / "children").read_text().split())
        except OSError:
            continue  # it has ended meanwhile, or this is not Linux
    return ticks / os.sysconf("SC_CLK_TCK")


def timed(job: Callable[[], Any]) -> Run:
    processor, began = processor_seconds(), time.perf_counter()
    job()
    return Run(time.perf_counter() - began, processor_seconds() - processor)


def in_turns(what: str, jobs: Mapping[str, Callable[[], Any]]) -> dict[str, Run]:
    """The median of each job's rounds, after one that warms up."""
    rounds: dict[str, list[Run]] = {name: [] for name in jobs}
    for number in range(ROUNDS + 1):
        for name, job in jobs.items():
            run = timed(job)
            print(f"    {what} {number} of {ROUNDS}, {name}: {run.seconds:.1f} s", flush=True)
            if number:
                rounds[name].append(run)
    return {
        name: Run(*(statistics.median(column) for column in zip(*runs, strict=True)))
        for name, runs in rounds.items()
    }


def report(what: str, rows: int, runs: Mapping[str, Run]) -> None:
    for name, run in runs.items():
        share = runs[CEILING].seconds / run.seconds
        print(
            f"  {what + ', ' + name:24s}{rows / run.seconds / 1e6:6.2f} M rows/s "
            f"{run.processor_seconds / rows * 1e6:6.2f} processor s/M rows"
            + (f"{share:6.0%} of the ceiling" if name != CEILING else "")
        )
    ours, (of_ceiling, of_theirs) = runs[OURS].seconds, TARGETS[what]
    ratios = []
    if of_ceiling is not None:
        share = runs[CEILING].seconds / ours
        ratios.append(
            f"{share:.0%} of the ceiling (target {of_ceiling:.0%}: {_met(share, of_ceiling)})"
        )
    if THEIRS in runs:
        times = runs[THEIRS].seconds / ours
        ratios.append(f"{times:.2f} x the connector (target {of_theirs}: {_met(times, of_theirs)})")
    if ratios:
        print(f"  {what}: {', '.join(ratios)}", flush=True)


def _met(value: float, target: float) -> str:
    return "met" if value >= target else "not met"


def consume(frame: Any) -> None:
    """Make Spark read every column and keep nothing."""
    frame.write.format("noop").mode("overwrite").save()


def read_job(spark: Any, name: str, options: dict[str, str]) -> Callable[[], None]:
    reader = spark.read.format(name).options(**options)
    return lambda: consume(reader.load())


def stream_job(spark: Any, name: str, options: dict[str, str]) -> Callable[[], None]:
    stream = spark.readStream.format(name).options(**options).load()

    def run() -> None:
        with tempfile.TemporaryDirectory() as checkpoint:
            writer = stream.writeStream.format("noop").trigger(availableNow=True)
            writer.option("checkpointLocation", checkpoint).start().awaitTermination()

    return run


def write_job(rows: Any, name: str, options: dict[str, str]) -> Callable[[], None]:
    writer = rows.write.format(name).options(**options).mode("append")
    return lambda: writer.save()


def values(spark: Any, count: int) -> Any:
    return spark.range(0, count, 1, PARTITIONS).selectExpr(
        f"cast(rpad(cast(id AS string), {VALUE_BYTES}, 'x') AS binary) AS value",
        f"cast(id % {PARTITIONS} AS int) AS partition",
    )


def measure(spark: Any, options: dict[str, str], formats: list[str]) -> None:
    print(f"  filling a topic with {READ_ROWS:,} records", flush=True)
    write_job(values(spark, READ_ROWS), OURS, {**options, "topic": "bench"})()
    given = {**options, "subscribe": "bench", "startingOffsets": "earliest"}
    named = {CEILING: {}, OURS: given, THEIRS: given}
    jobs = {name: read_job(spark, name, named[name]) for name in formats}
    report("read", READ_ROWS, in_turns("read", jobs))
    jobs = {name: stream_job(spark, name, named[name]) for name in formats}
    report("stream", READ_ROWS, in_turns("stream", jobs))
    rows = values(spark, WRITE_ROWS).select("value")
    target = {**options, "topic": "written"}
    jobs = {name: write_job(rows, name, {} if name == CEILING else target) for name in formats}
    report("write", WRITE_ROWS, in_turns("write", jobs))


def main() -> None:
    import pyspark

    from odradek.spark.session import open_session

    jars = sorted(CONNECTOR.glob("*.jar"))
    settings = {"spark.driver.memory": "2g"}
    if jars:
        settings["spark.jars"] = ",".join(map(str, jars))
    spark = open_session("benchmark", "local[2]", settings)
    spark.dataSource.register(Ceiling)
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    print(
        f"Spark {pyspark.__version__}, local[2], one broker, {PARTITIONS} partitions, values of "
        f"{VALUE_BYTES} bytes; medians of {ROUNDS}; load of the machine before: {load}"
    )
    if jars:
        names = ", ".join(jar.stem for jar in jars if "kafka" in jar.stem)
        print(f"  Spark's own connector beside it: {names}")
    else:
        print("  Spark's own connector is not here (`make peers` brings it): not compared")
    formats = [CEILING, OURS, THEIRS] if jars else [CEILING, OURS]
    with tempfile.TemporaryDirectory() as home, Cluster(1, data_dir=Path(home)) as cluster:
        options = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
        with Blocking(cluster.bootstrap_servers) as client:
            topics = [NewTopic(name, PARTITIONS, 1) for name in ("bench", "written")]
            check(client.run(client.admin.create_topics(topics)))
        measure(spark, options, formats)
    spark.stop()


if __name__ == "__main__":
    main()
