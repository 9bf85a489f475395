"""What the tests of pipelines share: a file, its table as others see it, a topic's records."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from tests.spark.short_lived import JAVA_OPTIONS

from odradek.client.reader import LATEST, Isolation, PartitionReader, offsets_at
from odradek.wire.records import Record
from odradek.wire.topics import TopicPartition

DRIVER = Path(__file__).parent / "driver.py"

SPARK = f"""
[spark]
"spark.driver.extraJavaOptions" = "{JAVA_OPTIONS}"
"spark.executor.extraJavaOptions" = "{JAVA_OPTIONS}"
"spark.sql.codegen.wholeStage" = false
"spark.executor.memory" = "512m"
"spark.executor.cores" = 1
"""


def event(number: int) -> bytes:
    at = f"2026-01-01T00:{number % 4:02d}:00Z"
    return json.dumps({"number": number, "page": f"p{number % 3}", "at": at}).encode()


def pipeline_file(where: Path, cluster: Any, topic: str, more: str = "", options: str = "") -> Path:
    """A topic of events into a table, and `more`."""
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
kind = "table"
path = "lake/events"
partition_by = ["page"]
{more}
{SPARK}
"""
    )
    return file


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a table, as a reader that knows nothing of us finds them."""
    if not DeltaTable.is_deltatable(path):
        return []
    found: list[dict[str, Any]] = DeltaTable(path).to_pyarrow_table().to_pylist()
    return found


def landed(where: Path) -> list[int]:
    """The numbers in the table of `pipeline_file`."""
    return sorted(row["number"] for row in rows(where / "lake" / "events"))


def records(cluster: Any, topic: str) -> list[Record]:
    """Every record of a topic's first partition that was committed."""
    target = TopicPartition(topic, 0)
    client = cluster.client.client

    async def read() -> list[Record]:
        end = (await offsets_at(client, {target: LATEST}))[target].offset
        reader = PartitionReader(client, isolation=Isolation.READ_COMMITTED)
        return [
            record
            async for batches in reader.batches(target, 0, end)
            for record in batches.open(committed=True)
        ]

    found: list[Record] = cluster.client.run(read())
    return found


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "odradek", "pipeline", *map(str, arguments)]


class Driver:
    """A driver in its own process: it starts Spark at once, and its work on a line of input."""

    def __init__(self, file: Path, moment: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, DRIVER, file, moment],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> "Driver":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def run(self) -> tuple[int, str]:
        """What it ended with, and the last line it printed or what it complained of."""
        output, errors = self._process.communicate("go\n")
        code = self._process.returncode
        return code, output.splitlines()[-1] if code <= 0 and output else errors[-2000:]
