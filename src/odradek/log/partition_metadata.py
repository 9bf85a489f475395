"""`partition.metadata`: whose log a directory holds, by the id of its topic (KIP-516).

Two lines, `version: 0` and `topic_id: <id>`, without a newline at the end: byte for byte Kafka's.
The file is written once and never changed. One that cannot be read is no absent one: the log may
be of another topic, so its directory fails, like one with any other disk error.
docs/spec/protocol-ladder.md section 2.4.

The ids of thousands of logs come at once when a topic is created, and each takes two syncs. So they
are written off the loop (`start_write`), many with one sync (`write_early_files`), and under
another name first: an append that comes meanwhile writes the file itself, and whichever is renamed
last says the same. That name has the id in it, and the file is made on the loop: where the log is
deleted and another takes its directory's name, there is nothing to rename.
"""

import posixpath
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple
from uuid import UUID

from odradek.log.checkpoints import parse_integer
from odradek.log.disk import Disk, File
from odradek.wire.topic_ids import NO_TOPIC_ID, format_topic_id, parse_topic_id

__all__ = [
    "EARLY_SUFFIX",
    "PARTITION_METADATA",
    "CorruptPartitionMetadata",
    "EarlyFile",
    "PartitionMetadata",
    "read_topic_id",
    "write_early_files",
]

PARTITION_METADATA = "partition.metadata"
# Of the file that is being written off the loop. A crash may leave it; the next load removes it.
EARLY_SUFFIX = ".early"

_LINE_END = re.compile(r"\r\n|\r|\n")
_SEPARATOR = re.compile(r":\s+")


class CorruptPartitionMetadata(OSError):
    """A file that does not say which topic the log is of."""


class PartitionMetadata:
    """The id of a log's topic, and its file. An OSError is the owner's: the disk has failed."""

    def __init__(self, disk: Disk, directory: str, *, is_kept: bool) -> None:
        """Without `is_kept` a file is removed and no id is taken: inter-broker protocols below 2.8.
        Raises CorruptPartitionMetadata."""
        self.directory = directory
        self._disk = disk
        self._is_kept = is_kept
        self._is_unwritten = False
        self._is_being_written = False
        self.topic_id = NO_TOPIC_ID
        if is_kept:
            self.topic_id = read_topic_id(disk, directory)
        elif disk.exists(f"{directory}/{PARTITION_METADATA}"):
            disk.remove(f"{directory}/{PARTITION_METADATA}")

    def assign(self, topic_id: UUID) -> bool:
        """Whose log this is, if that was not known; says whether there is something to write.

        It is on disk before the next append, at the latest: a log with records of which a crash
        leaves no id may be taken for any topic's."""
        if topic_id == NO_TOPIC_ID or not self._is_kept:
            return False
        assert self.topic_id in (NO_TOPIC_ID, topic_id), f"{self.directory} is of {self.topic_id}"
        if self.topic_id == NO_TOPIC_ID:
            self.topic_id = topic_id
            self._is_unwritten = True
        return self._is_unwritten

    def write(self) -> None:
        """Write an id that was assigned and is not on disk yet."""
        if self._is_unwritten:
            self._disk.write_atomically(f"{self.directory}/{PARTITION_METADATA}", self._content())
            self._is_unwritten = False

    def start_write(self) -> "EarlyFile | None":
        """What `write_early_files` is to write off the loop, instead of `write` and before
        `finish_write`; None if there is nothing to write, or it is being written."""
        if not self._is_unwritten or self._is_being_written:
            return None
        name = f"{PARTITION_METADATA}.{format_topic_id(self.topic_id)}{EARLY_SUFFIX}"
        file = self._disk.open(f"{self.directory}/{name}", create=True)
        self._is_being_written = True
        return EarlyFile(self.directory, name, file, self._content())

    def finish_write(self, *, is_on_disk: bool) -> None:
        """What `start_write` gave is written, or has failed."""
        self._is_being_written = False
        if is_on_disk:
            self._is_unwritten = False

    def _content(self) -> bytes:
        return f"version: 0\ntopic_id: {format_topic_id(self.topic_id)}".encode()


class EarlyFile(NamedTuple):
    """The id of a log on its way to the disk."""

    directory: str
    name: str
    file: File
    content: bytes

    @property
    def path(self) -> str:
        return f"{self.directory}/{self.name}"

    def write(self) -> None:
        self.file.truncate(0)
        self.file.append(self.content)
        self.file.close()


def write_early_files(disk: Disk, files: Sequence[EarlyFile]) -> dict[EarlyFile, OSError]:
    """Write these, sync them together, and give them their names; returns what went wrong with
    which. It is FileNotFoundError where a log was moved meanwhile, which has written the file by
    then. A crash leaves each file, synced, under one of its names, or torn under the first."""
    failed: dict[EarlyFile, OSError] = {}

    def each(step: Callable[[EarlyFile], None]) -> None:
        for file in files:
            if file not in failed:
                try:
                    step(file)
                except OSError as error:
                    failed[file] = error

    def together(path_of: Callable[[EarlyFile], str]) -> None:
        """Log directory by log directory: one that fails says nothing about the others."""
        left: dict[str, list[EarlyFile]] = {}
        for file in files:
            if file not in failed:
                left.setdefault(posixpath.dirname(file.directory), []).append(file)
        for those in left.values():
            try:
                disk.sync_files([path_of(file) for file in those])
            except OSError as error:
                failed.update(dict.fromkeys(those, error))

    each(EarlyFile.write)
    together(lambda file: file.path)
    each(lambda file: disk.rename(file.path, f"{file.directory}/{PARTITION_METADATA}"))
    together(lambda file: file.directory)
    return failed


def read_topic_id(disk: Disk, directory: str) -> UUID:
    """Zero if there is no file. Raises CorruptPartitionMetadata."""
    path = f"{directory}/{PARTITION_METADATA}"
    if not disk.exists(path):
        return NO_TOPIC_ID
    try:
        return _parse(disk.read_bytes(path).decode())
    except ValueError as error:
        raise CorruptPartitionMetadata(
            f"{path} does not name the topic of its log: {error}. If the topic was not deleted and"
            " created again, remove the file; the id is written again"
        ) from None


def _parse(text: str) -> UUID:
    """The names of the two fields are not looked at, as in Kafka."""
    lines = [_SEPARATOR.split(line) for line in _LINE_END.split(text)[:2]]
    if len(lines) < 2 or any(len(parts) != 2 for parts in lines):
        raise ValueError("expected two lines, a version and a topic id")
    (_, version), (_, id_text) = lines
    if parse_integer(version) < 0:
        raise ValueError(f"version {version}")
    topic_id = parse_topic_id(id_text)
    if topic_id == NO_TOPIC_ID:
        raise ValueError("the topic id is zero")
    return topic_id
