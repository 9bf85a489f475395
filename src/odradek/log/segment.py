"""One segment of a log: a file of batches, and the indexes that find things in it.

A segment only grows at its end, and only the last of a log grows at all. Indexes are hints: what
they point at is checked, and a wrong one costs a longer scan, never a wrong answer.

What a crash leaves: a prefix of the batches appended since the last flush, the last one possibly
torn or full of zeros; indexes with fewer entries than there could be. Recovery rescans the segment,
truncates it at the first bad batch and rebuilds the indexes (recovery.py).
"""

import logging
import zlib
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from odradek.log.config import LogConfig
from odradek.log.indexes import CorruptIndex, OffsetIndex, TimeIndex, TransactionIndex
from odradek.log.segment_files import (
    INDEX_SUFFIX,
    INDEX_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    SegmentFiles,
)
from odradek.wire.batch import (
    HEADER_BYTES,
    LENGTH_MIN,
    LENGTH_OFFSET,
    MAGIC,
    MAGIC_OFFSET,
    OVERHEAD_BYTES,
    BatchHeader,
    CorruptBatch,
    UnsupportedMagic,
    scan,
)
from odradek.wire.records import NO_TIMESTAMP

logger = logging.getLogger(__name__)

OFFSET_MAX = (1 << 63) - 1
RELATIVE_OFFSET_MAX = (1 << 31) - 1
# Positions in the indexes are 32 bits wide as well.
SIZE_MAX = (1 << 31) - 1
# How much is read at once to look at headers, which stand within an index interval of each other.
PEEK_BYTES = 8 * 1024
SCAN_BYTES = 4 * 1024 * 1024

# Base offset, length, magic and last offset delta: what a search needs of a header.
_PEEK = Struct(">qi4xb6xi")
_peek = _PEEK.unpack_from
_OLD_HEADER = Struct(">iIB")


class Found(NamedTuple):
    """A batch in the file."""

    position: int
    base_offset: int
    size_bytes: int


def parts(headers: Sequence[BatchHeader], size_max: int) -> list[Sequence[BatchHeader]]:
    """Consecutive batches in as few groups as possible that each fit one segment."""
    groups: list[Sequence[BatchHeader]] = []
    start = 0
    first = headers[0]
    for index, header in enumerate(headers):
        if index > start and (
            header.end_position - first.position > size_max
            or header.last_offset - first.base_offset > RELATIVE_OFFSET_MAX
        ):
            groups.append(headers[start:index])
            start, first = index, header
    groups.append(headers[start:])
    return groups


