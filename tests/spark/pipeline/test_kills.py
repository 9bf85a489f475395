"""Table and dead letters have every record once although their driver is killed between every two
steps."""

import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.spark.pipeline.files import Driver, event, landed, pipeline_file, records

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

# Each driver finds what the one before it left, and how many batches of 200 are then in the table.
# The first three die with a batch that no version has. The others find one that is there, and leave
# it; the rows of a batch are visible before Spark notes the batch as done, and when it has.
# tests/spark/tables/test_crash.py kills in random places, without Spark.
DEATHS = [
    ("writing", 0),
    ("stage", 0),
    ("place", 0),
    ("put", 1),
    ("landed", 1),
    ("checkpoint", 1),
]
BATCH = 200
RECORDS = 1200
BROKEN = range(0, RECORDS, 50)
# Starting Spark takes a while, in which the one before can do its work.
AHEAD = 2

LETTERS = """
[dead_letters]
topic = "{dead}"
"""


def test_exactly_once_through_the_death_of_the_driver_between_every_two_steps(
    cluster: Any, tmp_path: Path
) -> None:
    topic, dead = cluster.create(partitions=2), cluster.create()
    values = [b"{%d" % n if n in BROKEN else event(n) for n in range(RECORDS)]
    for partition in range(2):
        cluster.produce(topic, values[partition::2], partition)
    good = [number for number in range(RECORDS) if number not in BROKEN]
    options = f"maxOffsetsPerTrigger = {BATCH}"
    file = pipeline_file(tmp_path, cluster, topic, LETTERS.format(dead=dead), options)
    moments = [*(moment for moment, _ in DEATHS), "never"]
    with ExitStack() as stack:
        drivers = [stack.enter_context(Driver(file, moment)) for moment in moments[:AHEAD]]
        for index, (moment, batches) in enumerate(DEATHS):
            code, said = drivers[index].run()
            assert code == -signal.SIGKILL, said
            assert landed(tmp_path) == [n for n in good if n < batches * BATCH], moment
            drivers += [
                stack.enter_context(Driver(file, more))
                for more in moments[index + AHEAD : index + AHEAD + 1]
            ]
        code, said = drivers[-1].run()
    assert code == 0, said
    assert landed(tmp_path) == good
    assert int(said) == len([number for number in good if number >= BATCH])
    # Also of the dead letters that were committed by a driver that died of it.
    letters = records(cluster, dead)
    assert sorted(letter.value or b"" for letter in letters) == sorted(values[n] for n in BROKEN)
