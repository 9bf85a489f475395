"""The load model from a day of windows: in one process, and as Spark jobs on `local[2]`.

20,000 replicas by default; REPLICAS=100000 asks for as many, and for some 6 GB of memory.
"""

import os
import resource
import tempfile
import time
from array import array

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from odradek.balance.cpu import served_by_brokers
from odradek.balance.load import peaks, replica_load
from odradek.balance.windows import BROKER_WINDOWS, PARTITION_WINDOWS, WINDOW_MS
from odradek.wire.telemetry import BrokerLoad, Frame, encode_frame, new_columns

REPLICAS = int(os.environ.get("REPLICAS", "20000"))
FACTOR = 2
BROKERS = 100
WINDOWS = 288
PARTITIONS_PER_TOPIC = 50


def windows(rng: np.random.Generator) -> pa.Table:
    partitions = REPLICAS // FACTOR
    one = np.arange(partitions).repeat(FACTOR)
    leads = np.tile(np.arange(FACTOR) == 0, partitions)
    brokers = (one * 7 + np.tile(np.arange(FACTOR), partitions) * 13) % BROKERS
    topics = pa.array(
        [f"topic-{number}" for number in range(partitions // PARTITIONS_PER_TOPIC + 1)]
    )
    rows = len(one) * WINDOWS
    bytes_in = (rng.lognormal(8, 2, rows) * np.tile(leads, WINDOWS)).astype(np.int64)
    columns = {
        "window_ms": np.arange(WINDOWS).repeat(len(one)) * WINDOW_MS,
        "topic": topics.take(pa.array(np.tile(one // PARTITIONS_PER_TOPIC, WINDOWS))),
        "partition": np.tile(one % PARTITIONS_PER_TOPIC, WINDOWS),
        "broker": np.tile(brokers, WINDOWS),
        "leads": np.tile(leads, WINDOWS),
        "is_estimated": np.zeros(rows, bool),
        "bytes_in": bytes_in,
        "bytes_out": 2 * bytes_in,
        "follower_out": bytes_in,
        "messages": bytes_in // 100,
        "requests": bytes_in // 10_000,
        "role": np.where(np.tile(leads, WINDOWS), 3, 2),
        "directory": pa.nulls(rows, pa.string()),
        "size": np.full(rows, 1 << 30),
        "log_end": np.zeros(rows, np.int64),
        "last_ms": (np.arange(WINDOWS).repeat(len(one)) + 1) * WINDOW_MS,
    }
    return pa.table(
        [pa.array(columns[field.name]).cast(field.type) for field in PARTITION_WINDOWS],
        PARTITION_WINDOWS,
    )


def broker_windows() -> pa.Table:
    rows = [
        {
            **dict.fromkeys(BROKER_WINDOWS.names, 0),
            "window_ms": window * WINDOW_MS,
            "broker": broker,
            "is_estimated": False,
            "seconds": 300.0,
            "cpu_s": 100.0,
            "cores": 4.0,
            "failed_directories": [],
            "last_ms": (window + 1) * WINDOW_MS,
        }
        for window in range(WINDOWS)
        for broker in range(BROKERS)
    ]
    return pa.Table.from_pylist(rows, BROKER_WINDOWS)


def frames() -> list[tuple[bytes, bytes]]:
    """Keys and values of an hour of ten brokers with 1,000 partitions each."""
    found = []
    for broker in range(10):
        columns = new_columns()
        for name, column in columns.items():
            column.extend(range(1_000) if name == "partition" else [1] * 1_000)
        columns["topic"] = array("i", [0] * 1_000)
        for tick in range(240):
            spans = tick * 15_000, (tick + 1) * 15_000
            frame = Frame(broker, 1, tick, *spans, BrokerLoad(4.0, 1.0), (), ("t",), columns)
            found.append((broker.to_bytes(4, "big"), encode_frame(frame)))
    return found


def in_one_process(partitions: pa.Table, brokers: pa.Table) -> None:
    begin = time.perf_counter()
    found = peaks(served_by_brokers(partitions), brokers)
    made = replica_load(partitions, found)
    seconds = time.perf_counter() - begin
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    assert made.num_rows == REPLICAS
    print(
        f"load model, 24 h, {REPLICAS:,} replicas, one process: {seconds:6.1f} s,"
        f" peak {peak_mb:,.0f} MB with its input",
        flush=True,
    )


def on_spark(partitions: pa.Table, brokers: pa.Table) -> None:
    from odradek.spark.load_jobs import load_job, windows_jobs
    from odradek.spark.session import open_session

    spark = open_session("load", "local[2]", {"spark.driver.memory": "10g"})
    records = spark.createDataFrame(frames(), "key binary, value binary")
    begin = time.perf_counter()
    rows = windows_jobs(records)[0].count()
    seconds = time.perf_counter() - begin
    print(f"windows, 2.4 million rows of frames into {rows:,}, Spark local[2]: {seconds:6.1f} s")
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as directory:
        for name, table in (("partitions", partitions), ("brokers", brokers)):
            pq.write_table(table, f"{directory}/{name}.parquet", row_group_size=1 << 18)
        begin = time.perf_counter()
        model = load_job(
            spark.read.parquet(f"{directory}/partitions.parquet"),
            spark.read.parquet(f"{directory}/brokers.parquet"),
        )
        seconds = time.perf_counter() - begin
    assert model.replicas.num_rows == REPLICAS
    print(f"load model, 24 h, {REPLICAS:,} replicas, Spark local[2]: {seconds:6.1f} s")
    spark.stop()


def main() -> None:
    partitions, brokers = windows(np.random.default_rng(1)), broker_windows()
    in_one_process(partitions, brokers)
    on_spark(partitions, brokers)


if __name__ == "__main__":
    main()
