"""The load model in one process, as Spark jobs and as a stream: the same tables."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests.balance.frames import TICKS_PER_WINDOW, Row, frame

from odradek.balance.frames import decode_frames
from odradek.balance.load import REPLICA_LOAD, load_table
from odradek.balance.pipeline import pipeline_text
from odradek.balance.windows import (
    BROKER_WINDOWS,
    PARTITION_WINDOWS,
    broker_windows,
    partition_windows,
)
from odradek.spark.load_jobs import load_job, windows_jobs
from odradek.spark.pipeline.runner import Run
from odradek.spark.pipeline.spec import load
from odradek.wire.telemetry import IN_SYNC, BrokerLoad

pytestmark = pytest.mark.spark

BROKERS = [("window_ms", "ascending"), ("broker", "ascending")]
PARTITIONS = [*BROKERS, *((name, "ascending") for name in ("topic", "partition", "leads"))]


def values() -> list[tuple[bytes, bytes]]:
    """Three brokers, four topics, four windows; keys and values, with a repetition and rubbish."""
    found = []
    for tick in range(4 * TICKS_PER_WINDOW):
        for broker in (1, 2, 3):
            rows = {}
            for number in range(4):
                leader = (number + tick // 30) % 3 + 1
                size = 1_000 * number + tick
                amount = 100 * (number + 1) * (1 + tick % 7)
                leads = Row(amount, 2 * amount, amount, amount // 10, 3, size, tick)
                rows[f"topic-{number}", number] = (
                    leads if leader == broker else Row(size=size, role=IN_SYNC)
                )
            load = BrokerLoad(4.0, 1.0 + broker, 0.5, 0.3, 0.1, 0.1 + broker)
            found.append((broker.to_bytes(4, "big"), frame(broker, tick, rows, load)))
    return [*found, found[7], (b"\0\0\0\1", b"rubbish")]


def close(one: pa.Table, other: pa.Table) -> None:
    """Equal, but for the last digits of sums of fractions, which Spark may add in another order."""
    assert one.num_rows == other.num_rows
    for ours, theirs in zip(one.to_pylist(), other.to_pylist(), strict=True):
        exact = {name: value for name, value in ours.items() if not isinstance(value, float)}
        assert exact == {name: theirs[name] for name in exact}
        for name in ours.keys() - exact.keys():
            assert ours[name] == pytest.approx(theirs[name])


@pytest.fixture
def few_tasks(spark: Any) -> Iterator[None]:
    """A shuffle into hundreds would take most of the time."""
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    spark.conf.set(name, "2")
    yield
    spark.conf.set(name, before)


@pytest.mark.usefixtures("few_tasks")
def test_one_process_batch_and_stream_make_the_same_tables(
    spark: Any, cluster: Any, tmp_path: Path
) -> None:
    records = values()
    decoded = decode_frames(value for _, value in records)
    expected = partition_windows(decoded).sort_by(PARTITIONS)
    expected_brokers = broker_windows(decoded)
    frames = spark.createDataFrame(records, "key binary, value binary").repartition(2)
    partitions, brokers = (job.cache() for job in windows_jobs(frames))
    assert partitions.toArrow().cast(PARTITION_WINDOWS).sort_by(PARTITIONS).equals(expected)
    close(brokers.toArrow().cast(BROKER_WINDOWS).sort_by(BROKERS), expected_brokers)

    model, in_process = load_job(partitions, brokers), load_table(decoded)
    assert model.replicas.schema == REPLICA_LOAD and model.replicas.num_rows == 12
    close(model.replicas, in_process.replicas)
    close(model.brokers, in_process.brokers)
    assert model.as_of_ms == in_process.as_of_ms
    assert model.coverage == in_process.coverage == 1

    # A frame an hour later says that the windows before it are over.
    topic = cluster.create()
    late = frame(9, 300, {("late", 0): Row()})
    cluster.produce(topic, [*(value for _, value in records), late])
    text = pipeline_text(cluster.bootstrap, topic, str(tmp_path))
    file = tmp_path / "load.toml"
    file.write_text(text.replace('"1 minute"', '"available-now"'))
    run = Run(load(file), spark)
    run.start()
    run.wait()
    landed = DeltaTable(tmp_path / "partition_windows").to_pyarrow_table()
    landed = landed.select(PARTITION_WINDOWS.names).cast(PARTITION_WINDOWS)
    assert landed.sort_by(PARTITIONS).equals(expected)
    landed = DeltaTable(tmp_path / "broker_windows").to_pyarrow_table()
    landed = landed.select(BROKER_WINDOWS.names).cast(BROKER_WINDOWS)
    close(landed.sort_by(BROKERS), expected_brokers)
