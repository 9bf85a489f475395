"""The high watermarks on disk: `replication-offset-checkpoint`.

docs/spec/controller-and-replication.md section 5.6.

Written every few seconds from what the partitions have now, if anything has moved; read once, for
the partitions that were loaded from disk.
"""

import asyncio

from odradek.log.directory_checkpoints import DirectoryCheckpoints
from odradek.replica.hosted_partitions import HostedPartitions
from odradek.wire.topics import TopicPartition

__all__ = ["HighWatermarkCheckpoints"]


class HighWatermarkCheckpoints:
    """What was on disk when the logs were loaded, and what is written since."""

    def __init__(
        self, on_disk: DirectoryCheckpoints, partitions: HostedPartitions, interval_s: float
    ) -> None:
        self._on_disk = on_disk
        self._partitions = partitions
        self._interval_s = interval_s
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._at_load: dict[TopicPartition, int] | None = None
        # With the directory of each log: a move to another makes its high watermark new there.
        self._written: dict[TopicPartition, tuple[str, int]] = {}

    def start(self) -> None:
        """From the first LeaderAndIsr on, so that no partition is missing from the file."""
        if self._timer is None:
            self._timer = self._loop.call_later(self._interval_s, self._write_again)

    def _write_again(self) -> None:
        self._timer = None
        self.write()
        self.start()

    def close(self) -> None:
        """Stop writing every few seconds."""
        if self._timer is not None:
            self._timer.cancel()

    def at_load(self, tp: TopicPartition) -> int:
        """The high watermark a loaded log starts with; 0 for one that was deleted since."""
        if self._at_load is None:
            self._at_load = self._on_disk.read_high_watermarks()
        return self._at_load.get(tp, 0)

    def forget(self, tp: TopicPartition) -> None:
        """The partition is deleted: one of the same name starts from nothing."""
        self.at_load(tp)
        assert self._at_load is not None
        self._at_load.pop(tp, None)
        self._written.pop(tp, None)

    def write(self) -> None:
        marks = {}
        for tp, partition in self._partitions.items():
            replica = partition.replica
            if replica.log is not None:
                mark = replica.high_watermark_before_loss
                if mark is None:
                    mark = replica.log.high_watermark
                marks[tp] = replica.log.directory, mark
        if marks != self._written:
            self._on_disk.write_high_watermarks({tp: mark for tp, (_, mark) in marks.items()})
            self._written = marks
