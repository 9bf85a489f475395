"""Many small files of a lake become few, while readers read and a pipeline lands.

Each directory of the lake is compacted by itself. A complete replacement is built beside the lake:
the small files' rows in new files, and links to the files that are large enough. Then the two
directories exchange names at one stroke: whoever lists the directory sees all of the old files or
all of the new, never both and never neither; the old ones stay where they are for a moment, for
whoever was in the middle of listing them. What was landed while it was built is linked into it
just before, and pipelines land nothing in that moment; a file that somebody else put there even
then is carried over. A job that was killed is finished or undone by the next, or by a pipeline that
starts, from the note it left. There is one at a time: a lock that ends with its process sees to it.

A reader that listed the old files and opens one after the exchange is told that it is gone, and
reads again. One that looks the names it listed up once more, and passes over those that are gone,
is not told: no exchange of names can help it.
"""

import errno
import fcntl
import json
import os
import shutil
import time
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.spark.pipeline.lake import Lake, write_atomically
from odradek.spark.pipeline.swapping import swap

if TYPE_CHECKING:
    import pyarrow as pa

TARGET_BYTES = 128 * 1024 * 1024
# By then, whoever was listing a directory when it was exchanged has come to its end.
LISTED_AFTER_S = 1.0
# A file of this part of the target is large enough to be left alone.
LARGE_ENOUGH = 0.75
ROWS_AT_A_TIME = 65_536
MARKER = ".compacted"
HIDDEN = ("_", ".")


class Busy(Exception):
    """Somebody else compacts this lake."""


