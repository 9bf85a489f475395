"""More logs than descriptors: which files are closed, that those in use are not, and that running
out of descriptors harms no log."""

import errno
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from odradek.log.config import LogConfig
from odradek.log.disk import Disk, RealDisk
from odradek.log.log import Log
from odradek.log.open_files import OpenFiles
from odradek.wire.topics import TopicPartition

from .logs import fill, make_log, mounted, offsets, read_all, sim_disk


@dataclass(eq=False)
class Owner:
    name: str
    closed: list[str]
    was_used: bool = field(default=False)

    def let_go(self) -> None:
        self.closed.append(self.name)


def test_the_first_that_was_not_used_since_the_last_walk_is_closed() -> None:
    closed: list[str] = []
    files = OpenFiles(files_max=3)
    a, b, c, d, e, f, g = (Owner(name, closed) for name in "abcdefg")
    for owner in (a, b, c):
        files.add(owner)
    a.was_used = True
    files.add(d)
    assert closed == ["b"]
    files.discard(c)
    files.add(e)
    assert closed == ["b"] and len(files) == 3
    files.add(f)
    assert closed == ["b", "d"], "a got one second chance, and was the next to last to use it"
    for owner in (a, e, f, g):
        owner.was_used = True
    files.add(g)
    assert closed == ["b", "d", "a"], "all were used: the oldest goes"
    assert files.statistics() == {"open_files": 3, "evictions": 3}


class System:
    """Gives out so many descriptors; a dropped one comes back."""

    def __init__(self, count: int) -> None:
        self.left = count

    def open(self) -> "Descriptor":
        if self.left == 0:
            raise OSError(errno.EMFILE, "too many open files")
        self.left -= 1
        return Descriptor(self)


class Descriptor:
    def __init__(self, system: System) -> None:
        self._system = system

    def __del__(self) -> None:
        self._system.left += 1


@dataclass(eq=False)
class Opener:
    file: Descriptor | None
    was_used: bool = True

    def let_go(self) -> None:
        self.file = None


def test_without_descriptors_others_are_closed_and_then_the_spares_used() -> None:
    system = System(4)
    files = OpenFiles(files_max=9, spares=2, reserve=system.open)
    owner = Opener(files.opening(system.open))
    files.add(owner)
    outside = [files.opening(system.open)]
    assert system.left == 0, "two spares, a log's file and another"
    outside.append(files.opening(system.open))
    assert owner.file is None, "the first to give way"
    outside += [files.opening(system.open), files.opening(system.open)]
    with pytest.raises(OSError, match="too many"):
        files.opening(system.open)
    outside.clear()
    assert system.left == 4
    files.opening(system.open)
    assert system.left == 2, "the spares are back"
    with pytest.raises(FileNotFoundError):
        files.opening(Path("/nowhere/at/all").read_bytes)