class Segment:
    """The batches from `base_offset` up to the next segment's."""

    __slots__ = (
        "_bytes_since_index",
        "_first_timestamp",
        "_greatest",
        "_index_room",
        "base_offset",
        "created_ms",
        "files",
        "index_interval_bytes",
        "jitter_ms",
        "offset_index",
        "size",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self, files: SegmentFiles, config: LogConfig, created_ms: int, jitter_ms: int = 0
    ) -> None:
        """Open a segment that is on disk."""
        disk, base_offset = files.disk, files.base_offset
        self.files = files
        self.base_offset = base_offset
        self.index_interval_bytes = config.index_interval_bytes
        self.created_ms = created_ms
        self.jitter_ms = jitter_ms
        index_bytes = config.segment_index_bytes
        self.offset_index = OffsetIndex(disk, files.path(INDEX_SUFFIX), base_offset, index_bytes)
        self.time_index = TimeIndex(disk, files.path(TIME_INDEX_SUFFIX), base_offset, index_bytes)
        self.transaction_index = TransactionIndex(
            disk, files.path(TRANSACTION_INDEX_SUFFIX), base_offset
        )
        self._bytes_since_index = 0
        self._index_room: int | None = None
        # The first batch's timestamp, which says when the segment is old enough to be rolled;
        # and the greatest, with the last offset of its batch. None until first asked for.
        self._first_timestamp: int | None = None
        self._greatest: tuple[int, int] | None = None
        self.size = disk.size(files.log_path)

    @classmethod
    def create(
        cls, files: SegmentFiles, config: LogConfig, created_ms: int, jitter_ms: int = 0
    ) -> "Segment":
        """A new segment, in place of whatever its files hold."""
        files.create()
        return cls(files, config, created_ms, jitter_ms)

    def __repr__(self) -> str:
        return f"Segment({self.files.log_path!r}, size={self.size})"

    @property
    def indexes(self) -> tuple[OffsetIndex | TimeIndex | TransactionIndex, ...]:
        return self.offset_index, self.time_index, self.transaction_index

    # Growing

    def append(
        self, buffer: bytes | bytearray | memoryview, headers: Sequence[BatchHeader]
    ) -> None:
        """Write the buffer, which is exactly the batches of these headers, at the end."""
        position = self.size
        self.files.log.write_at(position, buffer)
        size = len(buffer)
        assert headers[-1].end_position - headers[0].position == size
        self.size = position + size
        if position == 0:
            self._first_timestamp = headers[0].max_timestamp
        greatest = self._greatest or self.greatest_timestamp
        start = headers[0].position
        for header in headers:
            last_offset = header.base_offset + header.last_offset_delta
            if header.max_timestamp > greatest[0]:
                self._greatest = greatest = (header.max_timestamp, last_offset)
            if self._bytes_since_index > self.index_interval_bytes and self.index_room > 0:
                self._add_index_entry(last_offset, position + header.position - start, greatest)
                self._bytes_since_index = 0
            self._bytes_since_index += header.length + OVERHEAD_BYTES

    def should_roll(
        self, config: LogConfig, size: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> bool:
        """Whether a buffer of this size and reach belongs into a new segment instead."""
        if self.size > min(config.segment_bytes, SIZE_MAX) - size:
            return True
        if last_offset - self.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if self.size == 0:
            return False
        first = self.first_timestamp
        age_ms = max_timestamp - first if first >= 0 else now_ms - self.created_ms
        return age_ms > config.segment_ms - self.jitter_ms or self.index_room <= 0

    @property
    def index_room(self) -> int:
        """How many entries the fuller index still takes, the final one of the time index aside."""
        if self._index_room is None:
            offsets, times = self.offset_index, self.time_index
            self._index_room = min(
                offsets.max_entries - offsets.entry_count, times.max_entries - 1 - times.entry_count
            )
        return self._index_room

    def _add_index_entry(self, offset: int, position: int, greatest: tuple[int, int]) -> None:
        self._index_room = self.index_room - 1
        self.offset_index.append(offset, position)
        self.time_index.append(*greatest)

    def seal(self, *, sync: bool = False) -> None:
        """No more appends: the indexes get their final entry and lose their padding. A segment
        without records needs none: a broker that restarts with thousands of empty logs would make
        two files for each."""
        self.time_index.append(*self.greatest_timestamp)
        self.offset_index.flush(sync, create=self.size > 0)
        self.time_index.flush(sync, create=self.size > 0)

    # Finding

    def find(self, offset: int) -> Found | None:
        """The first batch that reaches `offset`, or None if the segment ends before it."""
        try:
            indexed, position = self.offset_index.lookup(offset)
            if position == 0:
                return self._find_from(0, offset)
            if 0 < position < self.size:
                return self._find_from(position, offset, base_max=indexed)
        except (CorruptBatch, CorruptIndex):
            if self.offset_index.entry_count == 0:
                raise
        # The index may be what is wrong; the batches themselves decide.
        return self._find_from(0, offset)

    def find_at(self, position: int) -> Found | None:
        """The batch that begins at `position`."""
        return self._find_from(position, -1)

    def _find_from(self, position: int, offset: int, base_max: int = OFFSET_MAX) -> Found | None:
        """`base_max` is what the first batch's base offset may be at most, if an index named it."""
        if self.size - position < HEADER_BYTES:
            return None  # before the file is opened: thousands of logs are empty
        read = self.files.log.read
        chunk, chunk_start = b"", position
        while self.size - position >= HEADER_BYTES:
            local = position - chunk_start
            if local + _PEEK.size > len(chunk):
                chunk, chunk_start, local = read(position, PEEK_BYTES), position, 0
                if len(chunk) < _PEEK.size:
                    raise CorruptBatch(f"{self} is shorter than it was")
            base_offset, length, magic, delta = _peek(chunk, local)
            if magic != MAGIC or length < HEADER_BYTES - OVERHEAD_BYTES:
                self.refuse_old_message(position)
                raise CorruptBatch(f"no batch at position {position} of {self.files.log_path}")
            if base_offset > base_max:
                raise CorruptBatch(f"batch {base_offset} at {position} where {base_max} should be")
            if base_offset + delta >= offset:
                return Found(position, base_offset, length + OVERHEAD_BYTES)
            base_max = OFFSET_MAX
            position += length + OVERHEAD_BYTES
        return None

    def batches(
        self, position: int = 0, end_position: int | None = None
    ) -> Iterator[tuple[bytes, BatchHeader]]:
        """Every batch from `position` on, each with the buffer that its header's position is in.

        Ends at the first incomplete batch; raises CorruptBatch where no batch can begin, and
        UnsupportedMagic at a message of magic 0 or 1."""
        end = self.size if end_position is None else min(end_position, self.size)
        while end - position >= HEADER_BYTES:
            first = self.find_at(position)
            if first is None or first.size_bytes > end - position:
                return
            chunk = self.files.log.read(
                position, min(max(SCAN_BYTES, first.size_bytes), end - position)
            )
            taken = 0
            for header in scan(chunk):
                yield chunk, header
                taken = header.end_position
            if not taken:
                return
            position += taken

    # Time

    @property
    def first_timestamp(self) -> int:
        if self._first_timestamp is None:
            if self.size < HEADER_BYTES:
                return NO_TIMESTAMP
            _, header = next(self.batches())
            self._first_timestamp = header.max_timestamp
        return self._first_timestamp

    @property
    def greatest_timestamp(self) -> tuple[int, int]:
        """The greatest timestamp, and the last offset of the first batch that has it."""
        if self._greatest is None:
            self._greatest = self._stored_greatest_timestamp()
        return self._greatest

    def _stored_greatest_timestamp(self) -> tuple[int, int]:
        """From the time index, if the batch it names says the same: retention deletes by it."""
        if self.size < HEADER_BYTES:
            return NO_TIMESTAMP, self.base_offset
        was_open = self.files.is_open
        greatest = self.time_index.last_entry
        if self.time_index.is_padded or not self.has_timestamp(*greatest):
            if greatest[0] >= 0:
                logger.warning("%s is damaged; reading %s instead", self.time_index.path, self)
            greatest = (NO_TIMESTAMP, self.base_offset)
            for _, header in self.batches():
                if header.max_timestamp > greatest[0]:
                    greatest = (header.max_timestamp, header.last_offset)
        if not was_open:
            self.files.close()
        return greatest

    def has_timestamp(self, timestamp: int, offset: int) -> bool:
        """Whether an entry of the time index, or (-1, base) for none, is true of the batches."""
        try:
            found = self.find(offset)
            if found is None:
                return False
            _, header = next(self.batches(found.position))
        except (CorruptBatch, StopIteration):
            return False
        return header.max_timestamp == timestamp

    @property
    def largest_timestamp(self) -> int:
        """For retention: where no record has a timestamp, the file's own stands in."""
        greatest = self.greatest_timestamp[0]
        return greatest if greatest >= 0 else self.files.modified_ms

    # Shrinking and moving

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Cut before the batch that reaches `offset`; returns where the segment then ends: at
        `offset`, or where the batch began that had to go whole.

        Synced at once: were the old bytes to come back after a crash, beside what is written next,
        the log would be one that no leader ever had."""
        found = self.find(offset)
        for index in self.indexes:
            index.truncate_to(offset)
        end = offset
        if found is not None:
            end = min(offset, found.base_offset)
            self.files.log.truncate(found.position)
            self.files.log.sync()
            self.size = found.position
        self._index_room = None
        self._bytes_since_index = 0
        self._reread_timestamps(now_ms)
        return end

    def _reread_timestamps(self, now_ms: int) -> None:
        if self.size == 0:
            self.created_ms = now_ms
            self._first_timestamp = None
        greatest = self.time_index.last_entry
        found = self.find(greatest[1])
        for _, header in self.batches(found.position if found else 0):
            if header.max_timestamp > greatest[0]:
                greatest = (header.max_timestamp, header.last_offset)
        self._greatest = greatest

    def shorten(self, size: int) -> None:
        """Drop bytes that appeared behind the end of a closed segment."""
        self.files.log.truncate(size)
        self.files.log.sync()
        self.size = size

    def refuse_old_message(self, position: int) -> None:
        """Raise UnsupportedMagic if a message of magic 0 or 1 begins here: size i32, CRC-32 of the
        rest, magic. Zeros in a torn header look like one too, but for a right checksum."""
        if self.size - position < OVERHEAD_BYTES + LENGTH_MIN:
            return
        header = self.files.log.read(position + LENGTH_OFFSET, _OLD_HEADER.size)
        if len(header) < _OLD_HEADER.size:
            return  # The file is shorter than it was.
        length, crc, magic = _OLD_HEADER.unpack(header)
        if magic >= MAGIC or not LENGTH_MIN <= length <= self.size - position - OVERHEAD_BYTES:
            return
        if zlib.crc32(self.files.log.read(position + MAGIC_OFFSET, length - 4)) == crc:
            raise UnsupportedMagic(
                f"{self.files.log_path} has a message of magic {magic} at {position}; only 2 is "
                "supported"
            )

    def change_suffix(self, suffix: str) -> None:
        """Rename all files of the segment: the log last, for it is what makes the others count."""
        files, old_log = self.files, self.files.log_path
        files.suffix = suffix
        for index, kind in zip(self.indexes, INDEX_SUFFIXES, strict=True):
            index.rename(files.path(kind))
        files.disk.rename(old_log, files.log_path)

    def move_to(self, directory: str) -> None:
        """The directory was renamed with the files in it."""
        self.files.directory = directory
        for index, kind in zip(self.indexes, INDEX_SUFFIXES, strict=True):
            index.path = self.files.path(kind)

    def write_indexes(self) -> None:
        self.offset_index.flush()
        self.time_index.flush()

    def index_paths(self) -> list[str]:
        return [index.path for index in self.indexes]

    def delete(self) -> None:
        self.files.close()
        for index in self.indexes:
            index.delete()
        disk, log_path = self.files.disk, self.files.log_path
        if disk.exists(log_path):
            disk.remove(log_path)


class Rebuild:
    """The scan of a segment that cannot be trusted: the caller walks the batches, keeps each good
    one, stops at the first bad one, and finishes."""

    def __init__(self, segment: Segment) -> None:
        for index in segment.indexes:
            index.reset()
        segment._index_room = None
        self._segment = segment
        self._greatest = (NO_TIMESTAMP, segment.base_offset)
        # Bytes of batches that were kept, and how many of them came before the last index entry.
        self._kept = 0
        self._indexed = 0

    def batches(self) -> Iterator[tuple[bytes, BatchHeader]]:
        """The batches up to the first that cannot be read."""
        try:
            yield from self._segment.batches()
        except (CorruptBatch, UnsupportedMagic):
            return  # The end of what can be kept.

    def keep(self, header: BatchHeader) -> None:
        """The batch just yielded is good."""
        segment = self._segment
        if header.max_timestamp > self._greatest[0]:
            self._greatest = (header.max_timestamp, header.last_offset)
        if self._kept - self._indexed > segment.index_interval_bytes and segment.index_room > 0:
            segment._add_index_entry(header.last_offset, self._kept, self._greatest)
            self._indexed = self._kept
        self._kept += header.size_bytes

    def finish(self, *, may_truncate: bool) -> int:
        """Truncate the segment after the last batch kept; returns how many bytes were removed. With
        nothing removed raises CorruptBatch if it may not be truncated, and UnsupportedMagic rather
        than treat a message of an old format as damage. The caller syncs the segment before
        anything is built on it: the process that was killed may have truncated the file, and a
        power failure now would bring the old end back."""
        segment = self._segment
        segment.refuse_old_message(self._kept)
        removed = segment.size - self._kept
        if removed:
            if not may_truncate:
                path = segment.files.log_path
                raise CorruptBatch(f"{path} is damaged at position {self._kept}")
            segment.files.log.truncate(self._kept)
            segment.size = self._kept
        segment._greatest = self._greatest
        segment._first_timestamp = None
        segment._bytes_since_index = self._kept - self._indexed
        segment.seal()
        return removed
