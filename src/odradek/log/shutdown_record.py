"""What a clean stop leaves to compare the next start with: `.odradek_shutdown`.

Kafka's marker of a clean stop says that nothing needs recovery; it cannot say what was there. So a
log that is shortened, copied back incompletely or damaged between a stop and a start would be
believed. Beside the marker we write, for every log of the directory, its offsets, the sizes of all
its segment files, and checksums of the small files that nothing else protects: the indexes of the
active segment and `leader-epoch-checkpoint`. (Snapshots carry their own checksum, batches too.)

The marker names the record by its checksum. Kafka reads only whether the marker exists, and writes
its own when it stops: so a record that the marker does not name is stale, or damaged, and is not
used; then each log's end is checked by itself (recovery.py).

What a crash leaves: the record is written before the marker, so no marker names one that is not
whole. The marker goes before anything is loaded; a record without it is not looked at.
"""

import json
import logging
from collections.abc import Mapping
from typing import NamedTuple, Self

from odradek.log.damage import DamagedLog
from odradek.log.disk import Disk
from odradek.log.epochs import EPOCHS_FILE
from odradek.log.file_list import ABSENT, FileList
from odradek.log.segment_files import (
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    SUFFIXES,
    file_name,
    offset_of,
)
from odradek.wire.crc32c import crc32c

logger = logging.getLogger(__name__)

SHUTDOWN_RECORD = ".odradek_shutdown"
VERSION = 1


class SegmentSizes(NamedTuple):
    """Sizes of one segment's files in the order of `SUFFIXES`; -1 where there is none."""

    base_offset: int
    sizes: tuple[int, ...]


class LogRecord(NamedTuple):
    """One log as it was when it was closed."""

    start_offset: int
    end_offset: int
    segments: tuple[SegmentSizes, ...]
    # Of the active segment's indexes in the order of `SUFFIXES`, and of the leader epochs.
    index_checksums: tuple[int, ...]
    epochs_checksum: int
    high_watermark: int = ABSENT  # what `replication-offset-checkpoint` says, if it does

    @classmethod
    def of(cls, there: FileList, start_offset: int, end_offset: int, bases: list[int]) -> Self:
        """A log that has been closed, with the base offsets of its segments."""
        return cls(
            start_offset,
            end_offset,
            tuple(segment_sizes(there, base) for base in bases),
            index_checksums(there, bases[-1]),
            there.checksum(EPOCHS_FILE),
        )

    def with_start(self, start_offset: int, there: FileList) -> Self:
        """The same log, whose start may have moved, with its leader epochs; no segment has."""
        return self._replace(start_offset=start_offset, epochs_checksum=there.checksum(EPOCHS_FILE))


class Differences(NamedTuple):
    """What must be done before a log is as its record says, or as near as it can be."""

    # Segments to scan and index again, by base offset.
    to_scan: frozenset[int] = frozenset()
    # Closed segments that have grown, and their recorded sizes.
    to_shorten: Mapping[int, int] = {}
    epochs_differ: bool = False


def encode_records(logs: Mapping[str, LogRecord]) -> bytes:
    """The file's content; logs are named by their directories."""
    return json.dumps({"version": VERSION, "logs": logs}, separators=(",", ":")).encode()


def decode_records(data: bytes) -> dict[str, LogRecord]:
    """Raises ValueError for anything that `encode_records` would not have written."""
    try:
        content = json.loads(data)
        if content["version"] != VERSION:
            raise ValueError(f"version {content['version']}")
        return {
            name: LogRecord(
                start,
                end,
                tuple(SegmentSizes(base, tuple(sizes)) for base, sizes in segments),
                tuple(checksums),
                epochs,
                mark,
            )
            for name, (start, end, segments, checksums, epochs, mark) in content["logs"].items()
        }
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"not a shutdown record: {error}") from None


def write_records(disk: Disk, directory: str, logs: Mapping[str, LogRecord]) -> str:
    """Write the record and return the name by which the marker refers to it."""
    data = encode_records(logs)
    disk.write_atomically(f"{directory}/{SHUTDOWN_RECORD}", data)
    return _name_of(data)


def read_records(disk: Disk, directory: str, name: str) -> dict[str, LogRecord] | None:
    """The record that the marker named, or None, with a warning, if it is not there intact."""
    path = f"{directory}/{SHUTDOWN_RECORD}"
    try:
        data = disk.read_bytes(path)
        if _name_of(data) == name:
            return decode_records(data)
        logger.error("%s is damaged: it is not what the clean stop wrote", path)
    except FileNotFoundError:
        logger.error("%s is gone, which the clean stop wrote", path)
    except ValueError as error:
        logger.error("%s is damaged: %s", path, error)
    return None


def _name_of(data: bytes) -> str:
    return f"{crc32c(data):08x}"


# One log


def segment_sizes(there: FileList, base_offset: int) -> SegmentSizes:
    sizes = tuple(there.size(file_name(base_offset, kind)) for kind in SUFFIXES)
    return SegmentSizes(base_offset, sizes)


def index_checksums(there: FileList, base_offset: int) -> tuple[int, ...]:
    return tuple(there.checksum(file_name(base_offset, kind)) for kind in INDEX_SUFFIXES)


def compare(there: FileList, record: LogRecord) -> Differences:
    """What differs from the record. Raises DamagedLog where records are gone that were followed by
    others: truncating the log would not restore them."""
    directory = there.directory
    found = {
        offset
        for name in there.names
        if name.endswith(LOG_SUFFIX) and (offset := offset_of(name)) is not None
    }
    recorded = {files.base_offset for files in record.segments}
    for offset in sorted(found - recorded):
        path = f"{directory}/{file_name(offset, LOG_SUFFIX)}"
        raise DamagedLog(f"{path} was not there when the broker stopped")
    end = max(found, default=-1)
    active = record.segments[-1].base_offset
    to_scan: set[int] = set()
    to_shorten: dict[int, int] = {}
    for files in record.segments:
        base = files.base_offset
        path = f"{directory}/{file_name(base, LOG_SUFFIX)}"
        if base not in found:
            if base < end:
                raise DamagedLog(f"{path} is gone, which was there when the broker stopped")
            logger.error("%s is gone, which was there when the broker stopped", path)
            continue
        now = segment_sizes(there, base)
        size, expected = now.sizes[0], files.sizes[0]
        if size != expected:
            message = f"{path} has {size} bytes, and had {expected} when the broker stopped"
            if size < expected and base != active:
                raise DamagedLog(message)
            logger.error("%s", message)
            if base == active:
                to_scan.add(base)
            else:
                to_shorten[base] = expected
        indexes_differ = now.sizes[1:] != files.sizes[1:]
        if base == active and not indexes_differ:
            indexes_differ = index_checksums(there, base) != record.index_checksums
        if indexes_differ:
            path = f"{directory}/{file_name(base, INDEX_SUFFIX)}"
            logger.warning("%s, or another index beside it, was changed: rebuilding them", path)
            to_scan.add(base)
    epochs_differ = there.checksum(EPOCHS_FILE) != record.epochs_checksum
    if epochs_differ:
        logger.warning(
            "%s/%s was changed after the clean stop: rebuilding it", directory, EPOCHS_FILE
        )
    return Differences(frozenset(to_scan), to_shorten, epochs_differ)
