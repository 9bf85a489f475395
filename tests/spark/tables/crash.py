"""Lands batches in a table until it is killed, again and again, and says how it went.

    python crash.py DIRECTORY KILLS SEED

Each life is a child that repeats the last batch, as Spark does after a crash, goes on with the next
ones and compacts. The first few die after each step of a landing in turn, and a line says how many
batches more than Spark knows of were then in the table. The others are killed after a random time.
The last one lands a few more batches and ends by itself; the last line says how many there are.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import deltalake  # noqa: F401  # before the children, which then need not
import pyarrow as pa
import pyarrow.parquet as pq
from tests.spark.dying import die_after, die_before
from tests.spark.tables.rows import found, schema_of

import odradek.spark.tables.merge as merging
from odradek.spark.tables import compaction
from odradek.spark.tables.append import Staging, append, open_for
from odradek.spark.tables.compaction import compact
from odradek.spark.tables.location import Location
from odradek.spark.tables.merge import merge
from odradek.spark.tables.table import Batch, Table

EVENTS, COUNTS = schema_of(x="long", page="string"), schema_of(page="string", n="long")
ROWS, BATCHES, LAST_BATCHES = 30, 25, 5
WRITER = "q/s"
# What dies, and how many batches it leaves in the table that Spark does not know of.
MOMENTS: dict[str, tuple[Callable[[], None], int]] = {
    "staged": (lambda: die_after(Staging, "_stage"), 0),
    "placed": (lambda: die_after(Staging, "_place"), 0),
    "put": (lambda: die_before(Table, "_make_durable"), 1),
    "merged": (lambda: die_before(merging, "sync_added"), 1),
    "rewritten": (lambda: die_after(compaction, "_merged"), 1),
    "compacted": (lambda: die_after(compaction, "_rewrite"), 1),
}


class Frame:
    """What `Staging` asks of a DataFrame, with Arrow's writer in the place of Spark's."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self.write: Any = self

    def mode(self, _: str) -> "Frame":
        return self

    def options(self, **_: str) -> "Frame":
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


def noted(root: Path) -> int:
    """How many batches Spark has noted as done."""
    done = root / "done"
    return int(done.read_text()) if done.exists() else 0


def note(root: Path, batches: int) -> None:
    """As Spark notes them: all or nothing."""
    (root / "noted").write_text(str(batches))
    (root / "noted").rename(root / "done")


def live(root: Path, until: int) -> None:
    """One life of the driver: from the last batch that Spark has noted as done."""
    events = open_for(Location.of(root / "events"), EVENTS, ["page"])
    counts = open_for(Location.of(root / "counts"), COUNTS)
    staging = Staging(root / "events", WRITER, ["page"])
    staging.clear()
    for batch in range(noted(root), until):
        numbers = numbers_of(batch)
        rows = pa.table({"x": numbers, "page": [f"p {n % 3}" for n in numbers]})
        identity = Batch(WRITER, batch)
        append(events, identity, EVENTS, partial(staging.write, frame(rows), batch))
        total = (batch + 1) * ROWS // 3
        changed = pa.table({"page": ["p 0", "p 1", "p 2"], "n": [total] * 3})
        merge(counts, identity, changed, ["page"])
        if batch % 4 == 3:
            list(compact(events, min_files=3))
        note(root, batch + 1)


def die_at_each_moment(root: Path) -> None:
    """The library cannot be used on both sides of a fork: each child tells of the one before."""
    last = ""
    for moment in (*MOMENTS, ""):
        child = os.fork()
        if child == 0:
            if last:
                extra = len(found(root / "events")) / ROWS - noted(root)
                print(last, f"{extra:g}", flush=True)
            if moment:
                MOMENTS[moment][0]()
                live(root, BATCHES)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) == bool(moment), f"{moment}: the child ended with {status}"
        last = moment


def main() -> None:
    root, kills, rng = Path(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))
    die_at_each_moment(root)
    for _ in range(kills):
        child = _child(root, sys.maxsize)
        time.sleep(rng.uniform(0.0, 0.35))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), f"a child ended by itself with {status}"
    batches = noted(root) + LAST_BATCHES
    _, status = os.waitpid(_child(root, batches), 0)
    assert status == 0
    print(batches)


def _child(root: Path, until: int) -> int:
    """A life in a process of its own."""
    child = os.fork()
    if child == 0:
        live(root, until)
        os._exit(0)
    return child


if __name__ == "__main__":
    main()
