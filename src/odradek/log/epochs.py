"""Leader epochs of one partition: at which offset each leader's epoch began.

A follower that comes back asks its leader "where did epoch e end?" and truncates its own log there,
so two replicas can never keep different records at one offset. The rules are those of
docs/spec/controller-and-replication.md section 5.2 (KIP-101, KIP-279); the file is
`leader-epoch-checkpoint`.

Entries rise in epoch and in start offset. What is removed or replaced is gone from the disk before
the call returns: a stale entry that came back after a crash could claim offsets that another leader
has written since. An epoch that begins waits for `flush`, which the log calls before its recovery
point passes the epoch's first record: records beyond that are scanned after a crash and say the
same. So a broker that takes over thousands of partitions, or is written to for the first time in as
many, waits for no disk.
"""

import os
from bisect import bisect_left, bisect_right
from operator import itemgetter

from odradek.log.checkpoints import decode_checkpoint, encode_checkpoint, parse_integer
from odradek.log.disk import Disk, RealDisk

EPOCHS_FILE = "leader-epoch-checkpoint"

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1

_epoch = itemgetter(0)
_start = itemgetter(1)


def _parse_entry(line: str) -> tuple[int, int]:
    fields = line.rstrip().split()
    if len(fields) != 2 or line[:1].isspace():
        raise ValueError(repr(line))
    epoch, start = parse_integer(fields[0]), parse_integer(fields[1])
    if epoch < 0 or start < 0:
        raise ValueError(repr(line))
    return epoch, start


class LeaderEpochs:
    """The epochs of one log, kept in `path`, or in memory alone where there is none."""

    __slots__ = ("_disk", "_entries", "_is_unwritten", "_written", "path")

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, disk: Disk | None = None
    ) -> None:
        self.path = path = None if path is None else os.fspath(path)
        self._disk: Disk = RealDisk() if disk is None else disk
        self._entries: list[tuple[int, int]] = []
        self._is_unwritten = False
        if path is not None and self._disk.exists(path):
            for epoch, start in decode_checkpoint(self._disk.read_bytes(path), path, _parse_entry):
                self._add(epoch, start)
        # How many of the entries, from the first on, are on disk.
        self._written = len(self._entries)

    @property
    def entries(self) -> list[tuple[int, int]]:
        return list(self._entries)

    @property
    def latest_epoch(self) -> int | None:
        return self._entries[-1][0] if self._entries else None

    def begin(self, epoch: int, offset: int) -> None:
        """Epoch `epoch` begins at `offset`, the log's end, or has a record there. On disk after the
        next `flush`. A no-op on all but the first record of an epoch."""
        _check(epoch, offset)
        if self._add(epoch, offset):
            self._is_unwritten = True
            if len(self._entries) <= self._written:
                self._write()

    def assign(self, epoch: int, offset: int) -> None:
        """As `begin`, and on disk when this returns."""
        self.begin(epoch, offset)
        self.flush()

    def flush(self) -> None:
        """Everything is on disk when this returns."""
        if self._is_unwritten:
            self._write()

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The largest epoch up to `epoch` and the offset where it ended, or (-1, -1)."""
        entries = self._entries
        if epoch == UNDEFINED_EPOCH or not entries or epoch > entries[-1][0]:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == entries[-1][0]:
            return epoch, log_end
        next_higher = bisect_right(entries, epoch, key=_epoch)
        label = entries[next_higher - 1][0] if next_higher else epoch
        return label, entries[next_higher][1]

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch under which the record at `offset` was written."""
        after = bisect_right(self._entries, offset, key=_start)
        return self._entries[after - 1][0] if after else None

    def truncate_from_end(self, offset: int) -> None:
        """Forget the epochs that began at `offset` or later: the log now ends there."""
        if offset >= 0 and self._entries and self._entries[-1][1] >= offset:
            del self._entries[bisect_left(self._entries, offset, key=_start) :]
            if len(self._entries) < self._written:
                self._write()

    def truncate_from_start(self, offset: int) -> None:
        """Forget the epochs that ended before `offset`: the log now starts there."""
        after = bisect_right(self._entries, offset, key=_start)
        rebased = [(self._entries[after - 1][0], offset)] if after else []
        if self._entries[:after] != rebased:
            self._entries[:after] = rebased
            self._write()

    def clear(self) -> None:
        self.replace([])

    def replace(self, entries: list[tuple[int, int]]) -> None:
        """Have these instead, those of another log with the same records."""
        if self._entries != entries:
            self._entries[:] = entries
            self._write()

    def statistics(self) -> dict[str, int]:
        latest = self.latest_epoch
        return {
            "entries": len(self._entries),
            "latest_epoch": UNDEFINED_EPOCH if latest is None else latest,
        }

    def _add(self, epoch: int, offset: int) -> bool:
        entries = self._entries
        if entries and entries[-1][0] == epoch and offset >= entries[-1][1]:
            return False
        while entries and (entries[-1][0] >= epoch or entries[-1][1] >= offset):
            entries.pop()
        entries.append((epoch, offset))
        return True

    def _write(self) -> None:
        if self.path is not None:
            lines = (f"{epoch} {start}" for epoch, start in self._entries)
            self._disk.write_atomically(self.path, encode_checkpoint(lines))
        self._is_unwritten = False
        self._written = len(self._entries)


def _check(epoch: int, offset: int) -> None:
    if epoch < 0 or offset < 0:
        raise ValueError(f"leader epoch {epoch} cannot start at offset {offset}")
