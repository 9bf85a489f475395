"""A disk in memory that keeps its promises and no more: what was not synced may be gone.

What happens to it
- A process that is killed loses nothing it wrote: the page cache outlives it.
- A host that loses power keeps, of each file, what was synced and any prefix of the writes since;
  the last of them may be torn, with zeros or nothing where the rest was to be.
- Names (create, rename, remove) are kept in order and at once, as on a journalling file system.
- A process has few descriptors: files of logs are closed and opened again all the time, and now and
  then none is left for a moment.
- A disk can be full, and a directory can fail: all below it is EIO until repaired.
- A file of a log directory can be damaged while no process uses it: shortened, lengthened, gone,
  zeroed or flipped at its end. In the middle of a closed segment only lengths change, because
  nothing but the reader of a batch notices more (docs/administration.md, "Damaged files").
"""

import errno
import posixpath
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from odradek.log.disk import Buffer
from odradek.log.open_files import OpenFiles

from .loop import Process

# How many files of logs a process keeps open, and which of its attempts to open one fails.
FILES_MAX = 4
OUT_OF_DESCRIPTORS_EVERY = 64

# What the loss of which a log directory can make good, or at least notices.
DAMAGEABLE = (
    ".log",
    ".index",
    ".timeindex",
    ".txnindex",
    ".snapshot",
    "-checkpoint",
    ".odradek_shutdown",
    ".kafka_cleanshutdown",
)


