"""The high watermarks on disk: `replication-offset-checkpoint`.

docs/spec/controller-and-replication.md section 5.6.

Written every few seconds from what the partitions have now, if anything has moved; read once, for
the partitions that were loaded from disk.
"""

from collections.abc import Mapping

from odradek.log.manager import LogManager
from odradek.replica.partition import Partition
from odradek.wire.topics import TopicPartition

__all__ = ["HighWatermarkCheckpoints"]


class HighWatermarkCheckpoints:
    """What was on disk when the logs were loaded, and what is written since."""

    def __init__(self, logs: LogManager, partitions: Mapping[TopicPartition, Partition]) -> None:
        self._logs = logs
        self._partitions = partitions
        self._at_load: dict[TopicPartition, int] | None = None
        # With where each log stands: a move to another directory is news for the one it came to.
        self._written: dict[TopicPartition, tuple[str, int]] = {}

    def at_load(self, of: TopicPartition) -> int:
        """The mark a loaded log starts with; 0 for one that was deleted since."""
        if self._at_load is None:
            self._at_load = self._logs.read_high_watermarks()
        return self._at_load.get(of, 0)

    def forget(self, of: TopicPartition) -> None:
        """The partition is deleted: one of the same name starts from nothing."""
        self.at_load(of)
        assert self._at_load is not None
        self._at_load.pop(of, None)
        self._written.pop(of, None)

    def write(self) -> None:
        marks = {
            of: (
                log.directory,
                log.high_watermark if partition.lost_mark is None else partition.lost_mark,
            )
            for of, partition in self._partitions.items()
            if (log := partition.log) is not None
        }
        if marks != self._written:
            self._logs.write_high_watermarks({of: mark for of, (_, mark) in marks.items()})
            self._written = marks
