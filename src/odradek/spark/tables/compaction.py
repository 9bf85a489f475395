"""Many small files of a table become few, while readers read and pipelines land.

Each rewritten file is one commit: it comes and its inputs go in the same version, by the same
compare-and-swap as a batch, and only if every input is still part of the table. A reader of an
older version still has the old files, until vacuum finds them older than the history.
"""

import itertools
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from odradek.spark.errors import TableError
from odradek.spark.tables.data import ROWS_AT_A_TIME, read_batches
from odradek.spark.tables.location import sync
from odradek.spark.tables.statistics import columns_with_nan, statistics_of
from odradek.spark.tables.table import Change, DataFile, Table

TARGET_BYTES = 128 * 1024 * 1024
MIN_FILES = 8
# A file of this part of the target is large enough to be left alone.
LARGE_ENOUGH = 0.75
# How much larger than the target a rewritten file may become.
SLACK = 1.1
COMPRESSION = "zstd"
# A column gets a dictionary if each of its values comes so often. Arrow would make one of values
# that never repeat too, which doubles the file and the time.
REPEATED = 4


@dataclass(frozen=True, slots=True)
class Compacted:
    """Files that became one."""

    version: int
    files: tuple[DataFile, ...]
    into: DataFile


def chosen(files: Iterable[DataFile], target_bytes: int, min_files: int) -> list[DataFile]:
    """Which files of one partition to rewrite now: the smallest first, each no larger than all
    before it together, so that a large file is not rewritten for a few small ones."""
    small = [file for file in files if file.size_bytes < target_bytes * LARGE_ENOUGH]
    picked: list[DataFile] = []
    total = 0
    for file in sorted(small, key=lambda file: (file.size_bytes, file.path)):
        if total + file.size_bytes > target_bytes * SLACK:
            break
        if len(picked) >= min_files and file.size_bytes > total:
            break
        picked.append(file)
        total += file.size_bytes
    while len(picked) > 1 and picked[-1].size_bytes > total - picked[-1].size_bytes:
        total -= picked.pop().size_bytes
    return picked if len(picked) >= max(2, min_files) else []


def compact(
    table: Table,
    target_bytes: int = TARGET_BYTES,
    min_files: int = MIN_FILES,
    sort_by: Sequence[str] = (),
) -> Iterator[Compacted]:
    """Rewrite what there is to gain by rewriting, partition by partition."""
    if unknown := [name for name in sort_by if name not in table.arrow_schema().names]:
        raise TableError(f"{table.location.uri}: no column {', '.join(unknown)} to sort by")
    given_up: set[str] = set()
    while True:
        table.refresh()
        groups: dict[tuple[tuple[str, str | None], ...], list[DataFile]] = {}
        for file in table.data_files():
            if file.path not in given_up:
                groups.setdefault(tuple(sorted(file.values.items())), []).append(file)
        plans = [
            one for files in groups.values() if (one := chosen(files, target_bytes, min_files))
        ]
        if not plans:
            return
        for plan in plans:
            done = _rewrite(table, plan, sort_by)
            if done is None:
                given_up.update(file.path for file in plan)
            else:
                yield done


def _rewrite(table: Table, files: list[DataFile], sort_by: Sequence[str]) -> Compacted | None:
    result = _merged(table, files, sort_by)
    paths = {file.path for file in files}

    def decide() -> Change | None:
        if not paths <= {file.path for file in table.data_files()}:
            return None
        return table.commit_files(
            [result.added(data_change=False), *(file.removed() for file in files)]
        )

    notes = {"odradek.operation": "compact", "odradek.files": str(len(files))}
    version = table.swap(decide, notes=notes)
    if version is not None:
        return Compacted(version, tuple(files), result)
    # Another job rewrote one of them. But a store may have put our entry and said it had not.
    if result.path not in {file.path for file in table.data_files()}:
        table.location.files().delete_file(result.path)
    return None


def _merged(table: Table, files: list[DataFile], sort_by: Sequence[str]) -> DataFile:
    """The rows of the files in a new one, synced."""
    import pyarrow.parquet as pq

    store, schema = table.location.files(), table.arrow_schema()
    with_nan: set[str] = set()
    path = str(PurePosixPath(files[0].path).parent / f"part-{uuid.uuid4()}.zstd.parquet")
    pieces = _ahead(_pieces(store, files, schema, sort_by))
    first = next(pieces, schema.empty_table())
    with pq.ParquetWriter(
        path,
        schema,
        filesystem=store,
        compression=COMPRESSION,
        use_dictionary=_with_dictionary(first.slice(0, ROWS_AT_A_TIME)),
    ) as writer:
        for rows in itertools.chain([first], pieces):
            with_nan |= columns_with_nan(rows)
            writer.write_table(rows, row_group_size=ROWS_AT_A_TIME)
            first = None  # not held any longer than the others
    if table.location.root is not None:
        sync(table.location.root / path)
        sync((table.location.root / path).parent)
    with store.open_input_file(path) as written:
        footer = pq.read_metadata(written)
        size = written.size()
    return DataFile(path, size, files[0].values, footer.num_rows, statistics_of(footer, with_nan))


def _with_dictionary(rows: Any) -> list[str]:
    """The leaf columns whose values repeat, by the first of their rows; nested ones unseen."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    unrepeated = {
        one.name
        for one in rows.schema
        if not pa.types.is_nested(one.type)
        and pc.count_distinct(rows[one.name]).as_py() * REPEATED > rows.num_rows
    }
    # Parquet's names of leaves inside lists and maps are the writer's own: it is asked.
    written = pa.BufferOutputStream()
    pq.write_metadata(rows.schema, written)
    leaves = pq.ParquetFile(written.getvalue()).schema
    paths = (leaves.column(index).path for index in range(len(leaves)))
    return [path for path in paths if path not in unrepeated]


def _ahead(pieces: Iterator[Any]) -> Iterator[Any]:
    """The next piece is read while the last is written: Arrow does both without Python's lock."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, pieces, None)
        while (piece := coming.result()) is not None:
            coming = pool.submit(next, pieces, None)
            yield piece


def _pieces(
    store: Any, files: list[DataFile], schema: Any, sort_by: Sequence[str]
) -> Iterator[Any]:
    """The rows in tables of a row group each, or sorted in one."""
    import pyarrow as pa

    held: list[Any] = []
    count = 0
    for batch in (one for file in files for one in read_batches(store, file.path, schema)):
        if held and count + batch.num_rows > ROWS_AT_A_TIME and not sort_by:
            yield pa.Table.from_batches(held, schema)
            held, count = [], 0
        held.append(batch)
        count += batch.num_rows
    if held:
        rows = pa.Table.from_batches(held, schema)
        yield rows.sort_by([(name, "ascending") for name in sort_by]) if sort_by else rows
