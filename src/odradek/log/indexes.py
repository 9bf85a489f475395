"""The three indexes of a segment, as Kafka lays them out
(docs/spec/interchange-with-apache-kafka.md section D.2).

`.index` finds the file position of an offset, `.timeindex` the offset of a timestamp; both are
sorted entries of a fixed size, sparse (one per `index.interval.bytes`). `.txnindex` lists the
aborted transactions that ended in the segment.

An index holds no open file and little memory, so thousands of idle partitions cost nothing: new
entries gather in a tail that is written when it is a block long or on a flush, and a
look-up keeps the one block it read last. Losing the tail in a crash is harmless: entries above the
recovery point are rebuilt from the log, and the recovery point never passes an unflushed index.

Kafka preallocates these files with zeros and trims them when it closes them. Ours are never padded;
the zeros that a crashed Kafka left are recognised and not counted.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from odradek.log.disk import Disk, File

BLOCK_ENTRIES = 512
NO_TIMESTAMP = -1


class CorruptIndex(Exception):
    """An index that contradicts itself or its segment. The segment must be scanned again."""


class SortedEntries:
    """Fixed-size entries in a file, sorted by a first field that rises."""

    _entry: Struct

    __slots__ = ("_block", "_block_start", "_disk", "_stored", "_tail", "_trimmed", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self._tail = bytearray()
        self._block = b""
        self._block_start = 0
        # Entries in the file, -1 until first asked for; and whether the file ends right after them.
        self._stored = -1
        self._trimmed = True

    @property
    def entry_count(self) -> int:
        if self._stored < 0:
            self._load()
        return self._stored + len(self._tail) // self._entry.size

    @property
    def is_padded(self) -> bool:
        """Whether zeros follow the entries: a Kafka that crashed left them, or damage."""
        return self.entry_count >= 0 and not self._trimmed

    def entry(self, slot: int) -> tuple[int, int]:
        """The two raw fields of one entry."""
        size = self._entry.size
        count = self.entry_count
        assert 0 <= slot < count, f"entry {slot} of {count} in {self.path}"
        if slot >= self._stored:
            first, second = self._entry.unpack_from(self._tail, (slot - self._stored) * size)
            return first, second
        if not 0 <= slot - self._block_start < len(self._block) // size:
            self._read_block(slot // BLOCK_ENTRIES)
        first, second = self._entry.unpack_from(self._block, (slot - self._block_start) * size)
        return first, second

    def entries(self) -> Iterator[tuple[int, int]]:
        return map(self.entry, range(self.entry_count))

    def flush(self, sync: bool = False, *, create: bool = True) -> None:
        """Bring the file up to date; create it where there is none, for Kafka rebuilds without,
        unless there is nothing to index."""
        count = self.entry_count
        is_current = self._trimmed and not self._tail
        if is_current and (not create or (not sync and self._disk.exists(self.path))):
            return
        file = self._disk.open(self.path, create=True)
        try:
            if not self._trimmed:
                file.truncate(self._stored * self._entry.size)
                self._trimmed = True
            if self._tail:
                file.write_at(self._stored * self._entry.size, self._tail)
                self._stored = count
                self._tail.clear()
            if sync:
                file.sync()
        finally:
            file.close()

    def reset(self) -> None:
        """Drop all entries, to be rebuilt from the segment."""
        self._truncate(0)

    def rename(self, path: str) -> None:
        """Follow a file that is moved. One that was never written appears under its new name."""
        if self._disk.exists(self.path):
            self._disk.rename(self.path, path)
        elif self._stored > 0:
            raise FileNotFoundError(self.path)
        self.path = path

    def delete(self) -> None:
        if self._disk.exists(self.path):
            self._disk.remove(self.path)

    def _append(self, first: int, second: int) -> None:
        self._tail += self._entry.pack(first, second)
        if len(self._tail) >= BLOCK_ENTRIES * self._entry.size:
            self.flush()

    def _truncate(self, count: int) -> None:
        """Keep the first `count` entries. The file itself follows at the next flush."""
        kept = count - self.entry_count + len(self._tail) // self._entry.size
        if kept >= 0:
            del self._tail[kept * self._entry.size :]
        else:
            self._tail.clear()
            self._stored = count
            self._trimmed = False
            if self._block_start + len(self._block) // self._entry.size > count:
                self._block = b""
            # On disk now: a crash must not bring entries back that point beyond the log's end.
            self.flush()

    def _last_at_or_below(self, target: int) -> int:
        """The slot of the largest first field that is ≤ target, or -1."""
        if self._stored < 0:
            self._load()
        if self._tail and self._first_of(self._tail, 0) <= target:
            return self._stored + self._search(self._tail, target)
        if not self._block_has(target) and (not self._stored or not self._find_block(target)):
            return -1
        return self._block_start + self._search(self._block, target)

    def _first_of(self, data: bytes | bytearray, slot: int) -> int:
        value: int = self._entry.unpack_from(data, slot * self._entry.size)[0]
        return value

    def _search(self, data: bytes | bytearray, target: int) -> int:
        """The last entry of `data` whose first field is ≤ target, which its first entry's is."""
        unpack, size = self._entry.unpack_from, self._entry.size
        slots = range(len(data) // size)
        return bisect_right(slots, target, key=lambda slot: unpack(data, slot * size)[0]) - 1

    def _block_has(self, target: int) -> bool:
        """Whether the answer is in the block that was read last."""
        count = len(self._block) // self._entry.size
        if not count or self._first_of(self._block, 0) > target:
            return False
        # Nothing between the last stored entry and the tail, or the end, is nearer to the target.
        is_last = self._block_start + count == self._stored
        return is_last or target < self._first_of(self._block, count - 1)

    def _find_block(self, target: int) -> bool:
        """Read the block that has the answer; False if every entry is above the target."""
        size = self._entry.size * BLOCK_ENTRIES
        file = self._disk.open(self.path)
        try:
            blocks = range((self._stored + BLOCK_ENTRIES - 1) // BLOCK_ENTRIES)

            def first(block: int) -> int:
                return self._first_of(file.read(block * size, self._entry.size), 0)

            block = bisect_right(blocks, target, key=first) - 1
            if block >= 0:
                self._read_block(block, file)
            return block >= 0
        finally:
            file.close()

    def _read_block(self, block: int, file: File | None = None) -> None:
        size = self._entry.size
        start = block * BLOCK_ENTRIES
        length = min(BLOCK_ENTRIES, self._stored - start) * size
        opened = self._disk.open(self.path) if file is None else file
        try:
            data = opened.read(start * size, length)
        finally:
            if file is None:
                opened.close()
        if len(data) != length:
            raise CorruptIndex(f"{self.path} lost entries: {len(data)} bytes of {length}")
        self._block, self._block_start = data, start

    def _load(self) -> None:
        """Count the entries: the file's length says, less the zeros of a Kafka that crashed."""
        if not self._disk.exists(self.path):
            self._stored = 0
            return
        size = self._entry.size
        file = self._disk.open(self.path)
        try:
            slots = file.size // size

            def is_padding(slot: int) -> bool:
                return not any(file.read(slot * size, size))

            if slots and is_padding(slots - 1):
                slots = bisect_left(range(slots), True, key=is_padding)
            self._stored = slots
            self._trimmed = file.size == slots * size
        finally:
            file.close()


class OffsetIndex(SortedEntries):
    """Offsets to file positions: 8-byte entries (i32 offset less the base, i32 position)."""

    _entry = Struct(">ii")

    __slots__ = ("base_offset", "max_entries")

    def __init__(self, disk: Disk, path: str, base_offset: int, max_bytes: int) -> None:
        super().__init__(disk, path)
        self.base_offset = base_offset
        self.max_entries = max_bytes // self._entry.size

    @property
    def is_full(self) -> bool:
        return self.entry_count >= self.max_entries

    @property
    def last_offset(self) -> int:
        """The largest offset indexed, or the base offset where there is none."""
        count = self.entry_count
        return self.base_offset + (self.entry(count - 1)[0] if count else 0)

    def append(self, offset: int, position: int) -> None:
        assert not self.is_full, f"{self.path} is full"
        assert not self.entry_count or offset > self.last_offset, (offset, self.path)
        self._append(offset - self.base_offset, position)

    def lookup(self, offset: int) -> tuple[int, int]:
        """The last entry at or below `offset`; the segment's start where there is none."""
        slot = self._last_at_or_below(offset - self.base_offset)
        if slot < 0:
            return self.base_offset, 0
        relative, position = self.entry(slot)
        return self.base_offset + relative, position

    def truncate_to(self, offset: int) -> None:
        """Forget the entries at or above `offset`."""
        self._truncate(self._last_at_or_below(offset - self.base_offset - 1) + 1)


class TimeIndex(SortedEntries):
    """Timestamps to offsets: 12-byte entries (i64 largest timestamp so far, i32 offset less base).

    An entry (t, o) says: every record after offset o has a timestamp above t, or none is later.
    """

    _entry = Struct(">qi")

    __slots__ = ("base_offset", "max_entries")

    def __init__(self, disk: Disk, path: str, base_offset: int, max_bytes: int) -> None:
        super().__init__(disk, path)
        self.base_offset = base_offset
        self.max_entries = max_bytes // self._entry.size

    @property
    def is_full(self) -> bool:
        """One slot stays free for the entry that is written when the segment is rolled."""
        return self.entry_count >= self.max_entries - 1

    @property
    def last_entry(self) -> tuple[int, int]:
        """The largest (timestamp, offset), or (-1, base offset) where there is none."""
        count = self.entry_count
        if not count:
            return NO_TIMESTAMP, self.base_offset
        timestamp, relative = self.entry(count - 1)
        return timestamp, self.base_offset + relative

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry if it is later than the last one; equal times add nothing."""
        last_timestamp, last_offset = self.last_entry
        if timestamp <= last_timestamp:
            return
        assert self.entry_count < self.max_entries, f"{self.path} is full"
        assert offset >= last_offset, (offset, last_offset, self.path)
        self._append(timestamp, offset - self.base_offset)

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """The last entry at or below `timestamp`; (-1, base offset) where there is none."""
        slot = self._last_at_or_below(timestamp)
        if slot < 0:
            return NO_TIMESTAMP, self.base_offset
        found, relative = self.entry(slot)
        return found, self.base_offset + relative

    def truncate_to(self, offset: int) -> None:
        """Forget the entries whose offset is at or above `offset`."""
        relative = offset - self.base_offset
        slots = range(self.entry_count)
        self._truncate(bisect_left(slots, relative, key=lambda slot: self.entry(slot)[1]))


class AbortedTransaction(NamedTuple):
    """One line of the transaction index. `last_offset` is that of the abort marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """Aborted transactions by the offset of their marker: 34-byte entries, no file until one is."""

    VERSION = 0
    _entry = Struct(">hqqqq")

    __slots__ = ("_data", "_disk", "base_offset", "path")

    def __init__(self, disk: Disk, path: str, base_offset: int) -> None:
        self._disk = disk
        self.path = path
        self.base_offset = base_offset
        self._data: bytearray | None = None

    def append(self, aborted: AbortedTransaction) -> None:
        data = self._load()
        assert aborted.last_offset > self.last_offset, (aborted, self.last_offset, self.path)
        entry = self._entry.pack(self.VERSION, *aborted)
        file = self._disk.open(self.path, create=True)
        try:
            if file.size > len(data):
                file.truncate(len(data))
            file.append(entry)
        finally:
            file.close()
        data += entry

    @property
    def last_offset(self) -> int:
        """Where the last transaction ended; -1 if none did."""
        count = len(self)
        return self._last_offset_of(count - 1) if count else -1

    def __len__(self) -> int:
        return len(self._load()) // self._entry.size

    def _last_offset_of(self, number: int) -> int:
        last_offset: int = self._entry.unpack_from(self._load(), number * self._entry.size)[3]
        return last_offset

    def entries(self, first: int = 0) -> Iterator[AbortedTransaction]:
        data = self._load()
        for number in range(first, len(self)):
            version, *fields = self._entry.unpack_from(data, number * self._entry.size)
            if version > self.VERSION:
                raise CorruptIndex(f"{self.path} has an entry of version {version}")
            yield AbortedTransaction(*fields)

    def collect(self, start: int, end: int) -> tuple[list[AbortedTransaction], bool]:
        """The aborted transactions that touch [start, end), and whether no later one can."""
        found = []
        # They rise by their last offset, and each reader of the segment's end comes through here.
        first = bisect_left(range(len(self)), start, key=self._last_offset_of)
        for aborted in self.entries(first):
            if aborted.first_offset < end:
                found.append(aborted)
            # A follower of Kafka's can record a stable offset that lies after the marker.
            if min(aborted.last_stable_offset, aborted.last_offset + 1) >= end:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Forget the transactions whose marker is at or above `offset`."""
        kept = 0
        for aborted in self.entries():
            if aborted.last_offset >= offset:
                break
            kept += self._entry.size
        data = self._load()
        if kept < len(data):
            file = self._disk.open(self.path)
            try:
                file.truncate(kept)
            finally:
                file.close()
            del data[kept:]

    def reset(self) -> None:
        if self._disk.exists(self.path):
            self._disk.remove(self.path)
        self._data = bytearray()

    def check(self) -> None:
        """Raise CorruptIndex if a transaction ended before the segment, or the one before it."""
        least = self.base_offset
        for aborted in self.entries():
            if aborted.last_offset < least:
                raise CorruptIndex(f"{self.path}: {aborted} ended before {least}")
            least = aborted.last_offset + 1

    def flush(self, sync: bool = False) -> None:
        """Entries are in the file already; `sync` makes them survive a crash."""
        if sync and self._load():
            file = self._disk.open(self.path)
            try:
                file.sync()
            finally:
                file.close()

    def rename(self, path: str) -> None:
        if self._disk.exists(self.path):
            self._disk.rename(self.path, path)
        self.path = path

    def delete(self) -> None:
        if self._disk.exists(self.path):
            self._disk.remove(self.path)

    def _load(self) -> bytearray:
        """Whole entries only: a torn last one was never acknowledged."""
        if self._data is None:
            data = self._disk.read_bytes(self.path) if self._disk.exists(self.path) else b""
            self._data = bytearray(data[: len(data) - len(data) % self._entry.size])
        return self._data
