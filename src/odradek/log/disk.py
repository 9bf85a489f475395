"""Files, as the log sees them: the only door from the log to an operating system.

Everything under a data directory is reached through a `Disk` and the `File`s it opens, so that the
simulator can put a disk there that forgets what was not synced, or that is full. `RealDisk` is the
thin layer over the operating system. Every failure surfaces as an OSError.

What a crash leaves
- `File.append`, `File.write_at`, `File.truncate`: any prefix of the calls since the last `sync()`,
  the last one possibly torn; zeros may stand where data was to be.
- `Disk.write_atomically`: the old content or the new, never a mixture.
- `Disk.rename`, `remove`, creation: durable after `sync_dir` of the parent; before it, done or not.
"""

import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from odradek.log.open_files import FILES_MAX, OpenFiles

Buffer = bytes | bytearray | memoryview

# The system takes at most this many buffers in one call.
BUFFERS_PER_WRITE_MAX = 1024

DIRECTORY_MODE = 0o700

# More files than this are synced with all else on their file system.
FILES_SYNCED_APART_MAX = 256


class File(Protocol):
    """One open file. Reading past the end gives fewer bytes, not an error."""

    @property
    def size(self) -> int:
        """Length in bytes, tracked here: asking costs nothing."""

    def append(self, data: Buffer | Sequence[Buffer]) -> None:
        """Write at the end, whole. After an error `size` is as it was, whatever was written."""

    def read(self, position: int, length: int) -> bytes: ...

    def write_at(self, position: int, data: Buffer) -> None:
        """Write whole."""

    def truncate(self, size: int) -> None:
        """Cut, or extend with zeros."""

    def sync(self) -> None:
        """Everything written so far survives a crash once this returns."""

    def close(self) -> None: ...


class Lock(Protocol):
    """An exclusive lock on a file, held until released or until the process ends."""

    def release(self) -> None: ...