class Unreadable(Exception):
    """A file of the lake is no Parquet file, or a broken one; says which."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """What was done to one directory, relative to the lake."""

    directory: str
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int


def compact(lake: Lake, target_bytes: int = TARGET_BYTES) -> Iterator[Compacted]:
    """Compact every directory that has something to gain. Busy if somebody does so already,
    Unreadable at a file that cannot be merged: what is left then, the next call clears away."""
    jobs = _jobs(lake)
    jobs.mkdir(parents=True, exist_ok=True)
    with _alone(jobs):
        _clear(jobs)
        exchanged: deque[tuple[float, _Job]] = deque()
        for directory in _directories(lake.path):
            small = [file.name for file in _small(directory, target_bytes)]
            if len(small) < 2:
                continue
            job = _Job(jobs / uuid.uuid4().hex, directory, small)
            done = _compact(lake, job, target_bytes)
            if done is not None:
                exchanged.append((time.monotonic() + LISTED_AFTER_S, job))
                yield done
            while exchanged and exchanged[0][0] <= time.monotonic():
                exchanged.popleft()[1].finish()
        for due, job in exchanged:
            time.sleep(max(0.0, due - time.monotonic()))
            job.finish()


def _compact(lake: Lake, job: "_Job", target_bytes: int) -> Compacted | None:
    """Build the replacement and exchange it, if there is something to gain."""
    directory = job.directory
    before = _visible(directory)
    job.build(target_bytes)
    after = _visible(job.replacement)
    if len(after) >= len(before):
        job.undo()
        return None
    sizes = sum(file.stat().st_size for file in before), sum(f.stat().st_size for f in after)
    job.exchange(lake)
    job.bring_over()
    return Compacted(str(directory.relative_to(lake.path)), len(before), len(after), *sizes)


@contextmanager
def _alone(jobs: Path) -> Iterator[None]:
    descriptor = os.open(jobs, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise Busy(f"{jobs.parent} is being compacted by another process") from None
    finally:
        os.close(descriptor)


def recover(lake: Lake) -> None:
    """Finish or undo what a killed job left; one that is at work is left alone."""
    jobs = _jobs(lake)
    if not jobs.is_dir():
        return
    try:
        with _alone(jobs):
            _clear(jobs)
    except Busy:
        pass  # it began with the same


def _jobs(lake: Lake) -> Path:
    return lake.beside / "compacting"


def _clear(jobs: Path) -> None:
    for note in sorted(jobs.glob("*.json")):
        job = _Job.read(note)
        if job.is_exchanged():
            job.finish()
        else:
            job.undo()
    # Those that were not even noted.
    for rest in jobs.iterdir():
        shutil.rmtree(rest) if rest.is_dir() else rest.unlink()


class _Job:
    """The replacement of one directory. Its note is there from before the exchange to the end."""

    def __init__(self, place: Path, directory: Path, replaced: list[str]) -> None:
        self._place = place
        self.directory = directory
        self._replaced = replaced

    @classmethod
    def read(cls, note: Path) -> "_Job":
        values = json.loads(note.read_text())
        return cls(note.with_suffix(""), Path(values["directory"]), values["replaced"])

    @property
    def replacement(self) -> Path:
        """The new directory before the exchange, the old one after it."""
        return self._place

    @property
    def _note(self) -> Path:
        return self._place.with_suffix(".json")

    def is_exchanged(self) -> bool:
        return (self.directory / f"{MARKER}-{self._place.name}").exists()

    def build(self, target_bytes: int) -> None:
        small = [self.directory / name for name in self._replaced]
        self._place.mkdir(parents=True)
        self._link_others()
        _merge(small, self._place, target_bytes)
        (self._place / f"{MARKER}-{self._place.name}").touch()

    def _link_others(self) -> None:
        for file in _visible(self.directory):
            if file.name not in self._replaced:
                os.link(file, self._place / file.name)
                # Carried over already: it must not come a second time.
                self._replaced.append(file.name)

    def exchange(self, lake: Lake) -> None:
        """The stroke, with all that was landed while the replacement was built."""
        with lake.held(alone=True):
            self._link_others()
            values = {"directory": str(self.directory), "replaced": self._replaced}
            write_atomically(self._note, json.dumps(values))
            swap(self.directory, self._place)

    def bring_over(self) -> list[Path]:
        """After the exchange: what was put into the old directory even so. Answers the rest."""
        rest = []
        for file in sorted(self._place.iterdir()):
            if file.name in self._replaced or file.name.startswith(HIDDEN):
                rest.append(file)
            else:
                file.rename(self.directory / file.name)
        return rest

    def finish(self) -> None:
        """Forget the old directory."""
        while self._place.exists():
            for file in self.bring_over():
                file.unlink() if file.is_file() else shutil.rmtree(file)
            try:
                self._place.rmdir()
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                continue  # one more was landed in this moment
        self._note.unlink(missing_ok=True)
        (self.directory / f"{MARKER}-{self._place.name}").unlink(missing_ok=True)

    def undo(self) -> None:
        shutil.rmtree(self._place, ignore_errors=True)
        self._note.unlink(missing_ok=True)


def _directories(root: Path) -> list[Path]:
    """The directories of a lake that hold files; readers skip names that begin with _ or a dot."""
    found = [root, *(path for path in root.rglob("*") if path.is_dir())]
    return sorted(
        path
        for path in found
        if not any(part.startswith(HIDDEN) for part in path.relative_to(root).parts)
        # Of a link the name would be exchanged, and what it leads to is not ours to empty.
        and not path.is_symlink()
        # One with directories inside is not exchanged: they would move with it.
        and not any(child.is_dir() for child in path.iterdir())
    )


def _visible(directory: Path) -> list[Path]:
    return sorted(file for file in directory.glob("*.parquet") if not file.name.startswith(HIDDEN))


def _small(directory: Path, target_bytes: int) -> list[Path]:
    return [
        file for file in _visible(directory) if file.stat().st_size < target_bytes * LARGE_ENOUGH
    ]


def _merge(files: list[Path], into: Path, target_bytes: int) -> None:
    """The rows of the files in new files of about the target's size, one schema each."""
    import pyarrow.parquet as pq

    from odradek.spark.pipeline.int96 import read_batches, read_schema

    by_schema: list[tuple[pa.Schema, list[Path]]] = []
    for file in files:
        with _named(file):
            schema = read_schema(file)
        for known, of_it in by_schema:
            if known.equals(schema):
                of_it.append(file)
                break
        else:
            by_schema.append((schema, [file]))
    for schema, of_it in by_schema:
        for group in _groups(of_it, target_bytes):
            target = into / f"compacted-{uuid.uuid4()}.parquet"
            with pq.ParquetWriter(target, schema, compression="snappy") as writer:
                for file in group:
                    with _named(file):
                        for batch in read_batches(file, ROWS_AT_A_TIME):
                            writer.write_batch(batch)
            with target.open("rb") as written:
                os.fsync(written.fileno())


@contextmanager
def _named(file: Path) -> Iterator[None]:
    """Arrow says what is wrong with a file, and not with which."""
    import pyarrow as pa

    try:
        yield
    except pa.ArrowException as error:
        raise Unreadable(f"{file}: {error}") from error
    except OSError as error:
        # Arrow's own have no number; those of the system, such as a full disk, say what they are.
        if error.errno is not None:
            raise
        raise Unreadable(f"{file}: {error}") from error


def _groups(files: list[Path], target_bytes: int) -> Iterator[list[Path]]:
    group: list[Path] = []
    size = 0
    for file in files:
        if group and size + file.stat().st_size > target_bytes:
            yield group
            group, size = [], 0
        group.append(file)
        size += file.stat().st_size
    if group:
        yield group
