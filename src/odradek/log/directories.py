"""Log directories: how the partitions in them are named, and the checkpoints they hold.

`topic-partition` is a partition in use; with `.<32 hex digits>` and a suffix it is on its way:
`-delete` will be removed, `-future` is a copy being made for a move between directories, `-stray`
was set aside. docs/spec/interchange-with-apache-kafka.md section D.1; the rules of the names are
Kafka's, because either broker must open what the other left.
"""

import logging
import posixpath
import re
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from odradek.log.checkpoints import (
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    OffsetCheckpoint,
    lock_directory,
    parse_integer,
    take_clean_shutdown,
    write_clean_shutdown,
)
from odradek.log.disk import Disk
from odradek.log.file_list import ABSENT
from odradek.log.shutdown_record import LogRecord, read_records, write_records
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    from odradek.log.log import Log

logger = logging.getLogger(__name__)

NAME_BYTES_MAX = 255
# Holds the id of the boot of the machine in which the directory was last used.
BOOT_FILE = ".odradek_boot"
# Sub-directories of other parts of Kafka, which a log manager passes over.
FOREIGN_NAMES = ("remote-log-index-cache",)
FOREIGN_TOPICS = ("__cluster_metadata",)


class DirectoryKind(Enum):
    """What a partition's directory is for; the value is its suffix."""

    CURRENT = ""
    DELETE = "-delete"
    FUTURE = "-future"
    STRAY = "-stray"


class PartitionDirectory(NamedTuple):
    """What a directory's name says. A shortened name has lost the end of its topic."""

    topic_partition: TopicPartition
    kind: DirectoryKind


class UnexpectedDirectory(Exception):
    """A sub-directory that is no partition: the broker must not start over foreign data."""


def parse_name(name: str) -> PartitionDirectory:
    kind = next(
        (kind for kind in DirectoryKind if kind.value and name.endswith(kind.value)),
        DirectoryKind.CURRENT,
    )
    stem = name
    if kind is not DirectoryKind.CURRENT:
        if not re.fullmatch(r"\S+-\S+\.\S+" + kind.value, name):
            raise UnexpectedDirectory(f"{name!r} lacks a unique part before {kind.value}")
        stem = name[: name.rindex(".")]
    topic, dash, partition = stem.rpartition("-")
    try:
        if not topic or not dash:
            raise ValueError
        return PartitionDirectory(TopicPartition(topic, parse_integer(partition)), kind)
    except ValueError:
        raise UnexpectedDirectory(f"{name!r} is not of the form topic-partition") from None


def name_for(topic_partition: TopicPartition, kind: DirectoryKind, unique: int) -> str:
    """A new name; `unique` is a random number of 128 bits. A name that is not parsed again is
    shortened to what a file system accepts."""
    if kind is DirectoryKind.CURRENT:
        return str(topic_partition)
    rest = f"-{topic_partition.partition}.{unique:032x}{kind.value}"
    topic = topic_partition.topic
    if kind is not DirectoryKind.FUTURE:
        topic = topic[: NAME_BYTES_MAX - len(rest)]
    return topic + rest


def _start_offsets(logs: Iterable["Log"]) -> dict[TopicPartition, int]:
    """Only what the segments themselves do not say."""
    return {
        log.topic_partition: log.start_offset
        for log in logs
        if log.start_offset > log.segments[0].base_offset
    }


def _recovery_points(logs: Iterable["Log"]) -> dict[TopicPartition, int]:
    return {log.topic_partition: log.recovery_point for log in logs}


# What it means to start without a checkpoint.
_WITHOUT = {
    RECOVERY_POINTS: "after an unclean stop every log is scanned from its beginning",
    LOG_START_OFFSETS: "records deleted by DeleteRecords may be readable again",
    HIGH_WATERMARKS: "every replica learns its high watermark again",
}

_OFFSETS = {RECOVERY_POINTS: _recovery_points, LOG_START_OFFSETS: _start_offsets}


class DirectoryInUse(Exception):
    """Another process has locked the directory."""


