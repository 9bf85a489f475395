"""A Delta table, and the one way to change it.

Rules
1. A commit is a compare-and-swap: read the newest version, decide, put the next version if it is
   absent, else start over. The library's own conflict check is never relied on: in deltalake 1.6.6
   it lets two compactions of one version through, and every row is there twice.
2. A batch's number is an application transaction of the commit that adds its rows: the batch is
   there once or not at all.
3. The library syncs nothing. Data files are synced before the put, the log entry and its directory
   after it, and only then is the batch reported to Spark as done.
4. Checkpoints are made here, after a commit, and synced before the entries they replace are
   removed: a torn checkpoint would otherwise be all that is left of the table.

What a crash leaves: before the put, files that no version names (vacuum removes them); after it,
the version. A power failure in between leaves the last entry whole, torn or absent: `mend` puts a
torn one aside, which no batch was ever acknowledged by.
"""

import json
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from odradek.spark.errors import TableError
from odradek.spark.tables.location import Location, sync, sync_parents

logger = logging.getLogger(__name__)

TURNS_MAX = 100
CHECKPOINT_VERSIONS = 50
TORN = ".torn-"
LAST_CHECKPOINT = "_last_checkpoint"
# What this reader and writer of tables does not do: a table that needs it is refused.
UNSUPPORTED = ("deletionVectors", "columnMapping")


class Batch(NamedTuple):
    """One batch of one query's sink: who lands it, its number, and what the history says of it."""

    writer: str
    number: int
    notes: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of the table: its path on disk, relative to the table, and what the log says of it."""

    path: str
    size_bytes: int
    values: Mapping[str, str | None] = field(default_factory=dict)
    rows: int = 0
    statistics: str = ""

    def added(self, data_change: bool = True) -> Any:
        from deltalake.transaction import AddAction

        return AddAction(
            self.path, self.size_bytes, self.values, _now_ms(), data_change, self.statistics
        )

    def removed(self) -> Any:
        """Rewritten: the same rows are in another file."""
        from deltalake.transaction import RemoveAction

        return RemoveAction(self.path, False, _now_ms(), self.size_bytes, dict(self.values))


# What a turn of the swap does with the commit's properties; None if there is nothing to do.
Change = Callable[..., object]


class Table:
    """A table that is there. Not for several threads at once."""

    def __init__(self, location: Location) -> None:
        """TableError if there is none, or one that needs what we do not have."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        self.location = location
        options = dict(location.storage) or None
        try:
            self.delta = DeltaTable(location.uri, storage_options=options)
        except TableNotFoundError:
            raise TableError(f"{location.uri}: there is no table") from None
        except DeltaError as error:
            raise TableError(f"{location.uri}: {_first_line(error)}") from None
        self._refuse_unsupported()

    def _refuse_unsupported(self) -> None:
        protocol = self.delta.protocol()
        configuration = self.delta.metadata().configuration
        needed = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
        if configuration.get("delta.columnMapping.mode", "none") == "none":
            needed.discard("columnMapping")
        else:
            needed.add("columnMapping")
        for feature in UNSUPPORTED:
            if feature in needed:
                raise TableError(f"{self.location.uri}: tables with {feature} are not supported")

    # What it is now

    def refresh(self) -> None:
        """See what others have committed, and what this handle has: it does not by itself."""
        from deltalake.exceptions import DeltaError

        try:
            self.delta.update_incremental()
        except DeltaError:
            # Entries between its version and the newest were cleaned up: open it again.
            self.delta = type(self)(self.location).delta

    @property
    def partition_by(self) -> list[str]:
        return list(self.delta.metadata().partition_columns)

    def schema_text(self) -> str:
        """The schema as Spark writes schemas."""
        return str(self.delta.schema().to_json())

    def arrow_schema(self) -> Any:
        """What data files have: every column but those of the partitions, each nullable."""
        import pyarrow as pa

        by = self.partition_by
        fields = pa.schema(self.delta.schema().to_arrow())
        return pa.schema([one.with_nullable(True) for one in fields if one.name not in by])

    def data_files(self) -> list[DataFile]:
        """The files of the version last seen."""
        return data_files(self.delta)

    def has(self, batch: Batch) -> bool:
        """Whether the batch, or a later one of its writer, is in the version last seen.

        Then it is synced: who put it may have been killed before that, and by this answer Spark
        will not bring it again."""
        seen = self.delta.transaction_version(batch.writer)
        if seen is None or seen < batch.number:
            return False
        if self.location.log is not None:
            self._sync_last_of(batch.writer, self.location.log)
        return True

    def _sync_last_of(self, writer: str, log: Path) -> None:
        for entry in reversed(entries(log)):
            try:
                actions = actions_of(entry)
            except FileNotFoundError:
                return  # too old, and removed only since a later checkpoint is on disk
            if any(action.get("txn", {}).get("appId") == writer for action in actions):
                sync_added(self.location, actions)
                sync(entry)
                sync(log)
                return

    # The one way to change it

    def swap(
        self,
        decide: Callable[[], Change | None],
        batch: Batch | None = None,
        notes: Mapping[str, str] | None = None,
        *,
        is_fresh: bool = False,
    ) -> int | None:
        """Commit what is decided on the newest version; the version it became.

        None if there is nothing to commit: the batch is there, or `decide` says so. A caller that
        has refreshed the table says `is_fresh`: if it is not the newest any more, the put fails."""
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import CommitProperties, PostCommitHookProperties, Transaction

        transactions = [] if batch is None else [Transaction(batch.writer, batch.number)]
        texts = {**(batch.notes if batch else {}), **(notes or {})}
        for turn in range(TURNS_MAX):
            if turn or not is_fresh:
                self.refresh()
            if batch is not None and self.has(batch):
                return None
            change = decide()
            if change is None:
                return None
            version = self.delta.version() + 1
            try:
                change(
                    commit_properties=CommitProperties(texts, 0, transactions),
                    post_commithook_properties=PostCommitHookProperties(False, False),
                )
            except CommitFailedError as error:
                logger.debug("%s: version %d was taken: %s", self.location.uri, version, error)
                continue
            self._make_durable(version)
            return version
        raise TableError(
            f"{self.location.uri}: not committed in {TURNS_MAX} attempts: others commit faster"
        )

    def commit_files(self, actions: list[Any], mode: str = "append") -> Change:
        """The change that adds and removes files; mode "overwrite" removes all others too."""

        def change(**properties: Any) -> None:
            self.delta.create_write_transaction(
                actions, mode, self.delta.schema(), self.partition_by, **properties
            )

        return change

    def _make_durable(self, version: int) -> None:
        if (log := self.location.log) is not None:
            sync(log / entry_name(version))
            sync(log)
        if version % CHECKPOINT_VERSIONS == 0:
            self.checkpoint()

    def checkpoint(self) -> None:
        """One file for all that the log says so far; then entries beyond the history may go."""
        self.refresh()
        version = self.delta.version()
        self.delta.create_checkpoint()
        if (log := self.location.log) is not None:
            for file in (*log.glob(f"{version:020d}.checkpoint*"), log / LAST_CHECKPOINT):
                sync(file)
            sync(log)
        self.delta.cleanup_metadata()


