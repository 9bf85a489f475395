"""Whole pipelines: the demo, and a query that fails. tests/spark/test_on_cluster.py has another."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from tests.spark.pipeline.files import pipeline_file
from tests.spark.short_lived import environment

from odradek.spark.pipeline.runner import PipelineFailed, Run
from odradek.spark.pipeline.spec import load

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_the_demo_balances_its_books_although_a_broker_is_killed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "odradek", "demo", "--seconds", "8", "--chaos", "--rate", "200"],
        capture_output=True,
        text=True,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert lines[0].startswith("four brokers are up")
    assert any(line.startswith("console: http://127.0.0.1:") for line in lines)
    assert any(line.startswith("events: batch 0, ") for line in lines)
    assert "the books balance:" in done.stdout
    # One on a machine that is idle, more where Spark takes its time.
    killed = sum("was killed" in line for line in lines)
    assert killed >= 1
    assert f"{killed} broker{'' if killed == 1 else 's'} killed meanwhile" in done.stdout


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