class Disk(Protocol):
    """One file system. Paths are strings; names in a directory come sorted."""

    @property
    def open_files(self) -> OpenFiles:
        """The files that stay open between uses: who keeps one adds itself."""

    def open(self, path: str, create: bool = False) -> File:
        """Open for reading and writing; FileNotFoundError if it is not there and not created."""

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def list_dir(self, path: str) -> list[str]: ...

    def make_dirs(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces a file at the target."""

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def space(self, path: str) -> tuple[int, int]:
        """Total and usable bytes of the file system that holds `path`."""

    def read_bytes(self, path: str) -> bytes: ...

    def write_atomically(self, path: str, data: bytes) -> None:
        """Replace a small file: temporary neighbour, sync, rename, sync of the directory."""

    def sync_dir(self, path: str) -> None: ...

    def sync_files(self, paths: Sequence[str]) -> None:
        """The same as `sync` of each file, and `sync_dir` of each directory, among them; those that
        are gone are passed over."""

    def lock(self, path: str) -> Lock:
        """Create and lock; BlockingIOError if another process holds it."""


class RealFile:
    """A file of the operating system, reached by position only: no seek, no buffer of our own.

    It is closed when nothing refers to it any more, at the latest."""

    __slots__ = ("_descriptor", "_size", "path")

    def __init__(self, path: str, create: bool) -> None:
        self._descriptor = -1
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        self._descriptor = os.open(path, flags, 0o644)
        self._size = os.fstat(self._descriptor).st_size
        self.path = path

    def __repr__(self) -> str:
        return f"RealFile({self.path!r}, size={self._size})"

    @property
    def size(self) -> int:
        return self._size

    def append(self, data: Buffer | Sequence[Buffer]) -> None:
        if isinstance(data, bytes | bytearray | memoryview):
            self.write_at(self._size, data)
            return
        length = sum(map(len, data))
        if len(data) > BUFFERS_PER_WRITE_MAX or (
            os.pwritev(self._descriptor, data, self._size) != length
        ):
            self._write_rest(self._size, b"".join(data))
        self._size += length

    def _write_rest(self, position: int, data: Buffer) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self._descriptor, view, position)
            position += written
            view = view[written:]

    def read(self, position: int, length: int) -> bytes:
        data = os.pread(self._descriptor, length, position)
        if len(data) < length and position + len(data) < self._size and data:
            return data + self.read(position + len(data), length - len(data))
        return data

    def write_at(self, position: int, data: Buffer) -> None:
        end = position + len(data)
        if os.pwrite(self._descriptor, data, position) != end - position:
            # Short writes are rare (a signal, a disk about to be full); start over, whole.
            self._write_rest(position, data)
        if end > self._size:
            self._size = end

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)
        self._size = size

    def sync(self) -> None:
        # A flush may find the file closed, deleted or flushed already, by the time it gets to it.
        if self._descriptor < 0:
            raise OSError(errno.EBADF, "file is closed", self.path)
        os.fsync(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    __del__ = close


class RealLock:
    """flock on an open descriptor: gone with the process, however that ends."""

    __slots__ = ("_descriptor",)

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # Kafka's Java lock is a POSIX record lock, so this must be one too to exclude it.
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            raise BlockingIOError(error.errno, "locked by another process", path) from error

    def release(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)


class RealDisk:
    """The operating system's file system."""

    __slots__ = ("_open_files",)

    def __init__(self, files_max: int = FILES_MAX, spares: int = 0) -> None:
        self._open_files = OpenFiles(files_max, spares, partial(RealFile, os.devnull, False))

    @property
    def open_files(self) -> OpenFiles:
        return self._open_files

    def open(self, path: str, create: bool = False) -> RealFile:
        return self._open_files.opening(partial(RealFile, path, create))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def list_dir(self, path: str) -> list[str]:
        return sorted(self._open_files.opening(partial(os.listdir, path)))

    def make_dirs(self, path: str) -> None:
        """Records are not encrypted: what is made here is its owner's alone."""
        if os.path.isdir(path):
            return
        try:
            os.mkdir(path, DIRECTORY_MODE)
        except FileNotFoundError:
            parent = os.path.dirname(path.rstrip("/"))
            if not parent:
                raise
            self.make_dirs(parent)
            os.mkdir(path, DIRECTORY_MODE)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        self._open_files.opening(partial(shutil.rmtree, path))

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def space(self, path: str) -> tuple[int, int]:
        facts = os.statvfs(path)
        return facts.f_blocks * facts.f_frsize, facts.f_bavail * facts.f_frsize

    def read_bytes(self, path: str) -> bytes:
        return self._open_files.opening(partial(_read, path))

    def write_atomically(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        self._open_files.opening(partial(_write_synced, temporary, data))
        os.replace(temporary, path)
        self.sync_dir(os.path.dirname(path))

    def sync_dir(self, path: str) -> None:
        descriptor = self._open_files.opening(partial(os.open, path, os.O_RDONLY))
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync_files(self, paths: Sequence[str]) -> None:
        if len(paths) < FILES_SYNCED_APART_MAX or not self._sync_file_systems(paths):
            for path in paths:
                with suppress(FileNotFoundError):
                    self.sync_dir(path)  # a descriptor that cannot write will do for files, too

    def _sync_file_systems(self, paths: Sequence[str]) -> bool:
        """Sync all that is on the file systems of these files, as the system allows: it is one
        transaction of each, where every file alone would be one."""
        syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
        if syncfs is None:
            return False
        one_on_each = {}
        for path in paths:
            with suppress(FileNotFoundError):
                one_on_each[os.stat(path).st_dev] = path
        for path in one_on_each.values():
            try:
                descriptor = self._open_files.opening(partial(os.open, path, os.O_RDONLY))
            except FileNotFoundError:
                return False  # deleted just now; the others are synced one by one
            try:
                if syncfs(descriptor) != 0:
                    error = ctypes.get_errno()
                    raise OSError(error, os.strerror(error), path)
            finally:
                os.close(descriptor)
        return True

    def lock(self, path: str) -> RealLock:
        return self._open_files.opening(partial(RealLock, path))


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _write_synced(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