def data_files(delta: Any) -> list[DataFile]:
    """The files of the version that a handle has."""
    import pyarrow as pa

    actions = pa.table(delta.get_add_actions())
    count = actions.num_rows
    names = actions.column_names
    values = actions["partition"].to_pylist() if "partition" in names else [{}] * count
    rows = actions["num_records"].to_pylist() if "num_records" in names else [None] * count
    # The log has paths percent-encoded; what is added and removed is named as on disk.
    return [
        DataFile(
            unquote(path),
            size,
            {name: partition_text(value) for name, value in (partition or {}).items()},
            count or 0,
        )
        for path, size, partition, count in zip(
            actions["path"].to_pylist(),
            actions["size_bytes"].to_pylist(),
            values,
            rows,
            strict=True,
        )
    ]


def partition_text(value: Any) -> str | None:
    """A partition's value as the log has it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if hasattr(value, "astimezone"):
        return str(value.replace(tzinfo=None).isoformat(sep=" "))
    return str(value)


def create(
    location: Location,
    schema_text: str,
    partition_by: Iterable[str] = (),
    properties: Mapping[str, str] | None = None,
) -> Table:
    """The table, created if there is none; of two writers the second finds that of the first."""
    from deltalake import DeltaTable, Schema
    from deltalake.exceptions import CommitFailedError, DeltaError

    try:
        DeltaTable.create(
            location.uri,
            Schema.from_json(schema_text),
            mode="ignore",
            partition_by=list(partition_by),
            configuration=dict(properties or {}),
            storage_options=dict(location.storage) or None,
        )
    except CommitFailedError:
        pass  # another has just made it
    except (DeltaError, ValueError) as error:
        raise TableError(f"{location.uri}: {_first_line(error)}") from None
    if location.root is not None and location.log is not None:
        for entry in entries(location.log)[:1]:
            sync(entry)
        sync_parents(location.log, location.root)
    return Table(location)


# After a power failure


def mend(location: Location) -> str | None:
    """Put aside the last log entry if a power failure tore it; says what was done.

    TableError for a torn entry that is not the last: what came after it was built on it. A living
    writer's entry is never half there: it is linked from a finished file. So is a checkpoint, and
    the entries that a torn one stands for are still there (rule 4)."""
    log = location.log
    if log is None or not log.is_dir():
        return None
    found = entries(log)
    for entry in found[:-1]:
        if not is_whole(entry):
            raise TableError(
                f"{entry}: this log entry is torn, and it is not the last one; restore the file "
                "from a copy"
            )
    done = []
    if found and (why := _tear(location, found[-1])) is not None:
        done.append(f"{found[-1]}: {why}; put aside, its batch was never acknowledged")
        _put_aside(found[-1])
    for file in _torn_checkpoint(log):
        done.append(f"{file}: torn, put aside")
        _put_aside(file)
    for line in done:
        logger.warning("%s", line)
    return "\n".join(done) or None


def entries(log: Path) -> list[Path]:
    """The log's entries in order."""
    return sorted(
        file for file in log.glob("*.json") if len(file.stem) == 20 and file.stem.isdigit()
    )


