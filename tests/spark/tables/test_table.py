"""The commit: once or not at all, while others commit; and what a power failure leaves."""

import itertools
import json
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, CommitProperties, Transaction
from tests.spark.tables.rows import NUMBERS, found, land, numbers, schema_of, written

from odradek.spark.errors import TableError
from odradek.spark.tables import table as module
from odradek.spark.tables.append import append
from odradek.spark.tables.compaction import compact
from odradek.spark.tables.inspection import check
from odradek.spark.tables.location import Location
from odradek.spark.tables.merge import merge
from odradek.spark.tables.source import added_between
from odradek.spark.tables.table import (
    LAST_CHECKPOINT,
    TORN,
    Batch,
    Table,
    entries,
    entry_name,
    mend,
)

BATCHES = int(os.environ.get("ODRADEK_BATCHES", "36"))


def test_a_batch_that_comes_again_is_landed_once(tmp_path: Path) -> None:
    table = numbers(tmp_path / "t")
    assert land(table, 0, [1, 2]) == (1, 2)
    assert land(table, 0, [1, 2]) == (None, 0)
    assert land(numbers(tmp_path / "t"), 0, [1, 2]) == (None, 0)
    # One that is older than the last is there too, though the library would take it.
    assert land(table, 1, [3]) == (2, 1)
    assert land(table, 0, [1, 2]) == (None, 0)
    # A checkpoint thrown away counts from 0 under another id.
    assert land(table, 0, [4], writer="r/s") == (3, 1)
    assert found(tmp_path / "t") == [1, 2, 3, 4]


def test_a_batch_without_rows_commits_nothing(tmp_path: Path) -> None:
    table = numbers(tmp_path / "t")
    assert land(table, 0, [], files=0) == (None, 0)
    assert table.delta.version() == 0


def test_two_drivers_land_one_batch_once(tmp_path: Path) -> None:
    one, other = numbers(tmp_path / "t"), numbers(tmp_path / "t")

    def meanwhile() -> list[module.DataFile]:
        assert land(other, 0, [1]).version == 1
        return [written(tmp_path / "t", pa.table({"x": [1]}))]

    assert append(one, Batch("q/s", 0), NUMBERS, meanwhile) == (None, 0)
    assert found(tmp_path / "t") == [1]


# Traps of the library that the protocol works around, numbered as in docs/spec/tables.md. If an
# upgrade changes one of them, it is seen here.


def test_the_library_lets_two_compactions_of_one_version_through(tmp_path: Path) -> None:
    for first in range(0, 50, 10):
        write_deltalake(tmp_path / "t", pa.table({"x": range(first, first + 10)}), mode="append")
    one, other = DeltaTable(tmp_path / "t"), DeltaTable(tmp_path / "t")
    one.optimize.compact()
    other.optimize.compact()
    assert len(found(tmp_path / "t")) == 100, "fixed upstream: our own compaction may go"


def test_a_handle_of_the_library_does_not_see_its_own_commit(tmp_path: Path) -> None:
    table = numbers(tmp_path / "t")
    handle = table.delta
    added = written(tmp_path / "t", pa.table({"x": [1]})).added()
    once = CommitProperties(max_commit_retries=0)
    handle.create_write_transaction([added], "append", handle.schema(), commit_properties=once)
    assert handle.version() == 0
    with pytest.raises(CommitFailedError):
        handle.create_write_transaction([added], "append", handle.schema(), commit_properties=once)
    handle.update_incremental()
    assert handle.version() == 1


