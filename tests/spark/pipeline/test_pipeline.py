"""Whole pipelines: killed drivers, the command line, a Spark cluster of its own processes."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.errors import StreamingQueryException

from odradek.client.reading import LATEST, Reader, offsets_at
from odradek.spark.pipeline.runner import PipelineFailed, Run
from odradek.spark.pipeline.spec import load
from odradek.wire.records import Record
from odradek.wire.topics import TopicPartition

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

DRIVER = Path(__file__).parent / "driver.py"
STEPS = ["stage", "decide", "clean_up"]  # test_lake has those in between


def event(number: int) -> bytes:
    at = f"2026-01-01T00:{number % 4:02d}:00Z"
    return json.dumps({"number": number, "page": f"p{number % 3}", "at": at}).encode()


def pipeline_file(where: Path, cluster: Any, topic: str, more: str = "", options: str = "") -> Path:
    file = where / "clicks.toml"
    file.write_text(
        f"""
checkpoint = "checkpoint"
bootstrap = "{cluster.bootstrap}"
master = "local[2]"
trigger = "available-now"

[[source]]
name = "clicks"
topics = ["{topic}"]
options = {{ {options} }}
watermark = {{ column = "at", delay = "1 hour" }}
[source.decode]
format = "json"
schema = "number int, page string, at timestamp"

[[sink]]
name = "events"
from = "clicks"
kind = "parquet"
path = "lake/events"
partition_by = ["page"]
{more}
[spark]
# A short life is not worth a compiler.
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"spark.sql.codegen.wholeStage" = false
"spark.executor.memory" = "512m"
"spark.executor.cores" = 1
"""
    )
    return file


def lake(where: Path) -> list[int]:
    """The numbers in the lake, as a reader that knows nothing but Parquet finds them."""
    path = where / "lake" / "events"
    if not path.exists():
        return []
    return sorted(ds.dataset(path, partitioning="hive").to_table()["number"].to_pylist())


def records(cluster: Any, topic: str) -> list[Record]:
    target = TopicPartition(topic, 0)
    client = cluster.client.client

    async def read() -> list[Record]:
        end = (await offsets_at(client, {target: LATEST}))[target].offset
        return [
            record
            async for batches in Reader(client).batches(target, 0, end)
            for record in batches.open()
        ]

    found: list[Record] = cluster.client.run(read())
    return found


def test_exactly_once_through_the_death_of_the_driver_after_every_step(
    cluster: Any, tmp_path: Path
) -> None:
    topic = cluster.create(partitions=2)
    for partition in range(2):
        cluster.produce(topic, [event(2 * i + partition) for i in range(600)], partition)
    file = pipeline_file(tmp_path, cluster, topic, options="maxOffsetsPerTrigger = 200")
    landed: list[int] = []
    for step in STEPS:
        died = subprocess.run(
            [sys.executable, DRIVER, file, step], capture_output=True, timeout=200
        )
        assert died.returncode == -signal.SIGKILL, died.stderr.decode()[-2000:]
        now = lake(tmp_path)
        assert len(now) == len(set(now))
        assert set(landed) <= set(now)
        landed = now
    # The first two steps end before a file is in the lake, the last after.
    assert landed == list(range(400))
    done = subprocess.run([sys.executable, DRIVER, file], capture_output=True, timeout=200)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    assert lake(tmp_path) == list(range(1200))
    assert b"landed 1000" in done.stdout  # the last of them repeated, and the rest


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


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "odradek", "pipeline", *map(str, arguments)]


def test_the_command_line_with_dead_letters_counts_and_ctrl_c(cluster: Any, tmp_path: Path) -> None:
    topic, counts, dead = cluster.create(), cluster.create(), cluster.create()
    cluster.produce(topic, [*map(event, range(40)), b"{nonsense"])
    file = pipeline_file(tmp_path, cluster, topic, MORE.format(counts=counts, dead=dead))
    file.write_text(file.read_text().replace("available-now", "1 seconds"))
    running = subprocess.Popen(
        command("run", file), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    with running:
        assert running.stderr is not None
        lines: list[str] = []
        for line in running.stderr:
            lines.append(line)
            if all(any(one.startswith(name) for one in lines) for name in ("ev", "co", "dead")):
                break
        os.killpg(running.pid, signal.SIGINT)
        lines += running.stderr.readlines()
        assert running.wait(60) == 0, "".join(lines)
    assert "stopping after the batches that have begun\n" in lines
    assert lake(tmp_path) == list(range(40))
    cluster.produce(topic, [*map(event, range(40, 60)), b'{"number": "x"}'])
    again = subprocess.run(
        command("run", "--once", file), capture_output=True, text=True, timeout=200
    )
    assert again.returncode == 0, again.stderr
    assert "1 dead letters in all" in again.stdout
    assert lake(tmp_path) == list(range(60))
    letters = records(cluster, dead)
    assert [letter.value for letter in letters] == [b"{nonsense", b'{"number": "x"}']
    headers = dict(letters[1].headers)
    assert headers["odradek.reason"] == b'field number is "x", not int'
    assert headers["odradek.topic"] == topic.encode()
    assert headers["odradek.offset"] == b"61"
    last = {record.key: json.loads(record.value or b"") for record in records(cluster, counts)}
    assert {minute: row["clicks"] for minute, row in last.items()} == {
        b"00:%02d" % minute: 15 for minute in range(4)
    }
    compacted = subprocess.run(command("compact", file), capture_output=True, text=True)
    assert "page=p1: " in compacted.stdout
    assert lake(tmp_path) == list(range(60))


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
        run.check()
    run.stop()


@pytest.fixture
def spark_cluster(tmp_path: Path) -> Iterator[str]:
    """A master and two workers from the installed PySpark; executors in processes of their own."""
    import pyspark

    from odradek.spark.session import prepare_environment

    prepare_environment()
    home = Path(pyspark.__file__).parent
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    worker = [f"{deploy}.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g"]
    commands = [
        [f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port)],
        [*worker, "--work-dir", str(tmp_path / "worker-1"), address],
        [*worker, "--work-dir", str(tmp_path / "worker-2"), address],
    ]
    with ExitStack() as stack:
        for arguments in commands:
            process = subprocess.Popen(
                [home / "bin" / "spark-class", *arguments, "--webui-port", "0"],
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
            if "Master" in arguments[0]:
                _wait_for(port)
        yield address


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError("the master of Spark does not listen")


def test_on_a_spark_cluster_with_executors_of_its_own(
    cluster: Any, spark_cluster: str, tmp_path: Path
) -> None:
    topic = cluster.create(partitions=4)
    for partition in range(4):
        cluster.produce(topic, [event(4 * i + partition) for i in range(250)], partition)
    file = pipeline_file(tmp_path, cluster, topic, options="maxOffsetsPerTrigger = 600")
    done = subprocess.run(
        command("run", "--master", spark_cluster, file), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert lake(tmp_path) == list(range(1000))
    executors = [path for path in tmp_path.glob("worker-*/app-*/*") if path.is_dir()]
    assert len(executors) == 2