@pytest.fixture(params=["real", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, str]:
    if request.param == "real":
        return RealDisk(files_max=2), str(tmp_path)
    return mounted(sim_disk()), "/data"


def test_logs_that_share_too_few_open_files(place: tuple[Disk, str]) -> None:
    """Written in turns, so that each write finds its file closed for the others; flushed, renamed,
    truncated and read while it is closed."""
    disk, root = place
    config = LogConfig(segment_bytes=1000, index_interval_bytes=100)

    def opened(clean: bool) -> list[Log]:
        return [
            make_log(disk, f"{root}/t-{n}", TopicPartition("t", n), config, lambda: 0, clean=clean)
            for n in range(8)
        ]

    logs = opened(clean=False)
    for _ in range(30):
        for log in logs:
            fill(log, 1)
    flushes = [log.start_flush() for log in logs]
    evictions = disk.open_files.evictions
    assert evictions > 200
    for log in logs:
        fill(log, 1)
    for log, flush in zip(logs, flushes, strict=True):
        assert flush is not None
        flush.sync()
        log.finish_flush(flush)
        assert log.recovery_point == 30
    logs[0].rename_directory(f"{root}/renamed-0")
    logs[0].rename_directory(f"{root}/t-0")
    logs[1].truncate_to(11)
    fill(logs[1], 1)
    ends = [31, 12, 31, 31, 31, 31, 31, 31]
    assert [offsets(read_all(log)) for log in logs] == [list(range(end)) for end in ends]
    for log in logs:
        log.close()
    assert len(disk.open_files) == 0
    logs = opened(clean=True)
    assert [offsets(read_all(log)) for log in logs] == [list(range(end)) for end in ends]


def test_a_file_in_use_stays_open(tmp_path: Path) -> None:
    """What a sync in a thread relies on: its file is let go of, and open until the sync is done."""
    disk = RealDisk(files_max=1)
    first, second = (
        make_log(disk, str(tmp_path / f"t-{n}"), TopicPartition("t", n), LogConfig(), lambda: 0)
        for n in range(2)
    )
    fill(first, 3)
    file = first.segments.active.files.log
    fill(second, 3)
    assert disk.open_files.evictions > 0
    file.sync()  # raises if it is closed
    fill(first, 1)
    assert first.segments.active.files.log is not file
    assert offsets(read_all(first)) == [0, 1, 2, 3]


FEW_DESCRIPTORS = """
import asyncio, os, random, resource, sys
from odradek.log.config import LogConfig
from odradek.log.disk import RealDisk
from odradek.log.host import LogEnvironment
from odradek.log.manager import LogManager, LogManagerConfig
from odradek.wire.topics import TopicPartition
from tests.log.logs import NOW_MS, fill, offsets, read_all

LIMIT, LOGS, ROUNDS = 48, 100, 6
resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))

async def started():
    loop = asyncio.get_running_loop()
    manager = LogManager(
        [sys.argv[1]],
        LogEnvironment(
            RealDisk(LIMIT // 2, spares=4),
            lambda: NOW_MS,
            lambda work: loop.run_in_executor(None, work),
            random.Random(1),
        ),
        LogManagerConfig(topic_defaults=LogConfig(segment_bytes=200, index_interval_bytes=50)),
    )
    manager.dirs.open()
    manager.dirs.claim(1, "cluster", NOW_MS)
    await manager.load()
    return manager

async def main():
    manager = await started()
    logs = [manager.get_or_create(TopicPartition("t", n), is_new=True) for n in range(LOGS)]
    for _ in range(ROUNDS):
        for log in logs:
            fill(log, 1)
    await asyncio.gather(*(manager.flusher.flush(log) for log in logs[:9]))
    assert {log.recovery_point for log in logs[:9]} == {ROUNDS}
    # While no log has a file open, others take every descriptor there is, as connections would.
    for log in logs:
        for segment in log.segments:
            segment.files.close()
    taken = []
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    for _ in range(2):
        for log in logs[:30]:
            fill(log, 1)
    assert 0 < len(manager.disk.open_files) <= 4, 'only the spare descriptors are left'
    manager.checkpoints.write_recovery_points()
    manager.async_delete(TopicPartition("t", 0))
    for descriptor in taken:
        os.close(descriptor)
    assert not manager.dirs.offline and not manager.damaged.found
    await manager.close()
    again = await started()
    assert not again.dirs.offline and not again.damaged.found and len(again.logs) == LOGS - 1
    for tp, log in again.logs.items():
        end = ROUNDS + (2 if tp.partition < 30 else 0)
        assert offsets(read_all(log)) == list(range(end)), tp
    await again.close()
    print("well", again.disk.open_files.evictions)

asyncio.run(main())
"""


@pytest.mark.process
def test_far_more_logs_than_descriptors(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FEW_DESCRIPTORS, str(tmp_path)], capture_output=True, text=True
    )
    assert done.stdout.startswith("well "), done.stderr