@dataclass
class _Content:
    """One file: what programs see, what a power failure leaves, and the writes in between."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)  # None: cut to the size
    modified_ms: int = 0

    def write(self, position: int, content: bytes) -> None:
        _apply(self.data, position, content)
        self.pending.append((position, content))

    def cut(self, size: int) -> None:
        _apply(self.data, size, None)
        self.pending.append((size, None))

    def sync(self) -> None:
        for position, content in self.pending:
            _apply(self.durable, position, content)
        self.pending.clear()

    def sync_as_it_is(self) -> None:
        self.durable = bytearray(self.data)
        self.pending.clear()

    def lose_power(self, rng: random.Random) -> None:
        if not self.pending:
            return
        survivors = rng.randint(0, len(self.pending))
        for position, content in self.pending[:survivors]:
            _apply(self.durable, position, content)
        if survivors < len(self.pending):
            position, content = self.pending[survivors]
            if content and rng.random() < 0.5:
                kept = content[: rng.randint(0, len(content))]
                zeros = bytes(len(content) - len(kept)) if rng.random() < 0.5 else b""
                _apply(self.durable, position, kept + zeros)
        self.pending.clear()
        self.data = bytearray(self.durable)


def _apply(data: bytearray, position: int, content: bytes | None) -> None:
    if len(data) < position:
        data.extend(bytes(position - len(data)))
    if content is not None and len(data) == position:
        data += content
    elif content is None:
        del data[position:]
    else:
        data[position : position + len(content)] = content


class SimDisk:
    """One host's disk. It outlives the host's processes; `mounted` is what a process uses."""

    def __init__(self, clock: Callable[[], int], capacity_bytes: int = 1 << 40) -> None:
        self.clock = clock
        self.capacity_bytes = capacity_bytes
        self.files: dict[str, _Content] = {}
        # The names in each directory.
        self.directories: dict[str, set[str]] = {"/": set()}
        self.locks: dict[str, Process] = {}
        self.failed: set[str] = set()
        # Whether a file of this disk, or the whole of it, was ever damaged by hand.
        self.was_damaged = False
        self.used_bytes = 0
        self.syncs = 0
        self.opens = 0

    def mounted(self, process: Process) -> "MountedDisk":
        return MountedDisk(self, process)

    def lose_power(self, rng: random.Random) -> None:
        """Forget what was not synced. The host's processes must be dead."""
        for path in sorted(self.files):
            self.files[path].lose_power(rng)
        self.used_bytes = sum(len(content.data) for content in self.files.values())

    def erase(self) -> None:
        """The disk is replaced by an empty one."""
        self.files.clear()
        self.directories = {"/": set()}
        self.used_bytes = 0
        self.was_damaged = True

    def damage(self, rng: random.Random, directory: str) -> str | None:
        """Damage one file of a log directory that is not in use; says how, or None if there
        is nothing to damage."""
        candidates = [
            path
            for path in sorted(self.files)
            if path.startswith(directory + "/") and path.endswith(DAMAGEABLE)
        ]
        segments = [path for path in candidates if path.endswith(".log")]
        if not candidates:
            return None
        self.was_damaged = True
        path = rng.choice(segments if segments and rng.random() < 0.6 else candidates)
        data = self.files[path].data
        later = [other for other in segments if posixpath.dirname(other) == posixpath.dirname(path)]
        is_closed = path.endswith(".log") and path != later[-1]
        ways = ["shorten", "lengthen", "remove"]
        if data and not is_closed:
            ways += ["zero", "flip"]
        way = rng.choice(ways)
        if way == "remove":
            self.take_out(path)
        elif way == "shorten":
            del data[rng.randrange(len(data) + 1) :]
        elif way == "lengthen":
            count = rng.randint(1, 200)
            data += bytes(count) if rng.random() < 0.5 else rng.randbytes(count)
        elif way == "zero":
            count = rng.randint(1, len(data))
            data[-count:] = bytes(count)
        else:
            data[-rng.randint(1, min(20, len(data)))] ^= 1 << rng.randrange(8)
        if path in self.files:
            self.files[path].sync_as_it_is()
        self.used_bytes = sum(len(content.data) for content in self.files.values())
        return f"{way} {path}"

    def check(self, path: str) -> None:
        for prefix in self.failed:
            if path == prefix or path.startswith(prefix + "/"):
                raise OSError(errno.EIO, "input/output error", path)

    def put(self, path: str, content: _Content) -> None:
        """A file under its name, which replaces another that has it."""
        directory, name = posixpath.split(path)
        self.directories[directory].add(name)
        self.files[path] = content

    def take_out(self, path: str) -> _Content:
        directory, name = posixpath.split(path)
        self.directories[directory].discard(name)
        return self.files.pop(path)

    def make_directory(self, path: str) -> None:
        """With those above it."""
        if path not in self.directories:
            self.directories[path] = set()
            above, name = posixpath.split(path)
            self.make_directory(above)
            self.directories[above].add(name)

    def remove_directory(self, path: str) -> None:
        """One that is empty."""
        assert not self.directories[path], path
        del self.directories[path]
        above, name = posixpath.split(path)
        self.directories[above].discard(name)

    def move_tree(self, source: str, target: str) -> None:
        self.make_directory(target)
        for name in list(self.directories[source]):
            path, moved = f"{source}/{name}", f"{target}/{name}"
            if path in self.files:
                self.put(moved, self.take_out(path))
            else:
                self.move_tree(path, moved)
        self.remove_directory(source)

    @property
    def free_bytes(self) -> int:
        return self.capacity_bytes - self.used_bytes

    def claim(self, size: int, path: str) -> None:
        if size > self.free_bytes:
            raise OSError(errno.ENOSPC, "no space left on device", path)
        self.used_bytes += size

    def content(self, path: str) -> _Content:
        self.check(path)
        content = self.files.get(path)
        if content is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return content


class _SimFile:
    """An open file: it goes on working after a rename, as on a real system."""

    def __init__(self, disk: SimDisk, path: str, content: _Content) -> None:
        self._disk = disk
        self._path = path
        self._content = content
        self._is_open = True

    @property
    def size(self) -> int:
        return len(self._content.data)

    def _check(self) -> None:
        if not self._is_open:
            raise OSError(errno.EBADF, "file is closed", self._path)
        self._disk.check(self._path)

    def append(self, data: Buffer | Sequence[Buffer]) -> None:
        single = isinstance(data, bytes | bytearray | memoryview)
        self.write_at(self.size, data if single else b"".join(data))  # type: ignore[arg-type]

    def read(self, position: int, length: int) -> bytes:
        self._check()
        with memoryview(self._content.data) as view:
            return bytes(view[position : position + length])

    def write_at(self, position: int, data: Buffer) -> None:
        """What fits is written, and then the disk is full."""
        self._check()
        disk = self._disk
        missing = max(0, position + len(data) - self.size) - disk.free_bytes
        written = bytes(data) if missing <= 0 else bytes(data)[: max(0, len(data) - missing)]
        if written:
            disk.claim(max(0, position + len(written) - self.size), self._path)
            self._content.write(position, written)
            self._content.modified_ms = disk.clock()
        if missing > 0:
            disk.claim(missing, self._path)  # raises

    def truncate(self, size: int) -> None:
        self._check()
        self._disk.claim(size - self.size, self._path)
        self._content.cut(size)

    def sync(self) -> None:
        self._check()
        self._disk.syncs += 1
        self._content.sync()

    def close(self) -> None:
        self._is_open = False


