"""The format and a pipeline on a real Spark cluster, whose executors are processes of their own.

`tests/interop/test_spark.py` runs the tests of the format against Apache Kafka.
"""

import json
import os
import signal
import site
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.pipeline.files import command, event, landed, pipeline_file, records
from tests.spark.test_spark import (  # noqa: F401
    raw,
    test_a_stream_is_exactly_once_although_all_who_write_it_die,
    test_what_is_written_is_what_is_read,
)

from odradek.spark.pipeline.reports import TOPIC

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def spark(sessions: Any, spark_cluster: Any) -> Any:
    return sessions.on(spark_cluster.address)


@pytest.fixture(scope="module", autouse=True)
def no_session_outlives_the_cluster(sessions: Any, spark_cluster: Any) -> Iterator[None]:
    yield
    sessions.close()


class Hold:
    """Lets the rows of a job wait in its tasks while something is done to the cluster."""

    def __init__(self, directory: Path) -> None:
        self.reached = directory / "reached"
        self.over = directory / "over"

    def after(self, batches: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        """For mapInArrow: everything as it is, but so many batches of a task go first."""
        reached, over = self.reached, self.over

        def wait(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number, batch in enumerate(rows):
                if number == batches:
                    reached.touch()
                    deadline = time.monotonic() + 60
                    while not over.exists() and time.monotonic() < deadline:
                        time.sleep(0.01)
                yield batch

        return wait

    def during(self, cluster: Any, job: Callable[[], Any], do: Callable[[], object]) -> Any:
        """The result of `job`, in the middle of which `do` was done."""

        def meanwhile() -> None:
            cluster.wait_until(self.reached.exists, "the first rows")
            do()
            self.over.touch()

        # The job stays on this thread: Spark finds Python's sources only where its session is.
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(meanwhile)
            result = job()
            done.result()
        return result


def test_a_leader_dies_while_a_batch_is_read(spark: Any, cluster: Any, tmp_path: Path) -> None:
    topic = cluster.create(partitions=2)
    # More than all the buffers between a broker and the last worker can take.
    rows = [b"%d" % i * 600 for i in range(1000, 10_000)]
    for partition in range(2):
        cluster.fill(topic, rows, partition, kafka__batch__size=50_000)
    given = cluster.options(subscribe=topic, kafka__fetch__max__bytes=100_000)
    read = (
        spark.read.format("odradek").options(**given).load().select("partition", "offset", "value")
    )
    hold = Hold(tmp_path)
    frame = read.mapInArrow(hold.after(0), read.schema).selectExpr(
        "partition", "offset", "value = repeat(cast(1000 + offset AS string), 600) AS is_right"
    )
    victim = cluster.leader(topic)
    try:
        found = hold.during(cluster, frame.collect, lambda: cluster.brokers.kill(victim))
    finally:
        cluster.revive(victim)
    assert all(row.is_right for row in found)
    assert sorted((row.partition, row.offset) for row in found) == [
        (partition, offset) for partition in range(2) for offset in range(len(rows))
    ]


def test_a_leader_dies_while_rows_are_written(spark: Any, cluster: Any, tmp_path: Path) -> None:
    topic = cluster.create()
    hold = Hold(tmp_path)
    rows = spark.range(0, 60_000, 1, 2).selectExpr("repeat(cast(id AS string), 100) AS value")
    # Spark makes batches of 10,000 rows; the first of each task, some 5 MB, is on its way.
    held = rows.mapInArrow(hold.after(1), rows.schema)
    writer = held.write.format("odradek").options(**cluster.options(topic=topic)).mode("append")
    victim = cluster.leader(topic)
    try:
        hold.during(cluster, writer.save, lambda: cluster.brokers.kill(victim))
    finally:
        cluster.revive(victim)
    read = spark.read.format("odradek").options(**cluster.options(subscribe=topic)).load()
    found = read.selectExpr("cast(value AS string) AS value").collect()
    assert sorted(row.value for row in found) == sorted(str(i) * 100 for i in range(60_000))


def test_a_batch_write_is_exactly_once(spark: Any, cluster: Any) -> None:
    topic = cluster.create()
    rows = spark.sql("SELECT cast(id AS string) AS value FROM range(0, 10, 1, 3)")

    def write(frame: Any, **more: object) -> None:
        given = cluster.options(topic=topic, exactlyOnce="true", **more)
        frame.write.format("odradek").options(**given).mode("append").save()

    for _ in range(2):
        write(rows, txnAppId=topic, txnVersion=20260101)
    assert sorted(cluster.read_committed(topic)) == raw(0, 10)
    fewer = rows.where("value < 4").coalesce(2)
    with pytest.raises(Exception, match=r"task \d of batch 20260101 of odradek\..* are committed"):
        write(fewer, txnAppId=topic, txnVersion=20260101)
    write(rows.where("value = 4"), txnAppId=topic, txnVersion=20260102)
    # Without a name, two writes are two writes.
    for _ in range(2):
        write(rows.where("value = 5"))
    assert sorted(cluster.read_committed(topic)) == sorted([*raw(0, 10), b"4", b"5", b"5"])


MORE = """
[[step]]
name = "counts"
sql = '''
SELECT date_format(window(at, '1 minute').start, 'HH:mm') AS minute, count(*) AS clicks
FROM clicks GROUP BY window(at, '1 minute')
'''

[[sink]]
from = "counts"
kind = "topic"
topic = "{counts}"
mode = "update"
key = "minute"

[dead_letters]
topic = "{dead}"
"""


# Only the driver commits to tables.
LEFT_OUT = ("odradek", "pyspark_odradek", "__editable__", "deltalake")


def python_without_odradek(where: Path) -> Path:
    """A Python with everything that is installed here, except this package and `deltalake`."""
    packages = where / "packages"
    packages.mkdir()
    for directory in site.getsitepackages():
        for entry in Path(directory).iterdir():
            if not entry.name.startswith(LEFT_OUT) and entry.suffix != ".pth":
                (packages / entry.name).symlink_to(entry)
    python = where / "python"
    path = f'PYTHONPATH="{packages}${{PYTHONPATH:+:$PYTHONPATH}}"'
    python.write_text(f'#!/bin/sh\n{path} exec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    return python


def test_stopped_here_and_gone_on_with_on_a_cluster_without_this_package(
    cluster: Any, spark_cluster: Any, sessions: Any, tmp_path: Path
) -> None:
    sessions.close()  # which would have all of the cluster
    topic, counts, dead = cluster.create(partitions=4), cluster.create(), cluster.create()
    cluster.produce(topic, [*map(event, range(40)), b"{nonsense"])
    more = MORE.format(counts=counts, dead=dead)
    options = f'maxOffsetsPerTrigger = 600, commitGroup = "{topic}"'
    file = pipeline_file(tmp_path, cluster, topic, more, options)
    file.write_text(file.read_text().replace("available-now", "1 seconds"))
    _run_until_ctrl_c(file)
    assert landed(tmp_path) == list(range(40))
    # Each query has a group of its own: they have read to different places.
    for query in ("events", "counts", "dead_letters_clicks"):
        assert cluster.committed(f"{topic}-{query}")
    check_reports(cluster, topic, dead)
    for partition in range(4):
        cluster.produce(topic, [event(n) for n in range(40 + partition, 1000, 4)], partition)
    cluster.produce(topic, [b'{"number": "x"}'])
    before = spark_cluster.executors()
    said = _run_once(file, spark_cluster.address, python_without_odradek(tmp_path))
    assert "1 dead letters in this run" in said
    assert len(spark_cluster.executors() - before) == 2
    assert landed(tmp_path) == list(range(1000))
    letters = records(cluster, dead)
    assert [letter.value for letter in letters] == [b"{nonsense", b'{"number": "x"}']
    headers = dict(letters[1].headers)
    assert headers["odradek.reason"] == b'field number is "x", not int'
    assert headers["odradek.offset"] == b"281"
    last = {record.key: json.loads(record.value or b"") for record in records(cluster, counts)}
    assert {minute: row["clicks"] for minute, row in last.items()} == {
        b"00:%02d" % minute: 250 for minute in range(4)
    }
    compacted = subprocess.run(
        command("compact", "--min-files", 2, file), capture_output=True, text=True
    )
    assert compacted.stdout.startswith("events: ")
    assert landed(tmp_path) == list(range(1000))


def check_reports(cluster: Any, topic: str, dead: str) -> None:
    """What was written for those who look at the cluster: every batch, and that it has ended."""
    reported = [(record.key, json.loads(record.value or b"")) for record in records(cluster, TOPIC)]
    mine = [(key, report) for key, report in reported if (report["group"] or "").startswith(topic)]
    last = dict(mine)
    assert last.keys() == {b"clicks/events", b"clicks/counts", b"clicks/dead_letters_clicks"}
    assert not any(report["is_active"] for report in last.values())
    events = {report["batch"]: report for key, report in mine if key == b"clicks/events"}
    assert sum(report["rows_in"] for report in events.values()) == 41
    assert sum(report["rows_out"] for report in events.values()) == 40
    assert last[b"clicks/events"]["dead_letters"] == 1
    assert last[b"clicks/events"]["dead_letter_topic"] == dead
    assert last[b"clicks/events"]["trigger_ms"] == 1_000


def _run_until_ctrl_c(file: Path) -> None:
    """Until each query has reported a batch."""
    running = subprocess.Popen(
        command("run", file), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    with running:
        assert running.stderr is not None
        lines: list[str] = []
        for line in running.stderr:
            lines.append(line)
            batches = [one for one in lines if ": batch " in one]
            if all(any(one.startswith(name) for one in batches) for name in ("ev", "co", "dead")):
                break
        os.killpg(running.pid, signal.SIGINT)
        lines += running.stderr.readlines()
        assert running.wait(60) == 0, "".join(lines)
    assert "stopping after the batches that have begun\n" in lines
    # Nothing but our own lines: what Java says is in its file.
    assert all(line.startswith(("clicks: ", "ev", "co", "dead", "stopping")) for line in lines)


def _run_once(file: Path, master: str, python: Path) -> str:
    """To the end of what is there, with executors of this Python."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    tried = subprocess.run(
        [python, "-c", "import pyspark, pyarrow, numba; import odradek"],
        capture_output=True,
        text=True,
        env=environment,
        cwd="/",
    )
    assert "No module named 'odradek'" in tried.stderr
    done = subprocess.run(
        command("run", "--once", "--master", master, file),
        capture_output=True,
        text=True,
        timeout=300,
        env={**environment, "PYSPARK_PYTHON": str(python)},
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
