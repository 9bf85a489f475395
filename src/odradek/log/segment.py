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
from odradek.log.disk import Disk, File
from odradek.log.indexes import CorruptIndex, OffsetIndex, TimeIndex, TransactionIndex
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
    crc_ok,
    scan,
)
from odradek.wire.errors import DecodeError
from odradek.wire.records import NO_TIMESTAMP, RECORD_BYTES_MIN, iterate_records

logger = logging.getLogger(__name__)

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"

OFFSET_MAX = (1 << 63) - 1
RELATIVE_OFFSET_MAX = (1 << 31) - 1
# Positions in the indexes are 32 bits wide as well.
SIZE_MAX = (1 << 31) - 1
# How much is read at once to look at headers, which stand within an index interval of each other.
PEEK_BYTES = 8 * 1024
SCAN_BYTES = 4 * 1024 * 1024
# Records are looked at one by one if so many fit this, or their batch as it is: nothing else goes
# on meanwhile, and a few hundred bytes can be made to hold millions of records.
LOOKED_AT_BYTES = 16 * 1024 * 1024

# Base offset, length, magic and last offset delta: what a search needs of a header.
_PEEK = Struct(">qi4xb6xi")
_peek = _PEEK.unpack_from
_OLD_HEADER = Struct(">iIB")


