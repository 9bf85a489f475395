"""What the tests of the log share: batches, logs on simulated disks, and a disk that crashes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from itertools import pairwise
from typing import Any, cast

from odradek.log.config import LogConfig
from odradek.log.disk import Buffer, Disk, File
from odradek.log.host import LogHost
from odradek.log.indexes import SortedEntries
from odradek.log.log import Log
from odradek.log.producers import Origin
from odradek.log.recovery import Checkpointed
from odradek.sim.disk import SimDisk
from odradek.wire.batch import BatchHeader, header_at, scan, set_offset_and_epoch
from odradek.wire.records import (
    ControlType,
    Record,
    TransactionEnd,
    encode_batch,
    encode_transaction_end,
)
from odradek.wire.topics import TopicPartition

NOW_MS = 1_700_000_000_000
PARTITION = TopicPartition("topic", 0)
DIRECTORY = "/data/topic-0"
SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100)


def is_sorted(index: SortedEntries) -> bool:
    """Whether the first field rises from entry to entry, and the second never falls."""
    entries = list(index.entries())
    return all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(entries))


def sim_disk() -> SimDisk:
    return SimDisk(clock=lambda: NOW_MS)


def mounted(platter: SimDisk) -> Disk:
    return platter.mounted(cast(Any, None))  # Only locks ask for the process.


def open_log(
    disk: Disk | None = None,
    config: LogConfig = SMALL,
    directory: str = DIRECTORY,
    clock: Callable[[], int] = lambda: NOW_MS,
    **options: Any,
) -> Log:
    """A log of its own; options are those of its `LogHost` and its `Checkpointed`."""
    if disk is None:
        disk = mounted(sim_disk())
    return make_log(disk, directory, PARTITION, config, clock, **options)


def make_log(
    disk: Disk,
    directory: str,
    tp: TopicPartition,
    config: LogConfig,
    clock: Callable[[], int],
    **options: Any,
) -> Log:
    names = {field.name for field in fields(Checkpointed)}
    checkpointed = Checkpointed(**{name: options.pop(name) for name in names & options.keys()})
    return Log(LogHost(disk, clock, **options), directory, tp, config, checkpointed)


def batch(
    count: int = 1, *, value: bytes = b"value", time_ms: int = NOW_MS, **options: Any
) -> bytearray:
    return encode_batch([Record(-1, time_ms, b"key", value)] * count, **options)


def fill(
    log: Log, batches: int, *, count: int = 1, value: bytes = b"value", epoch: int = 0
) -> None:
    """Append so many batches; each is a millisecond younger than the one before."""
    for _ in range(batches):
        time_ms = NOW_MS + log.end_offset
        log.append_as_leader(batch(count, value=value, time_ms=time_ms), epoch)


def everything(log: Log) -> list[bytes]:
    """The batches of all segments, straight from the files."""
    return [
        chunk[header.position : header.end_position]
        for segment in log.segments
        for chunk, header in segment.batches()
    ]


def headers(log: Log) -> list[BatchHeader]:
    return [header_at(data) for data in everything(log)]


def read_all(log: Log, max_bytes: int = 700) -> list[bytes]:
    """What a consumer that begins at the log's start gets."""
    found = []
    offset = log.start_offset
    while offset < log.end_offset:
        records = log.read(offset, max_bytes).records
        before = offset
        for header in scan(records):
            found.append(records[header.position : header.end_position])
            offset = header.next_offset
        if offset == before:  # only a compacted log ends in nothing
            break
    return found


def offsets(parts: Iterable[bytes]) -> list[int]:
    return [header_at(data).base_offset for data in parts]


class Crash(BaseException):
    """The machine stops here: no handler of the product may take it for an error to deal with."""


class CrashingDisk:
    """A disk that stops the machine before its n-th change, or half-way through it; or that fails
    from there on with another error."""

    def __init__(
        self, disk: Disk, changes: int | None = None, error: Callable[[], BaseException] = Crash
    ) -> None:
        self._disk = disk
        self._error = error
        self.changes_left = changes
        self.changes = 0

    def change(self, partly: Callable[[], object] | None = None) -> None:
        if self.changes_left is not None:
            if self.changes_left <= 0:
                if partly is not None and self.changes_left == 0:
                    self.changes_left = -1
                    partly()
                raise self._error()
            self.changes_left -= 1
        self.changes += 1

    def sync_files(self, paths: Sequence[str]) -> None:
        for path in paths:
            if self.exists(path) and not self.is_dir(path):
                self.open(path).sync()

    def open(self, path: str, create: bool = False) -> File:
        if create and not self._disk.exists(path):
            self.change()
        return _CrashingFile(self, self._disk.open(path, create))

    def make_dirs(self, path: str) -> None:
        self.change()
        self._disk.make_dirs(path)

    def rename(self, source: str, target: str) -> None:
        self.change()
        self._disk.rename(source, target)

    def remove(self, path: str) -> None:
        self.change()
        self._disk.remove(path)

    def write_atomically(self, path: str, data: bytes) -> None:
        self.change()
        self._disk.write_atomically(path, data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)  # What only looks.


class _CrashingFile:
    def __init__(self, disk: CrashingDisk, file: File) -> None:
        self._disk = disk
        self._file = file

    @property
    def size(self) -> int:
        return self._file.size

    def append(self, data: Buffer | Sequence[Buffer]) -> None:
        whole = data if isinstance(data, bytes | bytearray | memoryview) else b"".join(data)
        self._disk.change(lambda: self._file.append(bytes(whole)[: len(whole) // 2]))
        self._file.append(whole)

    def read(self, position: int, length: int) -> bytes:
        return self._file.read(position, length)

    def write_at(self, position: int, data: Buffer) -> None:
        self._disk.change(lambda: self._file.write_at(position, bytes(data)[: len(data) // 2]))
        self._file.write_at(position, data)

    def truncate(self, size: int) -> None:
        self._disk.change()
        self._file.truncate(size)

    def sync(self) -> None:
        self._disk.change()
        self._file.sync()

    def close(self) -> None:
        self._file.close()


def produce(log: Log, sequence: int, *, transactional: bool = True, producer: int = 7) -> int:
    data = batch(
        producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=transactional
    )
    return log.append_as_leader(data, 0).first_offset


def end(log: Log, kind: ControlType, producer: int = 7) -> int:
    marker = encode_transaction_end(TransactionEnd(kind, 0, NOW_MS), producer, 0)
    return log.append_as_leader(marker, 0, origin=Origin.COORDINATOR).first_offset


def part(base_offset: int, count: int = 1, *, epoch: int = 0, **options: Any) -> bytes:
    """A batch as a leader would send it to a follower."""
    data = batch(count, **options)
    set_offset_and_epoch(data, 0, base_offset, epoch)
    return bytes(data)
