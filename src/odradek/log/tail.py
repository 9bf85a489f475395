"""What leaders appended last, still in the memory that it was received in.

A leader's followers, and consumers that read what is being produced, ask for the same bytes at
nearly the same time. While these are kept here, none of them is read back from the file, and all
readers share one buffer. One bound holds for the whole broker: the oldest batches go first,
whichever log they are of.

Rules
1. A tail never contradicts its file. The log clears it whenever bytes on disk change in another way
   than by an append: a truncation, a compaction, the end of the log.
2. A tail has batches of the active segment only. Kafka's follower appends what a fetch returns as
   one, and takes its partition out of replication if that is larger than a segment may be.
3. A kept buffer is never written to again, because readers may still be sending it.
4. What a batch keeps in memory is what it is charged for: one that is a small part of the request
   that it came in is copied out of it.
"""

from collections import deque

from odradek.wire.schema import Buffer, Records

__all__ = ["Tail", "Tails"]

TAIL_BYTES_MAX = 16 * 1024 * 1024
# What keeping a batch costs besides its bytes.
ENTRY_BYTES = 512
# Many batches below this are read from the file, with one system call, for less than it costs to
# walk over them here and to send each of them apart.
WALKED_BYTES_MIN = 4 * 1024
# A batch that is less than this part of its request is copied.
SHARE_OF_REQUEST = 4


class Tails:
    """The bound over all tails of a broker."""

    __slots__ = ("_bytes_max", "_oldest_first", "charged_bytes")

    def __init__(self, bytes_max: int = TAIL_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self.charged_bytes = 0
        self._oldest_first: deque[tuple[Tail, int, int]] = deque()

    def added(self, tail: "Tail", first_offset: int, byte_count: int) -> None:
        self._oldest_first.append((tail, first_offset, byte_count))
        self.charged_bytes += byte_count
        while self.charged_bytes > self._bytes_max:
            oldest, offset, freed = self._oldest_first.popleft()
            self.charged_bytes -= freed
            oldest.drop(offset)


class Tail:
    """The batches of one log that are in memory, by first offset."""

    __slots__ = ("_batches", "_tails")

    def __init__(self, tails: Tails) -> None:
        self._tails = tails
        # With the offset after the last of each.
        self._batches: dict[int, tuple[int, memoryview]] = {}

    def __len__(self) -> int:
        return len(self._batches)

    def put(self, first_offset: int, next_offset: int, batch: memoryview) -> None:
        """Keep a batch that was just appended. Its buffer belongs to the tail from now on."""
        request_bytes = memoryview(batch.obj).nbytes
        if batch.nbytes * SHARE_OF_REQUEST < request_bytes:
            batch = memoryview(bytes(batch))
            request_bytes = batch.nbytes
        self._batches[first_offset] = next_offset, batch
        self._tails.added(self, first_offset, request_bytes + ENTRY_BYTES)

    def drop(self, first_offset: int) -> None:
        self._batches.pop(first_offset, None)

    def clear(self) -> None:
        """Forget all. What is still charged for them goes with its turn."""
        self._batches.clear()

    def read(
        self, offset: int, end_offset: int, max_bytes: int, *, min_one_batch: bool
    ) -> Records | None:
        """What `Log.read` gives for a reader at the start of a batch that is here; None sends it to
        the file."""
        batches = self._batches
        found = batches.get(offset)
        if found is None or found[0] > end_offset:
            return None
        next_offset, batch = found
        left = max_bytes - batch.nbytes
        if left < 0:
            return batch if min_one_batch else None
        if next_offset >= end_offset:
            return batch
        if batch.nbytes < WALKED_BYTES_MIN:
            return None
        several: list[Buffer] = [batch]
        while left > 0 and (found := batches.get(next_offset)) and found[0] <= end_offset:
            next_offset, batch = found
            # As in Kafka the limit may end inside the last batch.
            several.append(batch if batch.nbytes <= left else batch[:left])
            left -= batch.nbytes
        return several if len(several) > 1 else batch
