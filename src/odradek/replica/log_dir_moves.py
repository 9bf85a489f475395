"""Moving a replica to another log directory of the same broker: AlterReplicaLogDirs (KIP-113).

A second log of the partition, the *future* log, is made in the target directory and filled from the
first, batch by batch, while that one serves as ever. When it has everything it takes the place of
the first in one step. What truncates the first truncates the future one. After a restart the move
begins again, with the partition's next state from the controller: the first log may have been
truncated, cleaned or recreated while the directory of the future one was not there.
"""

import asyncio
import logging
import posixpath
from collections.abc import Callable, Mapping

from odradek.log.directories import NAME_BYTES_MAX, DirectoryKind, name_for
from odradek.log.log import Log
from odradek.log.manager import LogManager
from odradek.replica.checkpoints import HighWatermarkCheckpoints
from odradek.replica.follower.append import append_copied
from odradek.replica.hosted_partitions import HostedPartitions
from odradek.replica.partition import Partition
from odradek.replica.throttle import ReplicationQuota
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

__all__ = ["LogDirMoves"]

logger = logging.getLogger(__name__)

CHUNK_BYTES = 1024 * 1024
IDLE_S = 0.1


class LogDirMoves:
    """The moves under way in one broker."""

    def __init__(
        self,
        logs: LogManager,
        partitions: HostedPartitions,
        checkpoints: HighWatermarkCheckpoints,
        now: Callable[[], float],
    ) -> None:
        self._logs = logs
        self._partitions = partitions
        self._checkpoints = checkpoints
        self._tasks: dict[TopicPartition, asyncio.Task[None]] = {}
        self.quota = ReplicationQuota(now)
        self._moved = 0

    def alter(self, targets: Mapping[TopicPartition, str]) -> dict[TopicPartition, ErrorCode]:
        """Move each replica to its target, or note where it is to be made if there is none yet.
        Returns once the moves have begun."""
        errors = {}
        for tp, path in targets.items():
            try:
                self._alter(tp, path)
                errors[tp] = ErrorCode.NONE
            except KafkaError as error:
                code = error.error
                if code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    code = ErrorCode.REPLICA_NOT_AVAILABLE
                errors[tp] = code
        return errors

    def _alter(self, tp: TopicPartition, path: str) -> None:
        # No file system takes such a name, and the refusal would look like a disk's failure.
        if len(name_for(tp, DirectoryKind.FUTURE, 0)) > NAME_BYTES_MAX:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
        logs = self._logs
        if tp in self._partitions.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp} is on a failed directory")
        logs.prefer_directory(tp, path)
        partition = self._partitions[tp]
        target = posixpath.normpath(path)
        future = logs.get(tp, future=True) if tp in self._tasks else None
        if future is None or posixpath.dirname(future.directory) != target:
            # An offline directory may hold a copy of an earlier move: not even Kafka could start
            # with both.
            self._begin(partition, target, is_new=False)

    def resume(self, partition: Partition) -> None:
        """Begin the move of this partition again, if one was begun before this broker's start."""
        tp = partition.tp
        future = self._logs.get(tp, future=True)
        if future is None or partition.log is None or tp in self._tasks:
            return
        try:
            self._begin(partition, posixpath.dirname(future.directory), is_new=True)
        except KafkaError as error:
            # The target's disk: the replica is on another.
            logger.error("%s: move to another log directory failed: %s", tp, error.message)

    def _begin(self, partition: Partition, target: str, *, is_new: bool) -> None:
        """With an empty copy: an earlier one is deleted. No copy if the log is in the target. Not
        `is_new`: KAFKA_STORAGE_ERROR while any log directory is offline, as in Kafka."""
        tp, log, logs = partition.tp, partition.local_log, self._logs
        self.cancel(tp)
        logs.prefer_directory(tp, target)
        if posixpath.dirname(log.directory) == target:
            return
        future = logs.get_or_create(tp, log.config, is_new=is_new, future=True)
        logs.flusher.assign_topic_id(future, log.metadata.topic_id)
        partition.replica.future_log = future
        task = asyncio.ensure_future(self._move(partition, future))
        self._tasks[tp] = task
        task.add_done_callback(lambda done: self._ended(tp, done))

    def stop(self, tp: TopicPartition) -> None:
        """Copy no further."""
        task = self._tasks.pop(tp, None)
        if task is not None:
            task.cancel()
        partition = self._partitions.get(tp)
        if partition is not None:
            partition.replica.future_log = None

    def cancel(self, tp: TopicPartition) -> None:
        """Stop the move and delete what was copied."""
        self.stop(tp)
        self._logs.async_delete(tp, future=True)

    def _ended(self, tp: TopicPartition, task: asyncio.Task[None]) -> None:
        if self._tasks.get(tp) is task:
            del self._tasks[tp]
        if not task.cancelled() and task.exception() is not None:
            logger.error("%s: move to another log directory failed: %s", tp, task.exception())

    async def _move(self, partition: Partition, future: Log) -> None:
        """Copy until both logs end at the same offset; the swap follows without a pause."""
        tp = partition.tp
        while partition.replica.future_log is future:
            current = partition.local_log
            if future.end_offset < current.end_offset:
                if self.quota.is_exceeded:
                    await asyncio.sleep(IDLE_S)
                    continue
                self.quota.record(_copy_some(current, future))
            if future.end_offset >= current.end_offset:
                moved = self._logs.replace_current_with_future(tp)
                partition.replica.log = moved
                partition.replica.future_log = None
                self._moved += 1
                logger.info("%s: moved to log directory %s", tp, moved.directory)
                # Now, or after a crash the copy starts with an old high watermark.
                self._checkpoints.write()
                return
            await asyncio.sleep(0)

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def statistics(self) -> dict[str, int]:
        return {"moving": len(self._tasks), "moved": self._moved}


def _copy_some(current: Log, future: Log) -> int:
    """The next batches; from the start of the current log if the future one ends before it."""
    if future.end_offset < current.start_offset:
        future.truncate_fully_and_start_at(current.start_offset)
    records = current.read(future.end_offset, CHUNK_BYTES).records
    info = append_copied(future, records)
    future.set_high_watermark(current.high_watermark)
    if current.start_offset > future.start_offset:
        future.advance_start_offset(min(current.start_offset, future.high_watermark))
    return info.size_bytes
