"""The segments of one log in order, and where in them an offset is.

Reading costs the same however long the log is: a bisection over the segments, one in the segment's
index, and a few headers. At the end of the log not even that, because the positions of the latest
append boundaries are remembered, which is where followers, waiting consumers and the high watermark
are.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from odradek.log.indexes import AbortedTransaction
from odradek.log.segment import Segment

BOUNDARIES_MAX = 64


class LogRead(NamedTuple):
    """Batches as they are on disk, and where they were found."""

    records: bytes
    segment_base: int
    position: int


class Segments:
    """Never empty. Only the last one, the active segment, is appended to."""

    __slots__ = ("_bases", "_boundaries", "_items")

    def __init__(self, items: Iterable[Segment]) -> None:
        self._items = sorted(items, key=lambda segment: segment.base_offset)
        self._bases = [segment.base_offset for segment in self._items]
        # Offset to position in the active segment, oldest first.
        self._boundaries: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._items)

    def __getitem__(self, index: int) -> Segment:
        return self._items[index]

    @property
    def active(self) -> Segment:
        return self._items[-1]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._items)

    def from_offset(self, offset: int) -> list[Segment]:
        """The segment that `offset` falls into, and all after it."""
        return self._items[max(0, bisect_right(self._bases, offset) - 1) :]

    # Changing

    def add(self, segment: Segment) -> None:
        """A new active segment."""
        assert not self._bases or segment.base_offset > self._bases[-1]
        self._items.append(segment)
        self._bases.append(segment.base_offset)
        self.forget_boundaries(segment.base_offset)

    def remove_first(self, count: int) -> list[Segment]:
        removed = self._items[:count]
        del self._items[:count], self._bases[:count]
        return removed

    def remove_above(self, offset: int) -> list[Segment]:
        """Take out the segments that begin after `offset`."""
        keep = bisect_right(self._bases, offset)
        removed = self._items[keep:]
        del self._items[keep:], self._bases[keep:]
        return removed

    def replace(self, old: Iterable[Segment], new: Iterable[Segment]) -> None:
        gone = {id(segment) for segment in old}
        assert id(self.active) not in gone, "the active segment is never replaced"
        kept = [segment for segment in self._items if id(segment) not in gone]
        self._items = sorted([*kept, *new], key=lambda segment: segment.base_offset)
        self._bases = [segment.base_offset for segment in self._items]

    # Finding

    def remember_boundary(self, offset: int) -> None:
        """The active segment now ends right before `offset`."""
        boundaries = self._boundaries
        boundaries[offset] = self._items[-1].size
        if len(boundaries) > BOUNDARIES_MAX:
            del boundaries[next(iter(boundaries))]

    def forget_boundaries(self, end_offset: int) -> None:
        """The active segment is another, or was truncated; its end is at `end_offset`."""
        self._boundaries = {end_offset: self._items[-1].size}

    def locate(self, offset: int) -> tuple[Segment, int, int]:
        """The segment, position and size of the first batch that reaches `offset`.

        A size of -1 is not known. If there is no such batch the position is the end."""
        index = max(0, bisect_right(self._bases, offset) - 1)
        if index == len(self._items) - 1:
            position = self._boundaries.get(offset)
            if position is not None:
                return self._items[index], position, -1
        for segment in self._items[index:]:
            found = segment.find(offset)
            if found is not None:
                return segment, found.position, found.size_bytes
            # What compaction left of this segment ends before `offset`: the next one has it.
        return segment, segment.size, -1

    def end_position(self, segment: Segment, end_offset: int, log_end: int) -> int:
        """Where in a segment the batches begin that reach `end_offset`."""
        if end_offset >= log_end:
            return segment.size
        if segment is self._items[-1]:
            position = self._boundaries.get(end_offset)
            if position is not None:
                return position
        elif end_offset >= self._bases[bisect_right(self._bases, segment.base_offset)]:
            return segment.size
        found = segment.find(end_offset)
        return segment.size if found is None else found.position

    def read(
        self, offset: int, end_offset: int, log_end: int, max_bytes: int, min_one_batch: bool
    ) -> LogRead:
        """What `Log.read` promises, for offsets that are within the log."""
        segment, position, first_bytes = self.locate(offset)
        length = self.end_position(segment, end_offset, log_end) - position
        if length > max_bytes:
            if first_bytes < 0:
                first = segment.find_at(position)
                assert first is not None
                first_bytes = first.size_bytes
            whole_first = first_bytes if min_one_batch else 0
            length = max_bytes if first_bytes <= max_bytes else whole_first
        records = segment.files.log.read(position, length) if length > 0 else b""
        return LogRead(records, segment.base_offset, position)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        aborted: list[AbortedTransaction] = []
        for segment in self.from_offset(start):
            found, complete = segment.transaction_index.collect(start, end)
            aborted += found
            if complete:
                break
        return aborted
