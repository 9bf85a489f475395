"""Rows per second through Spark: batch read, stream with AvailableNow, sink.

Each beside its ceiling: the same rows made in memory as Arrow batches by a source that does nothing
else, and for the sink thrown away. ODRADEK_BENCH_SCALE divides the numbers of rows, for a quick
look. Once `make peers` has brought Spark's own connector, the same topics are read and written by
that too, in the same session.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

from odradek.client.blocking import Blocking
from odradek.client.values import NewTopic, check
from odradek.cluster import Cluster
from odradek.spark.source import COLUMNS

SCALE = int(os.environ.get("ODRADEK_BENCH_SCALE", "1"))
READ_ROWS = 10_000_000 // SCALE
WRITE_ROWS = 5_000_000 // SCALE
VALUE_BYTES = 100
PARTITIONS = 4
ROUNDS = 3
CONNECTOR = Path(__file__).parent.parent / "peers" / "lib" / "spark-kafka"
CEILING_ROWS = 40_000


class Ceiling(DataSource):
    """Rows of the same shape from memory, and a sink that forgets them."""

    @classmethod
    def name(cls) -> str:
        return "ceiling"

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: Any) -> DataSourceReader:
        return CeilingReader()

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        return CeilingWriter()


class CeilingReader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
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


class CeilingWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


def seconds(job: Callable[[], Any]) -> float:
    """The median of a few runs, after one that warms up."""
    job()
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        job()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def report(name: str, rows: int, took: float, ceiling: float | None = None) -> None:
    share = f", {ceiling / took:4.0%} of the ceiling" if ceiling else ""
    print(f"  {name:32s} {rows / took / 1e6:6.2f} M rows/s{share}", flush=True)


def consume(frame: Any) -> None:
    """Make Spark read every column and keep nothing."""
    frame.write.format("noop").mode("overwrite").save()


def measure_reads(spark: Any, options: dict[str, str], formats: list[str]) -> None:
    ceiling = seconds(lambda: consume(spark.read.format("ceiling").load()))
    report("ceiling of a read", READ_ROWS, ceiling)
    given = {**options, "subscribe": "bench"}
    for name in formats:
        reader = spark.read.format(name).options(**given)
        report(f"read, {name}", READ_ROWS, seconds(lambda: consume(reader.load())), ceiling)  # noqa: B023
    given["startingOffsets"] = "earliest"
    for name in formats:
        stream = spark.readStream.format(name).options(**given).load()

        def run() -> None:
            with tempfile.TemporaryDirectory() as checkpoint:
                writer = stream.writeStream.format("noop").trigger(availableNow=True)  # noqa: B023
                writer.option("checkpointLocation", checkpoint).start().awaitTermination()

        report(f"stream, {name}", READ_ROWS, seconds(run), ceiling)


def measure_writes(spark: Any, options: dict[str, str], formats: list[str]) -> None:
    rows = spark.range(0, WRITE_ROWS, 1, PARTITIONS).selectExpr(
        f"cast(rpad(cast(id AS string), {VALUE_BYTES}, 'x') AS binary) AS value"
    )
    ceiling = seconds(lambda: rows.write.format("ceiling").mode("append").save())
    report("ceiling of a write", WRITE_ROWS, ceiling)
    for name in formats:
        writer = rows.write.format(name).options(**options, topic="written").mode("append")
        report(f"write, {name}", WRITE_ROWS, seconds(writer.save), ceiling)


def fill(spark: Any, options: dict[str, str]) -> None:
    rows = spark.range(0, READ_ROWS, 1, PARTITIONS).selectExpr(
        f"cast(rpad(cast(id AS string), {VALUE_BYTES}, 'x') AS binary) AS value",
        f"cast(id % {PARTITIONS} AS int) AS partition",
    )
    rows.write.format("odradek").options(**options, topic="bench").mode("append").save()


def main() -> None:
    from odradek.spark.session import open_session

    jars = ",".join(str(jar) for jar in sorted(CONNECTOR.glob("*.jar")))
    settings = {"spark.driver.memory": "2g", **({"spark.jars": jars} if jars else {})}
    spark = open_session("benchmark", "local[2]", settings)
    spark.dataSource.register(Ceiling)
    formats = ["odradek", "kafka"] if jars else ["odradek"]
    print(f"Spark, values of {VALUE_BYTES} bytes, {PARTITIONS} partitions, local[2]")
    if not jars:
        print("  Spark's own connector is not here (`make peers` brings it): not compared")
    with tempfile.TemporaryDirectory() as home, Cluster(1, data_dir=Path(home)) as cluster:
        options = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
        with Blocking(cluster.bootstrap_servers) as client:
            topics = [NewTopic(name, PARTITIONS, 1) for name in ("bench", "written")]
            check(client.run(client.admin.create_topics(topics)))
        fill(spark, options)
        measure_reads(spark, options, formats)
        measure_writes(spark, options, formats)
    spark.stop()


if __name__ == "__main__":
    main()
