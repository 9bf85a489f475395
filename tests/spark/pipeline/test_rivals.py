"""Two drivers on one checkpoint: nothing is landed twice, and one that ends says why.

They run for a few seconds, or for ODRADEK_RIVALS_S; whichever ends is started again.
"""

import itertools
import os
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.soak.spark import Life
from tests.spark.pipeline.files import command, event, landed, pipeline_file

SECONDS = float(os.environ.get("ODRADEK_RIVALS_S", "5"))
START_TIMEOUT_S = 600.0
BURST, PAUSE_S = 20, 0.2
REASON = "another driver runs this pipeline on the same checkpoint"

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1500 + SECONDS)]


def test_two_drivers_land_nothing_twice_and_one_ends_with_the_reason(
    cluster: Any, tmp_path: Path
) -> None:
    topic = cluster.create(partitions=2)
    file = pipeline_file(tmp_path, cluster, topic)
    file.write_text(file.read_text().replace('"available-now"', '"500 milliseconds"'))
    numbers = itertools.count()
    written = 0
    ends: list[str] = []
    with ExitStack() as stack:

        def driver() -> Life:
            life = Life(file)
            stack.callback(life.kill)
            return life

        drivers = [driver(), driver()]
        begun = time.monotonic()
        # Until the time is over and one of them has met the other.
        while time.monotonic() < begun + SECONDS or not any(REASON in end for end in ends):
            assert time.monotonic() < begun + START_TIMEOUT_S + SECONDS, ends
            cluster.produce(topic, [event(next(numbers)) for _ in range(BURST)], written % 2)
            written += BURST
            for index, life in enumerate(drivers):
                if not life.is_running():
                    assert life.complaint() is None
                    ends.append(life.words().splitlines()[-1])
                    drivers[index] = driver()
            time.sleep(PAUSE_S)
    print(f"{len(ends)} ends:", *ends, sep="\n")
    last = subprocess.run(command("run", "--once", file), capture_output=True, text=True)
    assert last.returncode == 0, last.stderr
    assert landed(tmp_path) == list(range(written))
