"""Table and dead letters have every record once although Java or the driver is killed in between.

Spark can tell three moments apart: before a version has the batch, between that and its own note of
the batch, and after that. tests/spark/tables/test_crash.py kills after each step of a landing and
in random places, without Spark; `make torment-spark` kills everything for an hour.
"""

import os
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.spark.conftest import wait_until
from tests.spark.pipeline.files import Driver, command, event, landed, pipeline_file, records

from odradek.spark.tables.append import STAGING

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1500)]

BATCH = 200
RECORDS = 600
BROKEN = range(0, RECORDS, 50)
# The first driver dies with a batch in the table that Spark has not noted, the second when Spark
# has noted one; between the two, Java dies while it writes.
MOMENTS = ("landed", "checkpoint", "never")

LETTERS = """
[dead_letters]
topic = "{dead}"
"""


def below(end: int) -> list[int]:
    return [number for number in range(end) if number not in BROKEN]


def whole_batches(home: Path) -> int:
    """How many there are in the table, and nothing else."""
    found = landed(home)
    count = (found[-1] + 1) // BATCH
    assert found == below(count * BATCH)
    return count


def test_exactly_once_through_the_death_of_java_and_of_the_driver(
    cluster: Any, tmp_path: Path
) -> None:
    topic, dead = cluster.create(partitions=2), cluster.create()
    values = [b"{%d" % n if n in BROKEN else event(n) for n in range(RECORDS)]
    for partition in range(2):
        cluster.produce(topic, values[partition::2], partition)
    good = below(RECORDS)
    options = f"maxOffsetsPerTrigger = {BATCH}"
    file = pipeline_file(tmp_path, cluster, topic, LETTERS.format(dead=dead), options)
    with ExitStack() as stack:
        # Starting Spark takes a while, in which the one before can do its work.
        driver, next_driver = (stack.enter_context(Driver(file, moment)) for moment in MOMENTS[:2])
        code, said = driver.run()
        assert code == -signal.SIGKILL, said
        assert whole_batches(tmp_path) == 1
        kill_java_while_it_writes(file)
        # What was whole already, Python is still there to commit.
        left = whole_batches(tmp_path)
        last_driver = stack.enter_context(Driver(file, MOMENTS[2]))
        code, said = next_driver.run()
        assert code == -signal.SIGKILL, said
        assert whole_batches(tmp_path) in (left, left + 1)
        left = whole_batches(tmp_path)
        code, said = last_driver.run()
    assert code == 0, said
    assert landed(tmp_path) == good
    assert int(said) == len(good) - len(below(left * BATCH))
    # Also of the dead letters that were committed by a driver that died of it.
    letters = records(cluster, dead)
    assert sorted(letter.value or b"" for letter in letters) == sorted(values[n] for n in BROKEN)


def kill_java_while_it_writes(file: Path) -> None:
    """The command line says so in one line; what Java and py4j have to say is in a file."""
    staging = file.parent / "lake" / "events" / STAGING
    running = subprocess.Popen(
        command("run", file), stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    with running:
        wait_until(
            lambda: running.poll() is not None or any(staging.rglob("*.parquet")),
            "the first file of a batch",
            300,
        )
        children = subprocess.run(
            ["pgrep", "-g", str(running.pid), "java"], capture_output=True, text=True
        )
        for child in children.stdout.split():
            os.kill(int(child), signal.SIGKILL)
        assert running.stderr is not None
        lines = running.stderr.readlines()
        assert running.wait(60) == 1, "".join(lines)
    # Progress from the start of Spark to the first batch.
    assert lines[0].startswith("clicks: starting Spark on local[2]")
    reported = [line for line in lines if "still starting" not in line]  # of a busy machine
    assert reported[1].startswith("clicks: Spark is up after ")
    assert any("waiting for its first batch" in line for line in reported)
    ours = ("events: ", "clicks: ", "dead_letters_clicks: ")
    assert [line for line in reported if not line.startswith(ours)] == [reported[-1]]
    assert reported[-1].startswith(
        "Error: the Java process of Spark has ended; the pipeline resumes"
    )
    assert "see /" in reported[-1]