def entry_name(version: int) -> str:
    return f"{version:020d}.json"


def actions_of(entry: Path) -> list[dict[str, Any]]:
    """What one version did; ValueError if the entry is torn."""
    text = entry.read_bytes()
    if not text.strip(b"\n"):
        raise ValueError("empty")
    return [json.loads(line) for line in text.splitlines()]


def is_whole(entry: Path) -> bool:
    """Whether every line of an entry says something; or a writer has just removed it as too old."""
    try:
        return all(isinstance(action, dict) for action in actions_of(entry))
    except FileNotFoundError:
        return True
    except ValueError:
        return False


def sync_added(location: Location, actions: Iterable[Mapping[str, Any]]) -> None:
    """Sync the data files that a version added, and the names of them."""
    assert location.root is not None
    files = [location.root / unquote(one["add"]["path"]) for one in actions if "add" in one]
    for path in (*files, *{file.parent for file in files}):
        with suppress(FileNotFoundError):  # rewritten by a later version, and vacuumed
            sync(path)


def _tear(location: Location, entry: Path) -> str | None:
    """What a power failure did to the last entry, or to the files of a merge, which the library
    writes and commits in one call that syncs nothing."""
    if not is_whole(entry):
        return "torn"
    actions = actions_of(entry)
    if not any(action.get("commitInfo", {}).get("operation") == "MERGE" for action in actions):
        return None
    assert location.root is not None
    for added in (action["add"] for action in actions if "add" in action):
        file = location.root / unquote(added["path"])
        if not file.exists() or file.stat().st_size != added["size"] or not _ends_whole(file):
            return f"its file {added['path']} is torn"
    return None


def _ends_whole(file: Path) -> bool:
    with file.open("rb") as data:
        data.seek(-4, 2)
        return data.read() == b"PAR1"


def _torn_checkpoint(log: Path) -> list[Path]:
    """What is torn of the newest checkpoint, which readers look for with and without the file that
    names it; and that file, if there is no such checkpoint."""
    checkpoints = list(log.glob("[0-9]*.checkpoint*.parquet"))
    newest = max((file.name[:20] for file in checkpoints), default="")
    torn = [file for file in checkpoints if file.name.startswith(newest) and not _is_parquet(file)]
    pointer = log / LAST_CHECKPOINT
    try:
        named = f"{json.loads(pointer.read_text())['version']:020d}"
    except FileNotFoundError:
        return torn
    except (ValueError, KeyError, TypeError):
        return [*torn, pointer]
    is_there = any(file.name.startswith(named) for file in checkpoints if file not in torn)
    return torn if is_there else [*torn, pointer]


def _is_parquet(file: Path) -> bool:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_metadata(file) is not None
    except FileNotFoundError:
        return True  # a writer has just removed it as too old
    except (pa.ArrowException, OSError):
        return False


def _put_aside(file: Path) -> None:
    file.rename(file.with_name(f"{TORN}{_now_ms()}-{file.name}"))
    sync(file.parent)


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