class LogDirectory:
    """One directory of `log.dirs` that works: its lock and its checkpoints.

    What was last written or read is remembered, so that a partition that is created where one of
    the same name was deleted cannot inherit its offsets."""

    def __init__(self, disk: Disk, path: str) -> None:
        """Create and lock. OSError means that the directory has failed."""
        self.path = path
        self._disk = disk
        disk.make_dirs(path)
        try:
            self._lock = lock_directory(disk, path)
        except BlockingIOError:
            raise DirectoryInUse(f"{path} is used by another process") from None
        self._checkpoints = {
            name: OffsetCheckpoint(disk, f"{path}/{name}")
            for name in (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS)
        }
        self._offsets: dict[str, dict[TopicPartition, int]] = {}
        # Logs that are damaged, or failed while the disk works, and their directories.
        self.offline_logs: dict[TopicPartition, str] = {}
        self._records: dict[str, LogRecord] | None = None
        self.log_count = 0
        self.was_clean = False
        self.is_loaded = False
        # None is one that Apache Kafka used, or that is new.
        self.last_boot: str | None = None

    def read(self) -> None:
        """Take the clean-shutdown marker and read the checkpoints, before any log is loaded."""
        record = take_clean_shutdown(self._disk, self.path)
        self.was_clean = record is not None
        if self._disk.exists(f"{self.path}/{BOOT_FILE}"):
            mark = self._disk.read_bytes(f"{self.path}/{BOOT_FILE}")
            self.last_boot = mark.decode("ascii", "replace")
        for name, checkpoint in self._checkpoints.items():
            self._offsets[name] = checkpoint.read_or_report(_WITHOUT[name])
        if record:
            self._records = read_records(self._disk, self.path, record)
            # Ours was here and is not: nothing that was to be compared with it may be believed.
            self.was_clean = self._records is not None
        self._compare_offsets()

    @property
    def is_from_kafka(self) -> bool:
        """Whether it was shut down cleanly by Apache Kafka, which leaves no record of the logs."""
        return self.was_clean and self._records is None

    def lost_machine(self, boot_id: str) -> bool:
        """Whether the machine is known to have gone down with a process that used the directory:
        what that one wrote and did not sync may be gone."""
        was_known = bool(boot_id and self.last_boot)
        return was_known and not self.was_clean and self.last_boot != boot_id

    def mark_boot(self, boot_id: str) -> None:
        """Everything written from now on is written in this boot."""
        if self.last_boot != boot_id:
            self._disk.write_atomically(f"{self.path}/{BOOT_FILE}", boot_id.encode())
            self.last_boot = boot_id

    def _compare_offsets(self) -> None:
        """The record is protected by a checksum, the checkpoints are not. One line for a file: it
        has lost the offsets of thousands of partitions when it has lost any."""
        for file, field in ((RECOVERY_POINTS, "end_offset"), (HIGH_WATERMARKS, "high_watermark")):
            different = []
            offsets = self._offsets[file]
            for name, record in (self._records or {}).items():
                parsed = parse_name(name)
                recorded = getattr(record, field)
                found = offsets.get(parsed.topic_partition, ABSENT)
                if found == recorded or parsed.kind is not DirectoryKind.CURRENT:
                    continue
                different.append(f"{found} of {parsed.topic_partition} and had {recorded}")
                if recorded != ABSENT:
                    offsets[parsed.topic_partition] = recorded
            if different:
                logger.error(
                    "%s/%s has not the offsets that it had when the broker stopped, of %d"
                    " partitions; they are restored. It has %s",
                    self.path,
                    file,
                    len(different),
                    different[0],
                )

    def record_of(self, name: str) -> LogRecord | None:
        """What the clean stop recorded of the log in the sub-directory `name`."""
        return None if self._records is None else self._records.get(name)

    def is_clean(self, name: str) -> bool:
        """Whether the log in the sub-directory `name` was closed by the last stop."""
        if self._records is not None:
            return name in self._records
        return self.was_clean

    def known_partitions(self) -> dict[TopicPartition, int]:
        """The partitions that were here at the last checkpoint, and how far they reached."""
        known = dict(self.offsets(RECOVERY_POINTS))
        for tp, offset in self.offsets(HIGH_WATERMARKS).items():
            known[tp] = max(offset, known.get(tp, 0))
        return known

    def mark_clean(self, logs: Iterable["Log"]) -> None:
        """The last step of a clean stop, when all logs are closed and all checkpoints written."""
        marks = self.offsets(HIGH_WATERMARKS)
        records = {}
        for log in logs:
            assert log.record is not None, f"{log} is not closed"
            mark = marks.get(log.topic_partition, ABSENT)
            records[posixpath.basename(log.directory)] = log.record._replace(high_watermark=mark)
        write_clean_shutdown(self._disk, self.path, write_records(self._disk, self.path, records))

    def partitions(self) -> list[tuple[str, PartitionDirectory]]:
        """The sub-directories' names and what they mean."""
        found = []
        for name in self._disk.list_dir(self.path):
            if name in FOREIGN_NAMES or not self._disk.is_dir(f"{self.path}/{name}"):
                continue
            parsed = parse_name(name)
            if parsed.topic_partition.topic not in FOREIGN_TOPICS:
                found.append((name, parsed))
        return found

    def offsets(self, name: str) -> Mapping[TopicPartition, int]:
        """A checkpoint's content, as it is on disk."""
        return self._offsets.get(name, {})

    def write(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        """Replace a checkpoint, unless it says so already."""
        if offsets != self._offsets.get(name):
            self._checkpoints[name].write(offsets)
            self._offsets[name] = offsets

    def checkpoint(self, name: str, logs: Iterable["Log"]) -> None:
        """Write what these logs, which are all in the directory and in use, are now."""
        self.write(name, {**self.kept_offsets(name), **_OFFSETS[name](logs)})

    def kept_offsets(self, name: str) -> dict[TopicPartition, int]:
        """What is known of the logs that are here and out of use: the next start needs it."""
        offsets = self.offsets(name)
        return {tp: offsets[tp] for tp in self.offline_logs if tp in offsets}

    def release(self) -> None:
        self._lock.release()
