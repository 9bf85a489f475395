"""Lands batches in a table until it is killed, again and again, and says how it went.

    python crash.py DIRECTORY KILLS SEED

Each life is a child that repeats the last batch, as Spark does after a crash, goes on with the next
ones, compacts, and is killed after a random time. At last one life ends by itself.
"""

import os
import random
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import deltalake  # noqa: F401  # before the children, which then need not
import pyarrow as pa
import pyarrow.parquet as pq
from tests.spark.tables.rows import schema_of

from odradek.spark.tables.append import Staging, append, open_for
from odradek.spark.tables.compaction import compact
from odradek.spark.tables.location import Location
from odradek.spark.tables.merge import merge
from odradek.spark.tables.table import Batch

EVENTS, COUNTS = schema_of(x="long", page="string"), schema_of(page="string", n="long")
ROWS, BATCHES = 30, 25
WRITER = "q/s"


class Frame:
    """What `Staging` asks of a DataFrame, with Arrow's writer in the place of Spark's."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self.write: Any = self

    def mode(self, _: str) -> "Frame":
        return self

    def option(self, _: str, __: str) -> "Frame":
        return self

    def partitionBy(self, *_: str) -> "Frame":  # noqa: N802  # Spark's name
        return self

    def parquet(self, path: str) -> None:
        for page in set(self._rows["page"].to_pylist()):
            directory = Path(path) / f"page={page}"
            directory.mkdir(parents=True)
            mask = pa.compute.equal(self._rows["page"], page)
            rows = self._rows.filter(mask).drop_columns(["page"])
            pq.write_table(rows, directory / f"part-{os.urandom(8).hex()}.parquet")


def frame(rows: pa.Table) -> Any:
    """A `Frame`, which is no DataFrame and does what `Staging` asks of one."""
    return Frame(rows)


def numbers_of(batch: int) -> list[int]:
    return list(range(batch * ROWS, (batch + 1) * ROWS))


def live(root: Path, done: Path, until: int) -> None:
    """One life of the driver: from the last batch that Spark has noted as done."""
    events = open_for(Location.of(root / "events"), EVENTS, ["page"])
    counts = open_for(Location.of(root / "counts"), COUNTS)
    staging = Staging(root / "events", WRITER, ["page"])
    staging.clear()
    first = int(done.read_text() or 0) if done.exists() else 0
    for batch in range(first, until):
        numbers = numbers_of(batch)
        rows = pa.table({"x": numbers, "page": [f"p {n % 3}" for n in numbers]})
        identity = Batch(WRITER, batch)
        append(events, identity, EVENTS, partial(staging.write, frame(rows), batch))
        total = (batch + 1) * ROWS // 3
        changed = pa.table({"page": ["p 0", "p 1", "p 2"], "n": [total] * 3})
        merge(counts, identity, changed, ["page"])
        if batch % 4 == 3:
            list(compact(events, min_files=3))
        done.write_text(str(batch + 1))


def main() -> None:
    root, kills, rng = Path(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))
    done = root / "done"
    died = 0
    while True:
        child = os.fork()
        if child == 0:
            live(root, done, BATCHES)
            os._exit(0)
        if died < kills:
            time.sleep(rng.uniform(0.0, 0.35))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            if os.WEXITSTATUS(status):
                sys.exit(1)
            if died >= kills or died:
                break
        died += 1
    print(died)


if __name__ == "__main__":
    main()
