"""A disk that stops at the n-th change, and the platter under it that may forget."""

import errno
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from odradek.log.disk import Buffer, Disk, File
from odradek.sim.disk import SimDisk
from odradek.sim.loop import SimLoop

NOW_MS = 1_700_000_000_000


class Crash(BaseException):
    """The process dies here: no handler of the product may see it as an error to deal with."""


class FaultyDisk:
    """Counts changes; at the chosen one it writes half of it and fails, as does all that follows.

    `full=True` raises ENOSPC instead of dying, and only for what needs space."""

    def __init__(self, disk: Disk, changes_left: int = 1 << 60, *, full: bool = False) -> None:
        self._disk = disk
        self.changes_left = changes_left
        self.changes = 0
        self._full = full

    def spend(self, path: str, partial: Callable[[], None] = lambda: None) -> None:
        self.changes += 1
        self.changes_left -= 1
        if self.changes_left >= 0:
            return
        if self._full:
            raise OSError(errno.ENOSPC, "no space left on device", path)
        if self.changes_left == -1:
            partial()
        raise Crash(path)

    def open(self, path: str, create: bool = False) -> File:
        if create and not self._disk.exists(path):
            self.spend(path)
        return FaultyFile(self, self._disk.open(path, create), path)

    def write_atomically(self, path: str, data: bytes) -> None:
        self.spend(path)
        self._disk.write_atomically(path, data)

    def rename(self, source: str, target: str) -> None:
        if not self._full:
            self.spend(source)
        self._disk.rename(source, target)

    def remove(self, path: str) -> None:
        if not self._full:
            self.spend(path)
        self._disk.remove(path)

    def remove_tree(self, path: str) -> None:
        if not self._full:
            self.spend(path)
        self._disk.remove_tree(path)

    def make_dirs(self, path: str) -> None:
        if not self._disk.exists(path):
            self.spend(path)
        self._disk.make_dirs(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)


class FaultyFile:
    def __init__(self, disk: FaultyDisk, file: File, path: str) -> None:
        self._faults = disk
        self._file = file
        self._path = path

    @property
    def size(self) -> int:
        return self._file.size

    def append(self, data: Buffer | Sequence[Buffer]) -> None:
        whole = data if isinstance(data, bytes | bytearray | memoryview) else b"".join(data)
        half = bytes(whole[: len(whole) // 2])
        self._faults.spend(self._path, lambda: self._file.append(half))
        self._file.append(whole)

    def write_at(self, position: int, data: Buffer) -> None:
        half = bytes(data[: len(data) // 2])
        self._faults.spend(self._path, lambda: self._file.write_at(position, half))
        self._file.write_at(position, data)

    def truncate(self, size: int) -> None:
        if not self._faults._full:
            self._faults.spend(self._path)
        self._file.truncate(size)

    def sync(self) -> None:
        if not self._faults._full:
            self._faults.spend(self._path)
        self._file.sync()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class World:
    """One host: a platter that outlives processes, and a clock that a test moves."""

    Crash = Crash

    def __init__(self) -> None:
        self.now_ms = NOW_MS
        self.platter = SimDisk(self.clock)
        self._loop = SimLoop()
        self._process = self._loop.process("host")

    def clock(self) -> int:
        return self.now_ms

    def disk(self, changes_left: int = 1 << 60, *, full: bool = False) -> FaultyDisk:
        """The disk as a new process sees it; locks of the one before are gone."""
        self.platter.locks.clear()
        return FaultyDisk(self.platter.mounted(self._process), changes_left, full=full)

    def lose_power(self, seed: int) -> None:
        self.platter.lose_power(random.Random(seed))

    def files(self, below: str) -> list[str]:
        return sorted(path for path in self.platter.files if path.startswith(below))


@pytest.fixture
def make_world() -> Any:
    worlds: list[World] = []

    def make() -> World:
        worlds.append(World())
        return worlds[-1]

    yield make
    for world in worlds:
        world._loop.close()


@pytest.fixture
def world(make_world: Callable[[], World]) -> World:
    return make_world()
