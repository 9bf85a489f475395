"""Compaction, upserts, history, vacuum, restore and check."""

import datetime as dt
import os
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from tests.spark.tables.rows import (
    NUMBERS,
    found,
    land,
    numbers,
    readers,
    schema_of,
    written,
)

from odradek.spark.errors import OptionError, TableError
from odradek.spark.tables import table as table_module
from odradek.spark.tables.append import append, partition_values
from odradek.spark.tables.arrow_writer import directory_of
from odradek.spark.tables.compaction import chosen, compact
from odradek.spark.tables.inspection import at_version, check, history, info, restore
from odradek.spark.tables.merge import merge
from odradek.spark.tables.retention import (
    commit_cost_s,
    default_history_s,
    kept_s,
    properties,
    seconds,
    vacuum,
)
from odradek.spark.tables.source import TableSource, added_between
from odradek.spark.tables.table import Batch, DataFile, Table

MB = 1024 * 1024
PAGES = ["plain", "a b", "a/b", "ü", "x=y", "50%", "a:b?c#d&e", None, "long" * 30, "..", "[1]*"]


def sizes(*megabytes: float) -> list[DataFile]:
    return [DataFile(f"f{i:03d}", int(size * MB)) for i, size in enumerate(megabytes)]


def test_what_is_compacted_is_small_and_alike() -> None:
    def picked(files: list[DataFile], least: int = 8) -> list[int]:
        return [file.size_bytes // MB for file in chosen(files, 128 * MB, least)]

    assert picked(sizes(*[1] * 7)) == []
    assert picked(sizes(*[1] * 8)) == [1] * 8
    # A large file is not rewritten for a few small ones, and joins when they are as much.
    assert picked(sizes(*[1] * 8, 90)) == [1] * 8
    assert picked(sizes(*[1] * 30, 20)) == [*[1] * 30, 20]
    # Up to the target, and never what is large enough already.
    assert sum(picked(sizes(*[10] * 40))) <= 128 * 1.1
    assert picked(sizes(*[100] * 20)) == []


def test_a_day_of_batches_leaves_few_files() -> None:
    """The simulated day: 100 KB files, two a second, compacted every 100 batches."""
    files, rewritten, most = sizes(), 0, 0
    size, every = 100_000, 100
    for batch in range(0, 21_600, every):
        files += [DataFile(f"{batch}-{n}", size) for n in range(2 * every)]
        most = max(most, len(files))
        while plan := chosen(files, 128 * MB, 8):
            total = sum(file.size_bytes for file in plan)
            rewritten += total
            gone = {file.path for file in plan}
            files = [file for file in files if file.path not in gone]
            files.append(DataFile(f"{batch}-{total}-{len(files)}", total))
    assert most < 450
    assert rewritten / (21_600 * 2 * size) < 2.5


def test_files_become_one_and_readers_find_the_same_rows(tmp_path: Path) -> None:
    table = numbers(tmp_path / "t")
    for batch in range(9):
        land(table, batch, [batch, batch + 100])
    (done,) = compact(table, sort_by=["x"])
    assert (len(done.files), done.into.rows) == (9, 18)
    assert len(table.data_files()) == 1
    assert DeltaTable(tmp_path / "t").to_pyarrow_table()["x"].to_pylist() == found(tmp_path / "t")
    assert not list(compact(table))
    assert at_version(table.location, 9).delta.version() == 9
    # A batch that was landed stays counted, also in what compaction wrote.
    assert land(table, 8, [0]) == (None, 0)
    with pytest.raises(TableError, match="no column y to sort by"):
        list(compact(table, sort_by=["y"]))


def test_only_columns_whose_values_repeat_get_a_dictionary(tmp_path: Path) -> None:
    """Arrow's own choice is one for every column, of up to a megabyte."""
    schema = schema_of(x="long", page="string")
    table = numbers(tmp_path / "t", schema)
    rows = [pa.table({"x": range(n, n + 50), "page": ["a", "b"] * 25}) for n in range(0, 400, 50)]
    append(table, Batch("q/s", 0), schema, lambda: [written(tmp_path / "t", one) for one in rows])
    (done,) = compact(table)
    group = pq.read_metadata(tmp_path / "t" / done.into.path).row_group(0)
    has_dictionary = {
        (column := group.column(index)).path_in_schema: column.has_dictionary_page
        for index in range(2)
    }
    assert has_dictionary == {"x": False, "page": True}
    assert found(tmp_path / "t") == list(range(400))


def test_a_rewrite_whose_input_is_gone_is_dropped(tmp_path: Path) -> None:
    one = numbers(tmp_path / "t")
    for batch in range(8):
        land(one, batch, [batch])
    other = Table(one.location)
    steps = compact(other)
    refresh = other.refresh
    calls: list[None] = []

    def meanwhile() -> None:
        # After the plan and the rewriting, before the swap.
        if len(calls) == 1:
            list(compact(one))
        calls.append(None)
        refresh()

    other.refresh = meanwhile  # type: ignore[method-assign]  # a rival that is just in time
    assert not list(steps)
    assert found(tmp_path / "t") == list(range(8))
    assert not vacuum(one, dry_run=True)
    assert len(list((tmp_path / "t").glob("*.parquet"))) == 9


def paged(root: Path) -> Table:
    schema = schema_of(x="long", page="string")
    table = numbers(root, schema, partition_by=["page"])
    for batch in range(2):
        files = []
        for index, page in enumerate(PAGES):
            directory = directory_of(["page"], (page,))
            assert partition_values(f"{directory}f") == {"page": page}
            rows = pa.table({"x": [index]})
            files.append(written(root, rows, directory, page=page))
        append(table, Batch("q/s", batch), schema, partial(list, files))
    return table


def test_every_partition_value_through_every_reader_and_compaction(tmp_path: Path) -> None:
    table = paged(tmp_path / "t")
    expected = sorted((index, page or "") for index, page in enumerate(PAGES) for _ in range(2))

    def seen(rows: list[dict[str, Any]]) -> list[tuple[int, str]]:
        return sorted(
            (row["x"], row["page"] if isinstance(row["page"], str) else "") for row in rows
        )

    for name, read in readers(tmp_path / "t", ["x", "page"]).items():
        assert seen(read()) == expected, name
    assert len(list(compact(table, min_files=2))) == len(PAGES)
    assert len(table.data_files()) == len(PAGES)
    for name, read in readers(tmp_path / "t", ["x", "page"]).items():
        assert seen(read()) == expected, f"{name} after compaction"
    assert not check(table.location).faults


def test_an_upsert_replaces_what_has_its_keys(tmp_path: Path) -> None:
    schema = schema_of(k="string", minute="timestamp", n="long")
    table = numbers(tmp_path / "t", schema)
    minute = pa.timestamp("us", tz="UTC")

    def rows(**counts: int) -> pa.Table:
        keys = [None if key == "none" else key for key in counts]
        times = pa.array([0] * len(counts), minute)
        return pa.table(
            {"k": pa.array(keys, pa.string()), "minute": times, "n": [*counts.values()]}
        )

    keys = ["minute", "k"]
    assert merge(table, Batch("q/s", 0), rows(a=1, b=1, none=1), keys) == (1, 3)
    assert merge(table, Batch("q/s", 1), rows(b=5, c=1, none=7), keys) == (2, 3)
    assert merge(table, Batch("q/s", 1), rows(b=9), keys) == (None, 0)
    assert merge(table, Batch("q/s", 2), rows(), keys) == (None, 0)
    counted = DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist()
    assert {row["k"]: row["n"] for row in counted} == {"a": 1, "b": 5, "c": 1, None: 7}
    assert len(counted) == 4
    repeated = pa.concat_tables([rows(z=1), rows(z=2)])
    with pytest.raises(TableError, match=r"more than one row with minute = .*, k = 'z'"):
        merge(table, Batch("q/s", 2), repeated, keys)


def test_an_upsert_does_not_lose_a_column_that_was_dropped_meanwhile(tmp_path: Path) -> None:
    numbers(tmp_path / "t", schema_of(k="string"))
    table = numbers(tmp_path / "t", schema_of(k="string", n="long"), new_columns="add")
    rows = pa.table({"k": ["a"], "n": [1]})
    assert merge(table, Batch("q/s", 0), rows, ["k"]).version == 2
    restore(Table(table.location), 0)
    with pytest.raises(TableError, match="t: column n was dropped meanwhile"):
        merge(table, Batch("q/s", 1), rows, ["k"])


def test_a_merge_never_spills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap 9 of docs/spec/tables.md: with `max_spill_size` the library can hang for ever."""
    given: list[dict[str, object]] = []
    plain = DeltaTable.merge

    def watched(self: DeltaTable, *arguments: object, **named: object) -> object:
        given.append(named)
        return plain(self, *arguments, **named)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(DeltaTable, "merge", watched)
    table = numbers(tmp_path / "t", schema_of(k="string", n="long"))
    merge(table, Batch("q/s", 0), pa.table({"k": ["a"], "n": [1]}), ["k"])
    merge(table, Batch("q/s", 1), pa.table({"k": ["a"], "n": [2]}), ["k"])
    assert given
    assert not any(named.get("max_spill_size") for named in given)


def test_compaction_reads_file_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap 10 of docs/spec/tables.md: `pyarrow.dataset`, which `read_table` goes through, leaves
    some 100 MB behind for each thousand small files."""
    table = numbers(tmp_path / "t")
    for batch in range(10):
        land(table, batch, [batch])

    def refused(*arguments: object, **named: object) -> None:
        raise AssertionError("compaction reads through pyarrow.dataset")

    with monkeypatch.context() as patched:
        patched.setattr("pyarrow.dataset.dataset", refused)
        patched.setattr("pyarrow.parquet.read_table", refused)
        patched.setattr("pyarrow.parquet.ParquetDataset", refused)
        assert len(list(compact(table))) == 1
    assert found(tmp_path / "t") == list(range(10))


def test_a_merge_whose_files_a_power_failure_tore_is_put_aside(tmp_path: Path) -> None:
    table = numbers(tmp_path / "t")
    merge(table, Batch("q/s", 0), pa.table({"x": [1]}), ["x"])
    merge(table, Batch("q/s", 1), pa.table({"x": [2]}), ["x"])
    table.refresh()
    before = {file.path for file in at_version(table.location, 1).data_files()}
    (torn,) = [file for file in table.data_files() if file.path not in before]
    (tmp_path / "t" / torn.path).write_bytes(bytes(torn.size_bytes))
    table = numbers(tmp_path / "t")
    assert found(tmp_path / "t") == [1]
    assert merge(table, Batch("q/s", 1), pa.table({"x": [2]}), ["x"]).version == 2
    assert found(tmp_path / "t") == [1, 2]


def test_complete_mode_puts_a_batch_in_the_place_of_all(tmp_path: Path) -> None:
    table = numbers(tmp_path / "t")
    land(table, 0, [1, 2])

    def write() -> list[DataFile]:
        return [written(tmp_path / "t", pa.table({"x": [3]}))]

    assert append(table, Batch("q/s", 1), NUMBERS, write, "overwrite") == (2, 1)
    assert append(table, Batch("q/s", 1), NUMBERS, write, "overwrite") == (None, 0)
    assert found(tmp_path / "t") == [3]
    # Also by nothing, unlike an appended batch.
    assert append(table, Batch("q/s", 2), NUMBERS, list, "overwrite").version == 3
    assert found(tmp_path / "t") == []


def test_the_history_follows_from_the_trigger() -> None:
    assert default_history_s(1) == 50 * 60
    assert default_history_s(60) == 180_000
    assert default_history_s(86_400) == seconds("7 days")
    assert properties(60)["delta.deletedFileRetentionDuration"] == "interval 3600 seconds"
    assert properties(7200)["delta.logRetentionDuration"] == "interval 7200 seconds"
    assert kept_s(properties(60)) == 3600
    assert commit_cost_s(86_400, 1) == pytest.approx(1.0, rel=0.1)
    with pytest.raises(ValueError, match='a time such as "7 days"'):
        seconds("a week")


def test_vacuum_leaves_what_is_young_and_what_the_history_needs(tmp_path: Path) -> None:
    table = numbers(tmp_path / "t", properties=properties(7200))
    for batch in range(8):
        land(table, batch, [batch])
    list(compact(table))
    young, orphan, hidden = (tmp_path / "t" / name for name in ("y.parquet", "o.parquet", "_h/x"))
    hidden.parent.mkdir()
    for file in (young, orphan, hidden):
        file.write_bytes(b"x")
    long_ago = 1_000_000
    os.utime(orphan, (long_ago, long_ago))
    os.utime(hidden, (long_ago, long_ago))
    assert vacuum(table, dry_run=True) == ["o.parquet"]
    assert vacuum(table) == ["o.parquet"]
    assert young.exists() and hidden.exists() and not orphan.exists()
    assert at_version(table.location, 3).delta.to_pyarrow_table().num_rows == 3
    with pytest.raises(
        TableError, match=r"kept for 2\.0 hours, and vacuum removes nothing younger"
    ):
        vacuum(table, 3600)


def test_versions_and_times_gone_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = numbers(tmp_path / "t")
    moments = []
    for batch in range(3):
        land(table, batch, [batch])
        moments.append(dt.datetime.now(dt.UTC))
    assert at_version(table.location, 2).delta.to_pyarrow_table().num_rows == 2
    at = at_version(table.location, at=moments[0].isoformat())
    assert at.delta.version() == 1
    with pytest.raises(TableError, match="versions 0 to 3 can be read, not 4"):
        at_version(table.location, 4)
    with pytest.raises(TableError, match="not one of 2001-01-01"):
        at_version(table.location, at="2001-01-01")
    with pytest.raises(TableError, match="a time such as"):
        at_version(table.location, at="yesterday")
    # Beyond the history.
    monkeypatch.setattr(table_module, "CHECKPOINT_VERSIONS", 5)
    table = numbers(tmp_path / "t", properties={"delta.logRetentionDuration": "interval 0 seconds"})
    for batch in range(3, 6):
        land(table, batch, [batch])
    with pytest.raises(TableError, match=r"versions \d to 7 can be read, not 0"):
        at_version(table.location, 0)


def test_restored_rows_come_back_and_batches_stay_counted(tmp_path: Path) -> None:
    table = numbers(tmp_path / "t")
    for batch in range(3):
        land(table, batch, [batch])
    assert restore(table, 1) == 4
    assert found(tmp_path / "t") == [0]
    assert land(table, 2, [2]) == (None, 0)
    assert land(table, 3, [3]).version == 5
    with pytest.raises(TableError, match="versions 0 to 5 can be read, not 9"):
        restore(table, 9)


def test_what_a_table_tells_of_itself(tmp_path: Path) -> None:
    table = numbers(tmp_path / "t")
    notes = {"odradek.query": "q", "odradek.sink": "s", "odradek.offsets": "{}"}
    root = tmp_path / "t"
    rows = pa.table({"x": [1, 2]})
    append(table, Batch("q/s", 7, notes), NUMBERS, lambda: [written(root, rows)])
    table.refresh()
    reported = info(table)
    assert (reported.rows, reported.files, reported.small_files, reported.version) == (2, 1, 1, 1)
    assert reported.columns == {"x": "long"}
    assert reported.writers == {"q/s": 7}
    newest, first = history(table)
    assert (newest.version, newest.rows, newest.notes["offsets"]) == (1, 2, "{}")
    assert (first.version, first.operation) == (0, "create table")
    checked = check(table.location)
    assert (checked.files, checked.rows, checked.faults) == (1, 2, [])


def test_check_names_what_is_wrong(tmp_path: Path) -> None:
    table = numbers(tmp_path / "t")
    for batch in range(3):
        land(table, batch, [batch])
    gone, short, other = (tmp_path / "t" / file.path for file in table_files(table))
    gone.unlink()
    short.write_bytes(short.read_bytes()[:-1])
    other.write_bytes(bytes(other.stat().st_size))
    faults = check(table.location).faults
    assert len(faults) == 3
    assert sum("and the log says" in fault for fault in faults) == 1
    entry = tmp_path / "t" / "_delta_log" / f"{2:020d}.json"
    entry.write_bytes(b"")
    assert check(table.location).faults == [f"{entry.name}: torn"]


def table_files(table: Table) -> list[DataFile]:
    table.refresh()
    return table.data_files()


def test_what_versions_added_without_what_was_rewritten(tmp_path: Path) -> None:
    table = numbers(tmp_path / "t")
    for batch in range(8):
        land(table, batch, [batch])
    list(compact(table))
    assert len(added_between(table.location, 4, 9)) == 4
    merge(table, Batch("q/s", 8), pa.table({"x": [1]}), ["x"])
    with pytest.raises(TableError, match="version 10 changed or removed rows"):
        added_between(table.location, 9, 10)
    (tmp_path / "t" / "_delta_log" / f"{3:020d}.json").unlink()
    with pytest.raises(TableError, match="version 3 is not kept any more"):
        added_between(table.location, 1, 4)


def test_options_of_a_table_as_a_source_are_checked(tmp_path: Path) -> None:
    numbers(tmp_path / "t")
    path = str(tmp_path / "t")

    def source(**options: str) -> TableSource:
        return TableSource({"path": path, **options})

    schema = source().schema()
    assert schema.fieldNames() == ["x"]
    assert source(version="0").reader(schema).partitions()
    assert source(startingversion="latest").streamReader(schema).initialOffset() == {"version": 0}
    for options, said in (
        ({"maxVersionPerTrigger": "1"}, "unknown option .*; did you mean maxVersionsPerTrigger"),
        ({"maxVersionsPerTrigger": "0"}, "must be a number of 1 or more, got '0'"),
        ({"startingVersion": "-1"}, "startingVersion must be a number of 0 or more, got '-1'"),
    ):
        with pytest.raises(OptionError, match=said):
            source(**options).streamReader(schema)
    with pytest.raises(OptionError, match="unknown option startingversion"):
        source(startingVersion="1").reader(schema)