def crowd(root: Path, writers: int, batches: int, compactors: int) -> list[int]:
    """Writers that land and compactors that rewrite, all at once; the numbers landed."""
    numbers(root)
    stop, errors = threading.Event(), []

    def write(number: int) -> None:
        table = Table(Location.of(root))
        for batch in range(batches):
            land(table, batch, [number * batches + batch], writer=f"w{number}/s")

    def rewrite() -> None:
        table = Table(Location.of(root))
        while not stop.is_set():
            list(compact(table, min_files=2))

    def guarded(work: object, *arguments: int) -> None:
        try:
            work(*arguments)  # type: ignore[operator]  # one of the two above
        except BaseException as error:
            errors.append(error)
            raise

    landing = [threading.Thread(target=guarded, args=(write, n)) for n in range(writers)]
    rewriting = [threading.Thread(target=guarded, args=(rewrite,)) for _ in range(compactors)]
    for thread in (*landing, *rewriting):
        thread.start()
    for thread in landing:
        thread.join()
    stop.set()
    for thread in rewriting:
        thread.join()
    assert not errors
    return list(range(writers * batches))


def test_the_library_checks_no_schema_no_batch_and_no_file(tmp_path: Path) -> None:
    """Trap 4. We check columns and batch; that files are there follows from syncing each before the
    commit, which has a test below."""
    table = numbers(tmp_path / "t")
    root, theirs = tmp_path / "t", table.delta

    def put(added: AddAction, batch: int) -> None:
        theirs.update_incremental()
        theirs.create_write_transaction(
            [added],
            "append",
            theirs.schema(),
            commit_properties=CommitProperties(app_transactions=[Transaction("q/s", batch)]),
        )

    put(written(root, pa.table({"x": [1], "further": ["lost"]})).added(), 7)
    assert DeltaTable(root).to_pyarrow_table().column_names == ["x"], "a column is unseen"
    put(written(root, pa.table({"x": [2]})).added(), 3)
    assert found(root) == [1, 2], "an older batch is taken"
    missing = written(root, pa.table({"x": [3]}))
    (root / missing.path).unlink()
    put(missing.added(), 8)
    with pytest.raises(Exception, match=r"No such file|not found"):
        found(root)

    ours = numbers(tmp_path / "ours")
    assert land(ours, 7, [1]) == (1, 1)
    assert land(ours, 3, [2]) == (None, 0)
    further = pa.table({"x": [3], "further": ["refused"]})
    with pytest.raises(TableError, match="further"):
        append(
            ours,
            Batch("q/s", 8),
            schema_of(x="long", further="string"),
            lambda: [written(tmp_path / "ours", further)],
        )
    assert found(tmp_path / "ours") == [1]


