"""Landing a batch's rows in a table, exactly once.

1. seen: a batch that Spark repeats after a crash is there already, and is left as it is.
2. stage: Spark's own Parquet writer writes into a directory of this attempt, which no reader and
   no vacuum looks into.
3. place: each file is synced and renamed to where it stays. No version names it yet, so the renames
   need not be atomic together.
4. swap: the next version adds the files and carries the batch's number (`table`).

What a crash leaves: in 2 the attempt, which the writer's next attempt removes; in 3 and before 4's
put, files that no version names, for vacuum. A driver that was thought dead and goes on finds its
batch seen. A full disk fails the query, and the batch is repeated after a restart.
"""

import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

from odradek.spark.errors import TableError
from odradek.spark.tables.location import Location, sync
from odradek.spark.tables.schema import missing_columns, nullable
from odradek.spark.tables.statistics import statistics_of
from odradek.spark.tables.table import Batch, Change, DataFile, Table, create, mend

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

STAGING = "_odradek_staging"
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
COMPRESSION = "zstd"
PLACING_THREADS = 8
# Hadoop starts a process, `chmod`, for each directory and file that it makes: twelve for a batch of
# two tasks. So the directories of its committer are made here, and its mark of success is not.
COMMITTER_DIRECTORY = Path("_temporary", "0", "_temporary")
NO_SUCCESS_FILE = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}

Write = Callable[[], list[DataFile]]


class Landed(NamedTuple):
    """What became of a batch: its version and rows; no version if it added nothing, or was there
    already."""

    version: int | None
    rows: int


def open_for(
    location: Location,
    schema_text: str,
    partition_by: "Sequence[str]" = (),
    new_columns: str = "refuse",
    properties: "Mapping[str, str] | None" = None,
) -> Table:
    """The table that a sink lands in: mended, made if there is none, and fit for the schema.

    TableError says which column does not fit."""
    mend(location)
    wanted = nullable(schema_text)
    table = create(location, wanted, partition_by, properties)
    if table.partition_by != list(partition_by):
        have = ", ".join(table.partition_by) or "nothing"
        raise TableError(f"{location.uri}: the table is partitioned by {have}")
    kept = table.delta.metadata().configuration
    changed = {name: one for name, one in (properties or {}).items() if kept.get(name) != one}
    if changed:
        table.swap(lambda: partial(table.delta.alter.set_table_properties, changed))
    fit(table, wanted, new_columns)
    return table


def fit(table: Table, schema_text: str, new_columns: str) -> None:
    """Add the columns that the table lacks, or refuse. A kill leaves an empty column at worst."""
    from deltalake import Field

    def decide() -> Change | None:
        added = missing_columns(table.schema_text(), schema_text, new_columns)
        if not added:
            return None
        fields = [Field.from_json(json.dumps(column)) for column in added]
        return partial(table.delta.alter.add_columns, fields)

    try:
        table.swap(decide)
    except TableError as error:
        raise TableError(f"{table.location.uri}: {error}") from None


def append(
    table: Table, batch: Batch, schema_text: str, write: Write, mode: str = "append"
) -> Landed:
    """Land what `write` writes. Mode "overwrite" puts it in the place of all there was."""
    table.refresh()
    if table.has(batch):
        return Landed(None, 0)
    files = write()
    rows = sum(file.rows for file in files)
    # A batch of no rows commits nothing: its repetition is as empty.
    if not files and mode == "append":
        return Landed(None, 0)

    def decide() -> Change:
        # Another may have changed the columns since the sink was started.
        if missing := missing_columns(table.schema_text(), schema_text, "add"):
            names = ", ".join(one["name"] for one in missing)
            raise TableError(f"{table.location.uri}: column {names} was dropped meanwhile")
        return table.commit_files([file.added() for file in files], mode)

    version = table.swap(decide, batch, {"odradek.rows": str(rows)}, is_fresh=True)
    return Landed(version, rows if version is not None else 0)


class Staging:
    """Writes frames with Spark's own Parquet writer, and places what it wrote."""

    def __init__(self, root: Path, writer: str, partition_by: "Sequence[str]") -> None:
        self._root = root
        self._prefix = writer.replace("/", "-")
        self._partition_by = partition_by

    def clear(self) -> None:
        """Remove what earlier attempts of this writer left. There is one of it at a time."""
        for attempt in (self._root / STAGING).glob(f"{self._prefix}-*"):
            shutil.rmtree(attempt, ignore_errors=True)

    def write(self, frame: "DataFrame", number: int) -> list[DataFile]:
        """Stage and place; the files that have rows."""
        attempt = self._root / STAGING / f"{self._prefix}-{number}-{uuid.uuid4().hex}"
        try:
            self._stage(frame, attempt)
            return self._place(attempt)
        finally:
            shutil.rmtree(attempt, ignore_errors=True)

    def _stage(self, frame: "DataFrame", attempt: Path) -> None:
        (attempt / COMMITTER_DIRECTORY).mkdir(parents=True)
        writer = frame.write.mode("append").options(compression=COMPRESSION, **NO_SUCCESS_FILE)
        if self._partition_by:
            writer = writer.partitionBy(*self._partition_by)
        writer.parquet(str(attempt))

    def _place(self, attempt: Path) -> list[DataFile]:
        staged = list(_staged(attempt))
        with ThreadPoolExecutor(PLACING_THREADS) as pool:
            tried = pool.map(lambda path: self._place_one(attempt, path), staged)
            placed = [file for file in tried if file is not None]
        # Up to the root, whose own name was synced when the table was opened.
        for directory in {folder for file in placed for folder in PurePath(file.path).parents}:
            sync(self._root / directory)
        return placed

    def _place_one(self, attempt: Path, path: str) -> DataFile | None:
        import pyarrow.parquet as pq

        footer = pq.read_metadata(attempt / path)
        if not footer.num_rows:  # Spark writes a file also for no rows
            return None
        sync(attempt / path)
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        (attempt / path).rename(target)
        return DataFile(
            path,
            target.stat().st_size,
            partition_values(path),
            footer.num_rows,
            statistics_of(footer),
        )


def _staged(attempt: Path) -> Iterator[str]:
    for directory, _, names in os.walk(attempt):
        for name in names:
            if name.endswith(".parquet"):
                yield os.path.relpath(os.path.join(directory, name), attempt)


def partition_values(path: str) -> dict[str, str | None]:
    """The values in a Hive-style path; null and "" are both null, by Hive's rule."""
    pairs = (part.split("=", 1) for part in path.split("/")[:-1])
    return {
        unquote(name): None if value == NULL_PARTITION else unquote(value) for name, value in pairs
    }
