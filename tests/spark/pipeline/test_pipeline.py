"""Whole pipelines: the command line, a query that fails, a Spark cluster of its own processes."""

import json
import os
import signal
import site
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from tests.spark.pipeline.files import command, event, landed, pipeline_file, records

from odradek.spark.pipeline.reports import TOPIC
from odradek.spark.pipeline.runner import PipelineFailed, Run
from odradek.spark.pipeline.spec import load

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

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


def test_the_demo_balances_its_books_although_a_broker_is_killed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "odradek", "demo", "--seconds", "8", "--chaos", "--rate", "200"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert lines[0].startswith("three brokers are up")
    assert any(line.startswith("console: http://127.0.0.1:") for line in lines)
    assert any("was killed" in line for line in lines)
    assert any(line.startswith("events: batch 0, ") for line in lines)
    assert "the books balance:" in done.stdout
    assert "1 brokers killed meanwhile" in done.stdout


OURS = ("odradek", "pyspark_odradek", "__editable__")


def python_without_odradek(where: Path) -> Path:
    """A Python with everything that is installed here, except this package."""
    packages = where / "packages"
    packages.mkdir()
    for directory in site.getsitepackages():
        for entry in Path(directory).iterdir():
            if not entry.name.startswith(OURS) and entry.suffix != ".pth":
                (packages / entry.name).symlink_to(entry)
    python = where / "python"
    path = f'PYTHONPATH="{packages}${{PYTHONPATH:+:$PYTHONPATH}}"'
    python.write_text(f'#!/bin/sh\n{path} exec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    return python


def test_stopped_here_and_gone_on_with_on_a_cluster_without_this_package(
    cluster: Any, spark_cluster: Any, tmp_path: Path
) -> None:
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
    said = _run_once(file, spark_cluster.address, python_without_odradek(tmp_path))
    assert "1 dead letters in this run" in said
    assert len([path for path in spark_cluster.home.glob("worker-*/app-*/*") if path.is_dir()]) == 2
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
    told = [(record.key, json.loads(record.value or b"")) for record in records(cluster, TOPIC)]
    mine = [(key, report) for key, report in told if (report["group"] or "").startswith(topic)]
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


def test_a_killed_java_is_one_line_and_the_rest_is_in_a_file(cluster: Any, tmp_path: Path) -> None:
    topic = cluster.create()
    file = pipeline_file(tmp_path, cluster, topic)
    file.write_text(file.read_text().replace("available-now", "1 seconds"))
    running = subprocess.Popen(
        command("run", file), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    with running:
        assert running.stderr is not None
        lines = []
        for line in running.stderr:
            lines.append(line)
            if "waiting for its first batch" in line:
                break
        # Progress from the start of Spark to the first batch.
        assert lines[0].startswith("clicks: starting Spark on local[2]")
        lines = [line for line in lines if "still starting" not in line]  # of a busy machine
        assert lines[1].startswith("clicks: Spark is up after ")
        children = subprocess.run(
            ["pgrep", "-g", str(running.pid), "java"], capture_output=True, text=True
        )
        for child in children.stdout.split():
            os.kill(int(child), signal.SIGKILL)
        rest = running.stderr.readlines()
        assert running.wait(60) == 1
    assert [line for line in rest if not line.startswith(("events: ", "clicks: "))] == [rest[-1]]
    assert rest[-1].startswith("Error: the Java process of Spark has ended; the pipeline goes on")
    assert "see /" in rest[-1]


def test_a_query_that_fails_says_so_in_one_sentence(
    spark: Any, cluster: Any, tmp_path: Path
) -> None:
    missing = f"{cluster.create()}-missing"
    file = pipeline_file(tmp_path, cluster, missing, options='"fetchOffset.numRetries" = 1')
    run = Run(load(file), spark)
    run.start()
    with pytest.raises(StreamingQueryException):
        run.queries["events"].awaitTermination(100)
    text = f"events: UNKNOWN_TOPIC_OR_PARTITION: topic '{missing}' does not exist"
    with pytest.raises(PipelineFailed, match=f"^{text}$"):
        run.goes_on()
    run.stop()