@pytest.mark.timeout(300 + BATCHES)
def test_writers_and_compactors_at_once_leave_every_row_once(tmp_path: Path) -> None:
    landed = crowd(tmp_path / "t", writers=3, batches=BATCHES // 3, compactors=2)
    assert found(tmp_path / "t") == landed


def test_without_our_own_compare_and_swap_rows_would_come_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same two compactions with the library's retries: what rule 1 is for."""
    table = numbers(tmp_path / "t")
    for batch in range(8):
        land(table, batch, [batch])
    one, other = Table(table.location), Table(table.location)
    plain = CommitProperties.__init__

    def with_retries(self: CommitProperties, *arguments: object, **named: object) -> None:
        plain(self, arguments[0] if arguments else None)  # type: ignore[arg-type]  # as given

    list(compact(one))
    monkeypatch.setattr(CommitProperties, "__init__", with_retries)
    monkeypatch.setattr(other, "refresh", lambda: None)  # as a handle of the library stays behind
    next(iter(compact(other)))
    assert found(tmp_path / "t") == sorted([*range(8), *range(8)])


def test_a_swap_that_never_wins_ends_with_a_sentence(tmp_path: Path) -> None:
    table, other = numbers(tmp_path / "t"), numbers(tmp_path / "t")
    batches = itertools.count()

    def decide() -> module.Change:
        land(other, next(batches), [1], writer="o/s")
        return table.commit_files([])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TURNS_MAX", 3)
        with pytest.raises(TableError, match="not committed in 3 attempts"):
            table.swap(decide)


# After a power failure


@pytest.mark.parametrize("tear", ["emptied", "cut", "zeroed"])
def test_a_torn_last_entry_is_put_aside_and_its_batch_lands_once(
    tmp_path: Path, tear: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = numbers(tmp_path / "t")
    land(table, 0, [1])
    land(table, 1, [2])
    assert table.location.log is not None
    last = entries(table.location.log)[-1]
    whole = last.read_bytes()
    torn = {"emptied": b"", "cut": whole[: len(whole) // 2], "zeroed": bytes(len(whole))}[tear]
    last.write_bytes(torn)
    table = numbers(tmp_path / "t")
    assert "put aside" in caplog.text
    assert any(name.startswith(TORN) for name in os.listdir(last.parent))
    assert land(table, 1, [2]).version == 2
    assert found(tmp_path / "t") == [1, 2]


@pytest.mark.parametrize("text", [b"", b"{"])
def test_a_torn_entry_that_is_not_the_last_is_refused_by_name(tmp_path: Path, text: bytes) -> None:
    table = numbers(tmp_path / "t")
    land(table, 0, [1])
    land(table, 1, [2])
    assert table.location.log is not None
    (table.location.log / f"{1:020d}.json").write_bytes(text)
    with pytest.raises(TableError, match=r"0001\.json: this log entry is torn"):
        numbers(tmp_path / "t")


@pytest.mark.parametrize("tear", ["emptied", "cut", "zeroed"])
@pytest.mark.parametrize("pointer", ["there", "torn", "absent"])
def test_a_torn_checkpoint_is_put_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tear: str, pointer: str
) -> None:
    """Readers look for checkpoints by their names too, not only in the file that names the last."""
    monkeypatch.setattr(module, "CHECKPOINT_VERSIONS", 3)
    table = numbers(tmp_path / "t")
    for batch in range(7):
        land(table, batch, [batch])
    log = tmp_path / "t" / "_delta_log"
    earlier, torn = sorted(log.glob("0*.checkpoint.parquet"))
    whole = torn.read_bytes()
    torn.write_bytes({"emptied": b"", "cut": whole[:100], "zeroed": bytes(len(whole))}[tear])
    if pointer == "torn":
        (log / LAST_CHECKPOINT).write_bytes(b"{")
    elif pointer == "absent":
        (log / LAST_CHECKPOINT).unlink()
    assert f"{torn}: torn, put aside" in str(mend(table.location))
    assert list(log.glob("0*.checkpoint.parquet")) == [earlier]
    assert not (log / LAST_CHECKPOINT).exists()
    assert mend(table.location) is None
    assert land(numbers(tmp_path / "t"), 7, [7]).version == 8
    assert found(tmp_path / "t") == list(range(8))


def test_a_checkpoint_that_is_gone_is_not_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECKPOINT_VERSIONS", 3)
    table = numbers(tmp_path / "t")
    for batch in range(4):
        land(table, batch, [batch])
    log = tmp_path / "t" / "_delta_log"
    (checkpoint,) = log.glob("0*.checkpoint.parquet")
    checkpoint.unlink()
    assert f"{LAST_CHECKPOINT}: torn, put aside" in str(mend(table.location))
    assert land(numbers(tmp_path / "t"), 4, [4]).version == 5
    assert found(tmp_path / "t") == list(range(5))


def test_mending_takes_an_entry_that_a_writer_removes_meanwhile_for_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A verb mends while a pipeline cleans up what its history does not need."""
    table = numbers(tmp_path / "t")
    for batch in range(2):
        land(table, batch, [batch])
    listed = module.entries

    def removed_after(log: Path) -> list[Path]:
        found = listed(log)
        (log / f"{0:020d}.json").unlink()
        return found

    monkeypatch.setattr(module, "entries", removed_after)
    assert mend(table.location) is None


def test_a_whole_table_needs_no_mending(tmp_path: Path) -> None:
    assert mend(Location.of(tmp_path / "none")) is None
    land(numbers(tmp_path / "t"), 0, [1])
    assert mend(Location.of(tmp_path / "t")) is None


# Columns


def test_columns_that_do_not_fit_are_refused_with_both_types(tmp_path: Path) -> None:
    numbers(tmp_path / "t")
    with pytest.raises(TableError, match="column x is long in the table and string in the view"):
        numbers(tmp_path / "t", schema_of(x="string"))
    with pytest.raises(TableError, match='no column y; new_columns = "add" adds it'):
        numbers(tmp_path / "t", schema_of(x="long", y="date"))
    with pytest.raises(TableError, match="column X: the table has x"):
        numbers(tmp_path / "t", schema_of(X="long"), new_columns="add")
    with pytest.raises(TableError, match="partitioned by nothing"):
        numbers(tmp_path / "t", partition_by=["x"])


def test_a_new_column_is_added_and_null_before(tmp_path: Path) -> None:
    table = numbers(tmp_path / "t")
    land(table, 0, [1])
    table = numbers(tmp_path / "t", schema_of(x="long", y="string"), new_columns="add")
    from odradek.spark.tables.append import append

    rows = pa.table({"x": [2], "y": ["b"]})
    append(
        table,
        Batch("q/s", 1),
        schema_of(x="long", y="string"),
        lambda: [written(tmp_path / "t", rows)],
    )
    # A frame with fewer columns fits, and what it lacks is null.
    land(numbers(tmp_path / "t"), 2, [3])
    list(compact(table, min_files=2))
    assert sorted(map(str, found_pairs(tmp_path / "t"))) == ["(1, None)", "(2, 'b')", "(3, None)"]


def found_pairs(root: Path) -> list[tuple[object, object]]:
    rows = DeltaTable(root).to_pyarrow_table().to_pylist()
    return [(row["x"], row["y"]) for row in rows]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a b": "long"}, "column 'a b': a table's names"),
        ({"v": "void"}, "column v: a table has no type void"),
        ({"v": "interval day"}, "column v: a table has no type interval day"),
    ],
)
def test_what_delta_has_no_word_for_is_refused(
    tmp_path: Path, columns: dict[str, str], message: str
) -> None:
    with pytest.raises(TableError, match=message):
        numbers(tmp_path / "t", schema_of(**columns))


# Other people's tables


def test_a_table_written_by_the_library_is_appended_to(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"x": [1]}))
    assert land(numbers(tmp_path / "t"), 0, [2]).version == 1
    write_deltalake(tmp_path / "t", pa.table({"x": [3]}), mode="append")
    assert found(tmp_path / "t") == [1, 2, 3]


@pytest.mark.parametrize("feature", ["deletionVectors", "columnMapping"])
def test_a_table_that_needs_what_we_lack_is_refused_by_name(tmp_path: Path, feature: str) -> None:
    numbers(tmp_path / "t")
    entry = tmp_path / "t" / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            action["protocol"] = {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": [feature],
                "writerFeatures": [feature],
            }
        if "metaData" in action and feature == "columnMapping":
            action["metaData"]["configuration"]["delta.columnMapping.mode"] = "name"
    entry.write_text("\n".join(map(json.dumps, actions)))
    with pytest.raises(TableError, match=feature):
        Table(Location.of(tmp_path / "t"))


def test_where_a_table_can_be() -> None:
    assert Location.of("file:/a/b").uri == Location.of("file:///a/b").uri == "/a/b"
    assert Location.of("s3://bucket/a/").root is None
    with pytest.raises(TableError, match="a local directory or s3://"):
        Location.of("gs://bucket/a")
    with pytest.raises(TableError, match="there is no table"):
        Table(Location.of("/nowhere/at/all"))


def test_data_is_synced_before_the_put_and_the_entry_before_the_acknowledgement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.spark.tables.crash import EVENTS, frame

    from odradek.spark.tables.append import Staging, append

    root = tmp_path / "t"
    table = numbers(root, EVENTS, partition_by=["page"])
    entry = root / "_delta_log" / f"{1:020d}.json"
    synced: list[tuple[int, bool]] = []
    fsync = os.fsync

    def recorded(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, entry.exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    rows = pa.table({"x": [1, 2], "page": ["a", "b"]})
    staging = Staging(root, "q/s", ["page"])
    append(table, Batch("q/s", 0), EVENTS, lambda: staging.write(frame(rows), 0))
    before = {inode for inode, is_put in synced if not is_put}
    after = [inode for inode, is_put in synced if is_put]
    placed = {file.stat().st_ino for file in root.rglob("*.parquet")}
    directories = {file.parent.stat().st_ino for file in root.rglob("*.parquet")}
    assert placed | directories | {root.stat().st_ino} <= before
    assert after == [entry.stat().st_ino, entry.parent.stat().st_ino]


def test_a_batch_that_is_found_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its driver may have been killed between the put and the sync, and Spark will not bring it
    again. Nor has the killed one synced what a merge wrote."""
    root = tmp_path / "t"
    table = numbers(root)
    with monkeypatch.context() as killed:
        killed.setattr(module, "sync", lambda path: None)
        land(table, 0, [1])
        merge(table, Batch("r/s", 0), pa.table({"x": [2]}), ["x"])
    synced: list[int] = []
    fsync = os.fsync

    def recorded(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    log = root / "_delta_log"
    for writer, version in (("q/s", 1), ("r/s", 2)):
        (file,) = added_between(table.location, version - 1, version)
        synced.clear()
        assert land(table, 0, [9], writer=writer) == (None, 0)
        assert synced == [
            one.stat().st_ino for one in (root / file.path, root, log / entry_name(version), log)
        ]
        synced.clear()
        assert merge(table, Batch(writer, 0), pa.table({"x": [9]}), ["x"]) == (None, 0)
        assert len(synced) == 4


@contextmanager
def full_disk(bytes_left: int) -> Iterator[None]:
    """No file grows beyond so many bytes: the system refuses the write, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_left, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("bytes_left", [0, 100, 3000])
def test_a_full_disk_fails_the_batch_and_its_repetition_lands(
    tmp_path: Path, bytes_left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While data files are written, while the entry is, and while the checkpoint after it is."""
    monkeypatch.setattr(module, "CHECKPOINT_VERSIONS", 2)
    root = tmp_path / "t"
    table = numbers(root)
    land(table, 0, [1])
    staged = written(root, pa.table({"x": [2]}))

    def write() -> list[module.DataFile]:
        return [staged if bytes_left else written(root, pa.table({"x": [2]}))]

    with full_disk(bytes_left), pytest.raises((OSError, DeltaError)):
        append(table, Batch("q/s", 1), NUMBERS, write)
    # The checkpoint comes after the commit.
    rows = [1, 2] if bytes_left == 3000 else [1]
    assert found(root) == rows
    again = numbers(root)
    assert land(again, 1, [2]).rows == 2 - len(rows)
    with full_disk(100), pytest.raises((OSError, DeltaError)):
        merge(again, Batch("q/s", 2), pa.table({"x": [3]}), ["x"])
    assert found(root) == [1, 2]
    assert merge(numbers(root), Batch("q/s", 2), pa.table({"x": [3]}), ["x"]).rows == 1
    assert found(root) == [1, 2, 3]
    assert not check(table.location).faults


def test_hundreds_of_batches_keep_few_files_and_a_short_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECKPOINT_VERSIONS", 10)
    retention = {"delta.logRetentionDuration": "interval 0 seconds"}
    table = numbers(tmp_path / "t", properties=retention)
    for batch in range(120):
        land(table, batch, [batch])
        if batch % 20 == 19:
            list(compact(table))
    table.refresh()
    assert found(tmp_path / "t") == list(range(120))
    assert len(table.data_files()) <= 16
    assert len(entries(tmp_path / "t" / "_delta_log")) <= 20
    # What was landed stays counted when its entries are gone.
    assert land(numbers(tmp_path / "t", properties=retention), 119, [119]) == (None, 0)
