"""Landing batches in a directory of Parquet files, each exactly once.

A batch goes through four steps, and a process that is killed between any two of them is repeated
by Spark with the same batch number and the same rows:

1. stage: the files are written beside the lake, where nobody looks, each attempt in a directory of
   its own.
2. decide: their list is written to a file under the batch's number, at one stroke and only if none
   is there. From here on the batch counts: whoever finds the list finishes it, and never writes the
   batch again.
3. publish: each file is renamed into the lake. A file that is not staged any more is there already.
4. clean up: the staging directories of the batch go.

A process that was thought dead and goes on does no harm either: its files are in a directory that
no list names, or its list was the first.

So every file in the lake is whole and its rows are there once, for any reader that can list a
directory. What is kept beside the lake, in `_<name>`, is on the same file system, since a rename
must be a rename. BATCHES_KEPT lists are kept: Spark only ever repeats the last batch.
"""

import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BATCHES_KEPT = 100


@dataclass(frozen=True, slots=True)
class Landed:
    """What a batch added to the lake: files, relative to the lake, and rows.

    `attempt` is the directory in which they were staged."""

    batch: int
    files: tuple[str, ...]
    rows: int
    attempt: str


class Rows(Protocol):
    """What can be written as Parquet files."""

    def write_to(self, directory: Path) -> int: ...


class Lake:
    """A directory of Parquet files and the memory of who landed what in it."""

    def __init__(self, path: str | Path, writer: str) -> None:
        """`writer` tells apart several queries that land in one lake."""
        self.path = Path(str(path).removeprefix("file:"))
        self._beside = self.path.parent / f"_{self.path.name}"
        self._staging = self._beside / "staging" / writer
        self._batches = self._beside / "batches" / writer

    @property
    def beside(self) -> Path:
        """What belongs to the lake and is not data."""
        return self._beside

    def land(self, batch: int, rows: Rows) -> Landed:
        """Add a batch; one that was added before stays as it was."""
        landed = self.decided(batch)
        if landed is None:
            attempt = f"{batch}-{uuid.uuid4().hex}"
            staged = self._staging / attempt
            staged.mkdir(parents=True)
            count = rows.write_to(staged)
            # Spark writes a file also for no rows.
            files = tuple(sorted(data_files(staged))) if count else ()
            landed = self.decide(Landed(batch, files, count, attempt))
        self.publish(landed)
        self.clean_up(batch)
        return landed

    def decided(self, batch: int) -> Landed | None:
        """What the batch was decided to be, if it was."""
        try:
            values = json.loads((self._batches / f"{batch}.json").read_text())
        except FileNotFoundError:
            return None
        return Landed(batch, tuple(values["files"]), values["rows"], values["attempt"])

    def decide(self, landed: Landed) -> Landed:
        """Make it so, unless it was decided otherwise; what was decided."""
        for file in landed.files:
            sync(self._staging / landed.attempt / file)
        self._batches.mkdir(parents=True, exist_ok=True)
        values = {"files": landed.files, "rows": landed.rows, "attempt": landed.attempt}
        path = self._batches / f"{landed.batch}.json"
        if write_first(path, json.dumps(values)):
            return landed
        earlier = self.decided(landed.batch)
        assert earlier is not None
        return earlier

    def publish(self, landed: Landed) -> None:
        staged = self._staging / landed.attempt
        directories = {self.path}
        with self.held():
            for file in landed.files:
                _move(staged / file, self.path / file)
                directories.add((self.path / file).parent)
        for directory in directories:
            if directory.exists():
                sync(directory)

    @contextmanager
    def held(self, alone: bool = False) -> Iterator[None]:
        """Whoever lands shares the lake; whoever exchanges a directory of it has it alone.

        The lock ends with its process. Where the file system has none, nothing is compacted.
        """
        descriptor = os.open(self._beside, os.O_RDONLY)
        try:
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            yield
        finally:
            os.close(descriptor)

    def clean_up(self, batch: int) -> None:
        for attempt in self._staging.glob(f"{batch}-*"):
            shutil.rmtree(attempt, ignore_errors=True)
        (self._batches / f"{batch - BATCHES_KEPT}.json").unlink(missing_ok=True)


def _move(source: Path, target: Path) -> None:
    """Rename. A source that is gone was renamed before, by whoever was killed then."""
    while source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            source.rename(target)
        except FileNotFoundError:
            continue  # the target's directory was compacted away in this moment


class FrameRows:
    """The rows of a DataFrame."""

    def __init__(self, frame: "DataFrame", partition_by: tuple[str, ...]) -> None:
        self._frame = frame
        self._partition_by = partition_by

    def write_to(self, directory: Path) -> int:
        from pyspark.sql import Observation
        from pyspark.sql.functions import count, lit

        counted = Observation()
        frame = self._frame.observe(counted, count(lit(1)).alias("rows"))
        writer = frame.write.mode("append")
        if self._partition_by:
            writer = writer.partitionBy(*self._partition_by)
        writer.parquet(str(directory))
        return int(counted.get["rows"])


def data_files(directory: Path) -> Iterator[str]:
    """The Parquet files that a reader of the directory sees, relative to it."""
    for file in directory.rglob("*.parquet"):
        relative = file.relative_to(directory)
        if not any(part.startswith(("_", ".")) for part in relative.parts):
            yield str(relative)


def write_first(path: Path, text: str) -> bool:
    """The file is there whole, also after a power failure; False if there was one already."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    _write_through(temporary, text)
    try:
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink()
    sync(path.parent)
    return True


def write_atomically(path: Path, text: str) -> None:
    """The file is there whole, or as it was before, also after a power failure."""
    temporary = path.with_name(f".{path.name}.new")
    _write_through(temporary, text)
    temporary.rename(path)
    sync(path.parent)


def _write_through(path: Path, text: str) -> None:
    with path.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
