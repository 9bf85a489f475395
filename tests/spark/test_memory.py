"""What Spark's Python workers take at most, whatever the size of what they read or write."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="asks Linux for the memory"),
]

WORKER_MB_MAX = 300
ROWS_AT_A_TIME = "spark.sql.execution.arrow.maxRecordsPerBatch"


@pytest.fixture(scope="module")
def spark(sessions: Any) -> Iterator[Any]:
    """With workers that have done nothing else."""
    sessions.close()
    session = sessions.on("local[2]")
    yield session
    session.conf.unset(ROWS_AT_A_TIME)


def children(process: int) -> Iterator[int]:
    """All processes below a process that have not ended meanwhile."""
    try:
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                yield child
                yield from children(child)
    except OSError:
        return


def workers_peak_mb() -> int:
    """The most that any of Spark's Python workers, which outlive their tasks, has ever had."""
    peaks = []
    for process in map(str, children(os.getpid())):
        try:
            if "pyspark.daemon" in Path("/proc", process, "cmdline").read_text():
                status = Path("/proc", process, "status").read_text().splitlines()
                fields = dict(line.split(":", 1) for line in status)
                peaks.append(int(fields["VmHWM"].split()[0]) // 1024)
        except OSError:
            pass  # one that has ended
    assert len(peaks) > 2, "a daemon and two workers"
    return max(peaks)


@pytest.mark.parametrize(
    ("codec", "value_bytes", "megabytes"), [("none", 100, 200), ("zstd", 10_000, 800)]
)
def test_a_worker_stays_small(
    spark: Any, cluster: Any, codec: str, value_bytes: int, megabytes: int
) -> None:
    topic = cluster.create(copies=1)
    count = megabytes * 1_000_000 // value_bytes
    rows = spark.range(0, count, 1, 2).selectExpr(
        f"rpad(cast(id AS string), {value_bytes}, 'odradek ') AS value"
    )
    given = cluster.options(topic=topic, kafka__compression__type=codec)
    # Spark hands over so many rows at a time, 10,000 by default, whatever their size.
    spark.conf.set(ROWS_AT_A_TIME, min(10_000, 4_000_000 // value_bytes))
    rows.write.format("odradek").options(**given).mode("append").save()
    assert workers_peak_mb() < WORKER_MB_MAX
    read = spark.read.format("odradek").options(**cluster.options(subscribe=topic)).load()
    assert read.selectExpr("count(value)", "sum(length(value))").collect() == [
        (count, count * value_bytes)
    ]
    assert workers_peak_mb() < WORKER_MB_MAX
