"""What a log hands to its callers: the outcome of an append, a read, and a flush under way."""

import errno
from dataclasses import dataclass
from typing import NamedTuple

from odradek.log.config import LogConfig
from odradek.log.disk import Disk, File
from odradek.log.producers import SequencedBatch
from odradek.wire.records import NO_TIMESTAMP


class AppendInfo(NamedTuple):
    """What became of an append. The append time is -1 unless the topic uses it."""

    first_offset: int
    last_offset: int
    max_timestamp: int
    append_time_ms: int
    log_start_offset: int
    size_bytes: int
    duplicate: bool = False


def repeated(batch: SequencedBatch, config: LogConfig, start_offset: int) -> AppendInfo:
    """The answer to a producer that sends again what was appended before."""
    return AppendInfo(
        batch.first_offset,
        batch.last_offset,
        batch.timestamp,
        batch.timestamp if config.log_append_time else NO_TIMESTAMP,
        start_offset,
        0,
        duplicate=True,
    )


class LogRead(NamedTuple):
    """Batches as they are on disk, and where they were found."""

    records: bytes
    segment_base: int
    position: int


class UnexpectedOffset(Exception):
    """A leader sent records that begin before the end of this follower's log."""

    def __init__(self, first_offset: int, last_offset: int, end_offset: int) -> None:
        super().__init__(f"records {first_offset}..{last_offset} for a log that is at {end_offset}")
        self.first_offset = first_offset
        self.last_offset = last_offset


@dataclass(frozen=True, slots=True)
class Flush:
    """One flush up to `end_offset`. `sync` blocks and may run off the loop: it touches files only,
    nothing of the log; `Log.finish_flush` then says on the loop that it was done. If the directory
    was renamed meanwhile it was not: then another must follow."""

    disk: Disk
    directory: str
    end_offset: int
    truncations: int
    files: list[File]
    paths: list[str]

    def sync(self) -> None:
        for file in self.files:
            try:
                file.sync()
            except OSError as error:
                if error.errno != errno.EBADF:
                    raise  # A file closed meanwhile was deleted, or flushed by another.
        for path in self.paths:
            try:
                opened = self.disk.open(path)
            except FileNotFoundError:
                continue  # Never written, or deleted.
            opened.sync()
            opened.close()
        self.disk.sync_dir(self.directory)