class _SimLock:
    def __init__(self, disk: SimDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locks.pop(self._path, None)


class MountedDisk:
    """The disk as one process sees it: `odradek.log.disk.Disk`."""

    def __init__(self, disk: SimDisk, process: Process) -> None:
        self._disk = disk
        self._process = process
        self.open_files = OpenFiles(FILES_MAX)

    def open(self, path: str, create: bool = False) -> _SimFile:
        return self.open_files.opening(partial(self._open, path, create))

    def _open(self, path: str, create: bool) -> _SimFile:
        self._disk.check(path)
        self._disk.opens += 1
        if self._disk.opens % OUT_OF_DESCRIPTORS_EVERY == 0 and self.open_files:
            raise OSError(errno.EMFILE, "too many open files", path)
        if create and path not in self._disk.files:
            self._require_dir(posixpath.dirname(path))
            self._disk.put(path, _Content(modified_ms=self._disk.clock()))
        return _SimFile(self._disk, path, self._disk.content(path))

    def exists(self, path: str) -> bool:
        self._disk.check(path)
        return path in self._disk.files or path in self._disk.directories

    def is_dir(self, path: str) -> bool:
        self._disk.check(path)
        return path in self._disk.directories

    def list_dir(self, path: str) -> list[str]:
        self._disk.check(path)
        self._require_dir(path)
        return sorted(self._disk.directories[path])

    def make_dirs(self, path: str) -> None:
        self._disk.check(path)
        self._disk.make_directory(path)

    def rename(self, source: str, target: str) -> None:
        self._disk.check(source)
        self._disk.check(target)
        self._require_dir(posixpath.dirname(target))
        if source in self._disk.files:
            replaced = self._disk.files.get(target)
            self._disk.used_bytes -= len(replaced.data) if replaced else 0
            self._disk.put(target, self._disk.take_out(source))
            return
        self._require_dir(source)
        self._disk.move_tree(source, target)

    def remove(self, path: str) -> None:
        self._disk.used_bytes -= len(self._disk.content(path).data)
        self._disk.take_out(path)

    def remove_tree(self, path: str) -> None:
        self._disk.check(path)
        self._require_dir(path)
        for name in list(self._disk.directories[path]):
            inner = f"{path}/{name}"
            if inner in self._disk.files:
                self.remove(inner)
            else:
                self.remove_tree(inner)
        self._disk.remove_directory(path)

    def size(self, path: str) -> int:
        return len(self._disk.content(path).data)

    def modified_ms(self, path: str) -> int:
        return self._disk.content(path).modified_ms

    def space(self, path: str) -> tuple[int, int]:
        self._disk.check(path)
        return self._disk.capacity_bytes, self._disk.free_bytes

    def read_bytes(self, path: str) -> bytes:
        return bytes(self._disk.content(path).data)

    def write_atomically(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        file.truncate(0)
        file.append(data)
        file.sync()
        self.rename(temporary, path)

    def sync_dir(self, path: str) -> None:
        self._disk.check(path)
        self._require_dir(path)

    def sync_files(self, paths: Sequence[str]) -> None:
        for path in paths:
            if path in self._disk.files:
                self.open(path).sync()

    def lock(self, path: str) -> _SimLock:
        holder = self._disk.locks.get(path)
        if holder is not None and holder.alive:
            raise BlockingIOError(errno.EAGAIN, "locked by another process", path)
        self.open(path, create=True)
        self._disk.locks[path] = self._process
        return _SimLock(self._disk, path)

    def _require_dir(self, path: str) -> None:
        if path not in self._disk.directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