def file_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def offset_of(name: str) -> int | None:
    """The base offset in a file's name, if it has one."""
    digits = name.split(".", 1)[0]
    return int(digits) if len(digits) == 20 and digits.isdecimal() else None


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
        "_disk",
        "_file",
        "_first_timestamp",
        "_greatest",
        "_index_room",
        "base_offset",
        "created_ms",
        "directory",
        "index_interval_bytes",
        "jitter_ms",
        "offset_index",
        "size",
        "suffix",
        "time_index",
        "transaction_index",
        "was_used",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        created_ms: int,
        jitter_ms: int = 0,
        suffix: str = "",
        create: bool = False,
    ) -> None:
        self._disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.suffix = suffix
        self.index_interval_bytes = config.index_interval_bytes
        self.created_ms = created_ms
        self.jitter_ms = jitter_ms
        index_bytes = config.segment_index_bytes
        self.offset_index = OffsetIndex(disk, self.path(INDEX_SUFFIX), base_offset, index_bytes)
        self.time_index = TimeIndex(disk, self.path(TIME_INDEX_SUFFIX), base_offset, index_bytes)
        self.transaction_index = TransactionIndex(
            disk, self.path(TRANSACTION_INDEX_SUFFIX), base_offset
        )
        self._file: File | None = None
        self.was_used = False
        self._bytes_since_index = 0
        self._index_room: int | None = None
        # The first batch's timestamp, which says when the segment is old enough to be rolled;
        # and the greatest, with the last offset of its batch. None until first asked for.
        self._first_timestamp: int | None = None
        self._greatest: tuple[int, int] | None = None
        if create:
            for kind in SUFFIXES:
                if disk.exists(self.path(kind)):
                    disk.remove(self.path(kind))
            self._open_file(create=True)
            self.size = 0
        else:
            self.size = disk.size(self.path(LOG_SUFFIX))

    def __repr__(self) -> str:
        return f"Segment({self.path(LOG_SUFFIX)!r}, size={self.size})"

    def path(self, kind: str) -> str:
        return f"{self.directory}/{file_name(self.base_offset, kind)}{self.suffix}"

    @property
    def file(self) -> File:
        """Opened on use, for it may have been closed for others since: see open_files.py. So it is
        not to be kept, and written to by position."""
        file = self._file
        if file is None:
            file = self._open_file()
        self.was_used = True
        return file

    def _open_file(self, create: bool = False) -> File:
        file = self._file = self._disk.open(self.path(LOG_SUFFIX), create)
        self._disk.open_files.add(self)
        return file

    def let_go(self) -> None:
        """Others need the descriptor. Who has the file in use still has it open."""
        self._file = None

    # Growing

    def append(
        self, buffer: bytes | bytearray | memoryview, headers: Sequence[BatchHeader]
    ) -> None:
        """Write the buffer, which is exactly the batches of these headers, at the end."""
        position = self.size
        self.file.write_at(position, buffer)
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
        """No more appends: the indexes get their final entry and lose their padding."""
        self.time_index.append(*self.greatest_timestamp)
        self.offset_index.flush(sync)
        self.time_index.flush(sync)

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
        read = self.file.read
        chunk, chunk_start = b"", position
        while self.size - position >= HEADER_BYTES:
            local = position - chunk_start
            if local + _PEEK.size > len(chunk):
                chunk, chunk_start, local = read(position, PEEK_BYTES), position, 0
                if len(chunk) < _PEEK.size:
                    raise CorruptBatch(f"{self} is shorter than it was")
            base_offset, length, magic, delta = _peek(chunk, local)
            if magic != MAGIC or length < HEADER_BYTES - OVERHEAD_BYTES:
                self._refuse_old_message(position)
                raise CorruptBatch(f"no batch at position {position} of {self.path(LOG_SUFFIX)}")
            if base_offset > base_max:
                raise CorruptBatch(f"batch {base_offset} at {position} where {base_max} should be")
            if base_offset + delta >= offset:
                return Found(position, base_offset, length + OVERHEAD_BYTES)
            base_max = OFFSET_MAX
            position += length + OVERHEAD_BYTES
        return None

    def next_offset(self) -> int:
        """The offset after the last batch, read from the file."""
        found = self.find(self.offset_index.last_offset)
        end, position = self.base_offset, found.position if found else 0
        for _, header in self.batches(position):
            end = header.next_offset
            position += header.size_bytes
        self._refuse_old_message(position)
        return end

    def check_end(self) -> int:
        """The offset after the last batch, if all is well at the end of the segment: the batches
        from the last index entry on are whole, their checksums are right, they end where the file
        ends, and neither index points beyond them. Otherwise raises CorruptBatch or CorruptIndex:
        the segment must be scanned."""
        path = self.path(LOG_SUFFIX)
        last_indexed = self.offset_index.last_offset
        found = self.find(last_indexed)
        if found is None and self.offset_index.entry_count:
            raise CorruptIndex(f"{self.offset_index.path} points beyond the end of {path}")
        end, position = self.base_offset, found.position if found else 0
        for chunk, header in self.batches(position):
            if header.base_offset < end or header.last_offset_delta < 0:
                raise CorruptBatch(
                    f"{path}: offset {header.base_offset} at {position}, after {end}"
                )
            if not crc_ok(chunk, header):
                raise CorruptBatch(f"{path}: wrong checksum at position {position}")
            end = header.next_offset
            position += header.size_bytes
        if position != self.size:
            self._refuse_old_message(position)
            raise CorruptBatch(f"{path} ends at {self.size}, within the batch at {position}")
        timestamp, offset = self.time_index.last_entry
        if timestamp >= 0 and not self.base_offset <= offset < end:
            raise CorruptIndex(f"{self.time_index.path} points beyond the end of {path}")
        return end

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
            chunk = self.file.read(position, min(max(SCAN_BYTES, first.size_bytes), end - position))
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
        was_closed = self._file is None
        greatest = self.time_index.last_entry
        if self.time_index.is_padded or not self._has_timestamp(*greatest):
            if greatest[0] >= 0:
                logger.warning("%s is damaged; reading %s instead", self.time_index.path, self)
            greatest = (NO_TIMESTAMP, self.base_offset)
            for _, header in self.batches():
                if header.max_timestamp > greatest[0]:
                    greatest = (header.max_timestamp, header.last_offset)
        if was_closed:
            self.close_file()
        return greatest

    def _has_timestamp(self, timestamp: int, offset: int) -> bool:
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
        return greatest if greatest >= 0 else self.modified_ms

    @property
    def modified_ms(self) -> int:
        return self._disk.modified_ms(self.path(LOG_SUFFIX))

    def find_timestamp(self, timestamp: int, start_offset: int) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record at or after both arguments."""
        indexed, offset = self.time_index.lookup(timestamp)
        is_entry = (indexed, offset) != (NO_TIMESTAMP, self.base_offset)
        if is_entry and not self._has_timestamp(indexed, offset):
            logger.warning("%s is damaged; reading %s instead", self.time_index.path, self)
            offset = self.base_offset
        return self._first_record(max(offset, start_offset), timestamp, start_offset)

    def find_greatest_timestamp(self) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record with the greatest timestamp."""
        greatest, offset = self.greatest_timestamp
        return None if greatest < 0 else self._first_record(offset, greatest, self.base_offset)

    def _first_record(
        self, search_from: int, timestamp: int, start_offset: int
    ) -> tuple[int, int, int] | None:
        """Opens one batch, or two if the log begins within the first. They were never
        opened before: if one contradicts its header, or cannot be read, its header must do."""
        found = self.find(search_from)
        if found is None:
            return None
        for chunk, header in self.batches(found.position):
            if header.max_timestamp < timestamp or header.last_offset < start_offset:
                continue
            if header.record_count == 0:
                continue  # The cleaner left only what its producer is known by.
            offset = max(header.base_offset, start_offset)
            by_header = header.max_timestamp, offset, header.leader_epoch
            size_max = max(LOOKED_AT_BYTES, header.size_bytes)
            if header.record_count > size_max // RECORD_BYTES_MIN:
                return by_header
            try:
                for record in iterate_records(chunk, header):
                    if record.timestamp >= timestamp and record.offset >= start_offset:
                        return record.timestamp, record.offset, header.leader_epoch
            except DecodeError:
                return by_header
            if header.base_offset >= start_offset:
                return by_header
            # It begins before the log does: the records that were late enough may be gone.
        return None

    # Shrinking and moving

    def truncate_to(self, offset: int, now_ms: int) -> int:
        """Cut before the batch that reaches `offset`; returns where the segment then ends: at
        `offset`, or where the batch began that had to go whole.

        Synced at once: were the old bytes to come back after a crash, beside what is written next,
        the log would be one that no leader ever had."""
        found = self.find(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.transaction_index.truncate_to(offset)
        end = offset
        if found is not None:
            end = min(offset, found.base_offset)
            self.file.truncate(found.position)
            self.file.sync()
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

    def rebuild(self) -> "Rebuild":
        """Begin to scan and index the segment again, from its start."""
        return Rebuild(self)

    def shorten(self, size: int) -> None:
        """Drop bytes that appeared behind the end of a closed segment."""
        self.file.truncate(size)
        self.file.sync()
        self.size = size

    def _refuse_old_message(self, position: int) -> None:
        """Raise UnsupportedMagic if a message of magic 0 or 1 begins here: size i32, CRC-32 of the
        rest, magic. Zeros in a torn header look like one too, but for a right checksum."""
        if self.size - position < OVERHEAD_BYTES + LENGTH_MIN:
            return
        header = self.file.read(position + LENGTH_OFFSET, _OLD_HEADER.size)
        if len(header) < _OLD_HEADER.size:
            return  # The file is shorter than it was.
        length, crc, magic = _OLD_HEADER.unpack(header)
        if magic >= MAGIC or not LENGTH_MIN <= length <= self.size - position - OVERHEAD_BYTES:
            return
        if zlib.crc32(self.file.read(position + MAGIC_OFFSET, length - 4)) == crc:
            raise UnsupportedMagic(
                f"{self.path(LOG_SUFFIX)} has a message of magic {magic} at {position}; only 2 is "
                "supported"
            )

    def change_suffix(self, suffix: str) -> None:
        """Rename all files of the segment: the log last, for it is what makes the others count."""
        old_log = self.path(LOG_SUFFIX)
        self.suffix = suffix
        self.offset_index.rename(self.path(INDEX_SUFFIX))
        self.time_index.rename(self.path(TIME_INDEX_SUFFIX))
        self.transaction_index.rename(self.path(TRANSACTION_INDEX_SUFFIX))
        self._disk.rename(old_log, self.path(LOG_SUFFIX))

    def move_to(self, directory: str) -> None:
        """The directory was renamed with the files in it."""
        self.directory = directory
        self.offset_index.path = self.path(INDEX_SUFFIX)
        self.time_index.path = self.path(TIME_INDEX_SUFFIX)
        self.transaction_index.path = self.path(TRANSACTION_INDEX_SUFFIX)

    def write_indexes(self) -> None:
        self.offset_index.flush()
        self.time_index.flush()

    def index_paths(self) -> list[str]:
        return [self.offset_index.path, self.time_index.path, self.transaction_index.path]

    def close_file(self) -> None:
        """Close the file without writing anything."""
        self._disk.open_files.discard(self)
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def delete(self) -> None:
        self.close_file()
        for index in (self.offset_index, self.time_index, self.transaction_index):
            index.delete()
        if self._disk.exists(self.path(LOG_SUFFIX)):
            self._disk.remove(self.path(LOG_SUFFIX))


class Rebuild:
    """The scan of a segment that cannot be trusted: the caller walks the batches, keeps each good
    one, stops at the first bad one, and finishes."""

    def __init__(self, segment: Segment) -> None:
        for index in (segment.offset_index, segment.time_index, segment.transaction_index):
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
        segment._refuse_old_message(self._kept)
        removed = segment.size - self._kept
        if removed:
            if not may_truncate:
                path = segment.path(LOG_SUFFIX)
                raise CorruptBatch(f"{path} is damaged at position {self._kept}")
            segment.file.truncate(self._kept)
            segment.size = self._kept
        segment._greatest = self._greatest
        segment._first_timestamp = None
        segment._bytes_since_index = self._kept - self._indexed
        segment.seal()
        return removed
