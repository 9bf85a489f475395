"""The small files of a log directory, exactly as Kafka writes them
(docs/spec/interchange-with-apache-kafka.md section D.1).

A checkpoint is text: the version `0`, the number of entries, then one entry to a line. It is
replaced as a whole (temporary file, fsync, rename), so a reader finds the old one or the new one.
The reader is strict, as Kafka's is: no partition starts from an offset of a damaged file. Where
Kafka then takes the directory offline, we report the file and do without it (`read_or_report`).
"""

import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from odradek.log.disk import Disk, Lock
from odradek.wire.properties import decode_properties
from odradek.wire.topics import TopicPartition

logger = logging.getLogger(__name__)

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK_FILE = ".lock"

CHECKPOINT_VERSION = 0

_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
_LINE_END = re.compile(r"\r\n|\r|\n")

Entry = TypeVar("Entry")


class CorruptCheckpoint(OSError):
    """A file that cannot be trusted. An OSError: its directory may have failed."""


def encode_checkpoint(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "".join(
        f"{line}\n" for line in (str(CHECKPOINT_VERSION), str(len(entries)), *entries)
    ).encode()


def decode_checkpoint(data: bytes, path: str, parse: Callable[[str], Entry]) -> list[Entry]:
    """The entries of one file. Empty, or nothing but a version, means no entries."""
    try:
        lines = _LINE_END.split(data.decode())
    except UnicodeDecodeError as error:
        raise CorruptCheckpoint(f"{path} is not UTF-8: {error}") from None
    if lines[-1] == "":
        lines.pop()
    try:
        if not lines:
            return []
        if parse_integer(lines[0]) != CHECKPOINT_VERSION:
            raise CorruptCheckpoint(f"{path} has version {lines[0]}, not {CHECKPOINT_VERSION}")
        if len(lines) == 1:
            return []
        expected = parse_integer(lines[1])
        entries = [parse(line) for line in lines[2:]]
    except ValueError as error:
        raise CorruptCheckpoint(f"{path} has a malformed line: {error}") from None
    if len(entries) != expected:
        raise CorruptCheckpoint(f"{path} has {len(entries)} entries and announces {expected}")
    return entries


def parse_integer(text: str) -> int:
    """Stricter than int(): no blanks, no underscores."""
    if not _INTEGER.match(text):
        raise ValueError(f"{text!r} is not a number")
    return int(text)


def _parse_offset(line: str) -> tuple[TopicPartition, int]:
    fields = line.rstrip().split()
    if len(fields) != 3 or line[:1].isspace():
        raise ValueError(repr(line))
    topic, partition, offset = fields
    return TopicPartition(topic, parse_integer(partition)), parse_integer(offset)


class OffsetCheckpoint:
    """Offsets of partitions in one file: `topic partition offset` to a line."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk = disk
        self.path = path

    def read(self) -> dict[TopicPartition, int]:
        if not self.disk.exists(self.path):
            return {}
        return dict(decode_checkpoint(self.disk.read_bytes(self.path), self.path, _parse_offset))

    def read_or_report(self, consequence: str) -> dict[TopicPartition, int]:
        """What the file says; empty for a damaged one, with the consequence logged."""
        try:
            return self.read()
        except CorruptCheckpoint as error:
            logger.error("%s; starting without it: %s", error, consequence)
            return {}

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        lines = (f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())
        self.disk.write_atomically(self.path, encode_checkpoint(lines))


class InconsistentMetaProperties(Exception):
    """The directory belongs to another broker or cluster, or to a version we must not touch."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Whose directory it is. Version 0 is what a ZooKeeper-mode broker writes."""

    broker_id: int | None = None
    cluster_id: str | None = None
    directory_id: str | None = None
    version: int = 0

    def encode(self, now_ms: int) -> bytes:
        date = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(now_ms // 1000))
        fields = {
            "broker.id": None if self.broker_id is None else str(self.broker_id),
            "cluster.id": self.cluster_id,
            "directory.id": self.directory_id,
            "version": str(self.version),
        }
        body = "".join(
            f"{name}={_escape_property(value)}\n"
            for name, value in fields.items()
            if value is not None
        )
        return f"#\n#{date}\n{body}".encode("latin-1")

    @classmethod
    def decode(cls, data: bytes, path: str) -> "MetaProperties":
        properties = decode_properties(data.decode("latin-1"))
        try:
            version = parse_integer(properties.get("version", "0"))
            broker_id = properties.get("broker.id")
            return cls(
                broker_id=None if broker_id is None else parse_integer(broker_id),
                cluster_id=properties.get("cluster.id"),
                directory_id=properties.get("directory.id"),
                version=version,
            )
        except ValueError as error:
            raise CorruptCheckpoint(f"{path}: {error}") from None


def _escape_property(value: str) -> str:
    escaped = re.sub(r"([\\:=#!])", r"\\\1", value)
    return re.sub(r"\A ", r"\\ ", escaped)


def read_meta_properties(disk: Disk, directory: str) -> MetaProperties | None:
    path = f"{directory}/{META_PROPERTIES}"
    if not disk.exists(path):
        return None
    return MetaProperties.decode(disk.read_bytes(path), path)


def claim_meta_properties(
    disk: Disk, directory: str, broker_id: int, cluster_id: str, now_ms: int
) -> MetaProperties:
    """Write whose directory this is, or refuse one of another broker or cluster. Like Kafka we
    accept a file that names neither; but it may be damaged, so that is reported."""
    path = f"{directory}/{META_PROPERTIES}"
    read = read_meta_properties(disk, directory)
    found = read or MetaProperties()
    if found.version != 0:
        raise InconsistentMetaProperties(
            f"{path} has version {found.version}; a broker on ZooKeeper takes only version 0"
        )
    if found.broker_id not in (None, broker_id):
        raise InconsistentMetaProperties(
            f"{directory} belongs to broker {found.broker_id}, not to broker {broker_id}"
        )
    if found.cluster_id not in (None, cluster_id):
        raise InconsistentMetaProperties(
            f"{directory} belongs to cluster {found.cluster_id}, not to cluster {cluster_id}"
        )
    _report_missing_ids(disk, directory, path, read)
    ours = MetaProperties(broker_id, cluster_id, found.directory_id)
    if ours != found:
        disk.write_atomically(path, ours.encode(now_ms))
    return ours


def _report_missing_ids(disk: Disk, directory: str, path: str, read: MetaProperties | None) -> None:
    """A directory that is in use says whose it is: where it does not, that was lost."""
    if read is None:
        in_use = any(
            disk.exists(f"{directory}/{name}") for name in (RECOVERY_POINTS, HIGH_WATERMARKS)
        )
        problem = "is gone" if in_use else None
    else:
        fields = {"broker.id": read.broker_id, "cluster.id": read.cluster_id}
        missing = [name for name, value in fields.items() if value is None]
        problem = f"does not name its {' and '.join(missing)}" if missing else None
    if problem is not None:
        logger.error(
            "%s %s: it cannot be checked that this directory belongs to this broker and cluster."
            " It is written again; if the directory is another broker's, stop this one",
            path,
            problem,
        )


def write_clean_shutdown(disk: Disk, directory: str, record: str = "") -> None:
    """The last thing a clean stop writes: the next owner may trust what it finds. `record` names
    what was there (shutdown_record.py); Kafka does not read it."""
    content = {"version": 0, "brokerEpoch": -1} | ({"odradek": record} if record else {})
    data = json.dumps(content, separators=(",", ":")).encode()
    disk.write_atomically(f"{directory}/{CLEAN_SHUTDOWN}", data)


def take_clean_shutdown(disk: Disk, directory: str) -> str | None:
    """None if the last stop was not clean; else the name of its record, empty if Kafka stopped.
    The marker goes before anything is loaded: a crash while loading must not leave it behind."""
    path = f"{directory}/{CLEAN_SHUTDOWN}"
    if not disk.exists(path):
        return None
    data = disk.read_bytes(path)
    disk.remove(path)
    disk.sync_dir(directory)
    try:
        content = json.loads(data)
    except ValueError:
        return ""
    record = content.get("odradek", "") if isinstance(content, dict) else ""
    return record if isinstance(record, str) else ""


def lock_directory(disk: Disk, directory: str) -> Lock:
    """Hold the directory for this process. Raises OSError when another process holds it."""
    return disk.lock(f"{directory}/{LOCK_FILE}")
