"""Opening, deleting and setting aside the logs of replicas, with their high watermarks."""

import logging
from collections.abc import Mapping
from uuid import UUID

from odradek.log.config import LogConfig
from odradek.log.log import Log
from odradek.log.manager import LogManager
from odradek.replica.checkpoints import HighWatermarkCheckpoints
from odradek.replica.log_dir_moves import LogDirMoves
from odradek.replica.partition import Partition
from odradek.wire.topic_ids import NO_TOPIC_ID
from odradek.wire.topics import TopicPartition

__all__ = ["ReplicaLogs"]

logger = logging.getLogger(__name__)


class ReplicaLogs:
    """The logs of one broker's replicas. Each call raises KafkaError if the disk fails."""

    def __init__(
        self, logs: LogManager, checkpoints: HighWatermarkCheckpoints, moves: LogDirMoves
    ) -> None:
        self._logs = logs
        self.checkpoints = checkpoints
        self._moves = moves
        # Partitions of which this broker is the last in-sync replica, and found no log at start.
        self.lost: set[TopicPartition] = set()

    def get(self, tp: TopicPartition) -> Log | None:
        """The log on this broker's disks, of a hosted partition or not."""
        return self._logs.get(tp)

    def open(
        self,
        partition: Partition,
        configs: Mapping[str, LogConfig],
        *,
        is_new: bool,
        topic_id: UUID = NO_TOPIC_ID,
    ) -> None:
        """Give the partition its log, made if need be, with its last known high watermark, and the
        log the id of its topic."""
        if partition.replica.log is None:
            self._open(partition, configs, is_new=is_new)
        self.assign_topic_id(partition.local_log, topic_id)

    def _open(
        self, partition: Partition, configs: Mapping[str, LogConfig], *, is_new: bool
    ) -> None:
        replica, tp = partition.replica, partition.tp
        mark = self.checkpoints.at_load(tp) if self._logs.get(tp) is not None else 0
        if tp in self.lost and not is_new:
            mark = 1  # at least; what matters is that it is more than nothing
        log = self._logs.get_or_create(tp, configs.get(tp.topic), is_new=is_new)
        damage = self._logs.damaged.found.pop(tp, None)
        known = mark if damage is None or is_new else max(mark, damage.reached)
        replica.high_watermark_before_loss = known if known > log.end_offset else None
        log.set_high_watermark(mark)
        # Kept also by a replica that then refuses to lead: an empty log looks like any other.
        replica.log = log
        self.lost.discard(tp)

    def assign_topic_id(self, log: Log, topic_id: UUID) -> None:
        """Nothing if the id is zero, or known."""
        self._logs.flusher.assign_topic_id(log, topic_id)

    def delete(self, tp: TopicPartition) -> None:
        self.checkpoints.forget(tp)
        self._moves.cancel(tp)
        self._logs.async_delete(tp)

    def set_aside(self, tp: TopicPartition) -> None:
        """Take the log out of use and leave it on disk: it may be of an earlier topic."""
        self.checkpoints.forget(tp)
        self._moves.cancel(tp)
        log = self._logs.async_delete(tp, stray=True)
        assert log is not None
        logger.warning(
            "%s: stale log of a deleted topic set aside in %s; the replica starts empty. Delete"
            " the directory once nothing in it is needed",
            tp,
            log.directory,
        )
