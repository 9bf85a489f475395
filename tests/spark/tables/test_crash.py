"""Killed at each step and in random places, a table has every row once, and readers all along."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.spark.tables.crash import COUNTS, EVENTS, MOMENTS, ROWS
from tests.spark.tables.rows import found, numbers, readers

from odradek.spark.tables.inspection import check
from odradek.spark.tables.location import Location
from odradek.spark.tables.retention import vacuum
from odradek.spark.tables.table import Table

CRASH = Path(__file__).parent / "crash.py"
KILLS = int(os.environ.get("ODRADEK_KILLS", "12"))


def read_all_along(root: Path, stop: threading.Event, wrong: list[str]) -> None:
    """Whole batches, and never fewer than before, through every reader in turn."""
    before = 0
    while not stop.is_set():
        for name, read in readers(root, ["x", "page"]).items():
            rows = read()
            if len(rows) % ROWS or len(rows) < before or len({r["x"] for r in rows}) != len(rows):
                wrong.append(f"{name}: {len(rows)} rows after {before}")
            before = max(before, len(rows))


@pytest.mark.timeout(60 + 10 * KILLS)
@pytest.mark.slow
def test_every_row_once_after_kills_at_each_step_and_in_random_places(tmp_path: Path) -> None:
    numbers(tmp_path / "events", EVENTS, partition_by=["page"])
    numbers(tmp_path / "counts", COUNTS)
    stop = threading.Event()
    wrong: list[str] = []
    reader = threading.Thread(target=read_all_along, args=(tmp_path / "events", stop, wrong))
    reader.start()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, CRASH, tmp_path, str(KILLS), "7"],
        capture_output=True,
        text=True,
        env=environment,
    )
    stop.set()
    reader.join()
    assert done.returncode == 0, done.stderr
    assert not wrong
    left = [f"{moment} {batches}" for moment, (_, batches) in MOMENTS.items()]
    *moments, last = done.stdout.splitlines()
    assert moments == left
    batches = int(last)
    assert found(tmp_path / "events") == list(range(batches * ROWS))
    rows = DeltaTable(tmp_path / "events").to_pyarrow_table().to_pylist()
    assert all(row["page"] == f"p {row['x'] % 3}" for row in rows)
    counted = DeltaTable(tmp_path / "counts").to_pyarrow_table().to_pylist()
    assert {row["page"]: row["n"] for row in counted} == {
        f"p {page}": batches * ROWS // 3 for page in range(3)
    }
    for name in ("events", "counts"):
        location = Location.of(tmp_path / name)
        assert not check(location).faults
        # What a kill left goes when it is old enough, and nothing else.
        for file in (tmp_path / name).rglob("*.parquet"):
            os.utime(file, (1_000_000, 1_000_000))
        vacuum(Table(location))
        assert not check(location).faults
        assert len(DeltaTable(location.uri).to_pyarrow_table()) == (
            batches * ROWS if name == "events" else 3
        )
