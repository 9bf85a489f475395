"""What a table is, what was done to it, and whether all of it is there. Without Spark."""

import datetime as dt
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from odradek.spark.errors import TableError
from odradek.spark.tables.compaction import LARGE_ENOUGH, TARGET_BYTES
from odradek.spark.tables.location import Location
from odradek.spark.tables.retention import vacuum
from odradek.spark.tables.schema import type_name
from odradek.spark.tables.table import Table, data_files, entries, is_whole

NOTES = "odradek."


@dataclass(frozen=True, slots=True)
class Info:
    """A table in a few figures."""

    path: str
    version: int
    columns: dict[str, str]
    partition_by: list[str]
    properties: dict[str, str]
    reader: int
    writer: int
    features: list[str]
    rows: int
    files: int
    small_files: int
    bytes: int
    oldest_version: int
    writers: dict[str, int]


@dataclass(frozen=True, slots=True)
class Version:
    """One entry of the history."""

    version: int
    at: dt.datetime
    operation: str
    rows: int | None
    notes: dict[str, str]


@dataclass(frozen=True, slots=True)
class Checked:
    """What was looked at, and what is wrong."""

    version: int
    files: int
    rows: int
    unreferenced: int
    faults: list[str]


def info(table: Table) -> Info:
    delta = table.delta
    files = table.data_files()
    protocol = delta.protocol()
    fields = json.loads(table.schema_text())["fields"]
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    return Info(
        path=table.location.uri,
        version=delta.version(),
        columns={one["name"]: type_name(one["type"]) for one in fields},
        partition_by=table.partition_by,
        properties={name: str(value) for name, value in delta.metadata().configuration.items()},
        reader=protocol.min_reader_version,
        writer=protocol.min_writer_version,
        features=sorted(features),
        rows=sum(file.rows for file in files),
        files=len(files),
        small_files=sum(file.size_bytes < TARGET_BYTES * LARGE_ENOUGH for file in files),
        bytes=sum(file.size_bytes for file in files),
        oldest_version=oldest_version(table),
        writers=writers(table),
    )


def writers(table: Table) -> dict[str, int]:
    """Who has landed batches, as far as the history tells, and the last batch of each."""
    names = {
        f"{one['odradek.query']}/{one['odradek.sink']}"
        for one in table.delta.history()
        if "odradek.query" in one and "odradek.sink" in one
    }
    found = {name: table.delta.transaction_version(name) for name in sorted(names)}
    return {name: number for name, number in found.items() if number is not None}


def oldest_version(table: Table) -> int:
    """The first version that can still be read."""
    found = table.delta.history()
    return int(found[-1]["version"]) if found else int(table.delta.version())


def history(table: Table, limit: int | None = None) -> list[Version]:
    """The newest versions first."""
    return [
        Version(
            one["version"],
            dt.datetime.fromtimestamp(one["timestamp"] / 1000, dt.UTC),
            one.get("odradek.operation") or str(one.get("operation", "")).lower(),
            int(one["odradek.rows"]) if "odradek.rows" in one else None,
            {
                name.removeprefix(NOTES): str(value)
                for name, value in one.items()
                if name.startswith(NOTES)
            },
        )
        for one in table.delta.history(limit)
    ]


def at_version(
    location: Location, version: int | None = None, at: dt.datetime | str | None = None
) -> Table:
    """The table as it was; TableError if that is not kept any more."""
    from deltalake.exceptions import DeltaError

    table = Table(location)
    if version is None and at is None:
        return table
    kept = table.delta.history()
    oldest, newest = kept[-1], kept[0]
    text = f"{location.uri}: versions {oldest['version']} to {newest['version']} can be read"
    if version is not None and not oldest["version"] <= version <= newest["version"]:
        raise TableError(f"{text}, not {version}")
    if at is not None:
        moment = _moment(at)
        first = dt.datetime.fromtimestamp(oldest["timestamp"] / 1000, dt.UTC)
        if moment < first:
            raise TableError(f"{text}, the first of {first.isoformat()}, not one of {at}")
        # Found here: the library goes by the times of files, which a copy of the table changes.
        milliseconds = moment.timestamp() * 1000
        version = next(one["version"] for one in kept if one["timestamp"] <= milliseconds)
    assert version is not None
    try:
        table.delta.load_as_version(version)
    except (DeltaError, ValueError, OSError) as error:
        raise TableError(f"{text}; {version} cannot: {str(error).splitlines()[0]}") from None
    return table


def _moment(at: dt.datetime | str) -> dt.datetime:
    try:
        moment = dt.datetime.fromisoformat(at) if isinstance(at, str) else at
    except ValueError:
        raise TableError(f"a time such as 2026-01-31T12:00:00Z, not {at!r}") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)


def restore(table: Table, version: int) -> int:
    """A new version like an old one. Batches that were landed since stay counted as landed."""
    at_version(table.location, version)

    def change(**properties: Any) -> None:
        table.delta.restore(version, **properties)

    notes = {"odradek.operation": f"restore {version}"}
    restored = table.swap(lambda: change, notes=notes)
    assert restored is not None
    return restored


def check(location: Location) -> Checked:
    """Look at every log entry and every file of the newest version."""
    faults = list(_log_faults(location))
    if faults:
        return Checked(-1, 0, 0, 0, faults)
    table = Table(location)
    files = data_files(table.delta)
    store = location.files()
    for file in files:
        faults += _file_faults(store, file.path, file.size_bytes, file.rows)
    unreferenced = vacuum(table, dry_run=True)
    return Checked(
        table.delta.version(),
        len(files),
        sum(file.rows for file in files),
        len(unreferenced),
        faults,
    )


def _log_faults(location: Location) -> Iterator[str]:
    if location.log is None or not location.log.is_dir():
        return
    found = entries(location.log)
    for entry in found:
        if not is_whole(entry):
            yield f"{entry.name}: torn"
    numbers = [int(entry.stem) for entry in found]
    for before, after in itertools.pairwise(numbers):
        if after != before + 1:
            yield f"versions {before + 1} to {after - 1} are missing"


def _file_faults(store: Any, path: str, size_bytes: int, rows: int) -> Iterator[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with store.open_input_file(path) as data:
            if data.size() != size_bytes:
                yield f"{path}: {data.size()} bytes, and the log says {size_bytes}"
                return
            footer = pq.read_metadata(data)
    except (OSError, pa.ArrowException) as error:
        yield f"{path}: {str(error).splitlines()[0]}"
        return
    if rows and footer.num_rows != rows:
        yield f"{path}: {footer.num_rows} rows, and the log says {rows}"
