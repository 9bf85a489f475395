"""Moving a replica to another log directory of the same broker: AlterReplicaLogDirs (KIP-113).

A second log of the partition, the *future* log, is made in the target directory and filled from the
first, batch by batch, while that one serves as ever. When it has everything it takes the place of
the first in one step. Whatever cuts the first cuts the future one. After a restart the move begins
again, with the partition's next state from the controller: nobody knows whether the first was cut,
cleaned or made anew while the directory of the future one was not there.
"""

import asyncio
import logging
import posixpath
from collections.abc import Mapping
from typing import TYPE_CHECKING

from odradek.log.directories import NAME_BYTES_MAX, DirectoryKind, name_for
from odradek.log.log import Log
from odradek.replica.copying import append_copied
from odradek.replica.partition import Partition
from odradek.replica.throttle import ReplicationQuota
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    from odradek.replica.manager import ReplicaManager

__all__ = ["Mover"]

logger = logging.getLogger(__name__)

CHUNK_BYTES = 1024 * 1024
IDLE_S = 0.1


class Mover:
    """The moves under way in one broker."""

    def __init__(self, manager: "ReplicaManager") -> None:
        self._manager = manager
        self._tasks: dict[TopicPartition, asyncio.Task[None]] = {}
        self.quota = ReplicationQuota(manager.now)
        self._moved = 0

    def alter(self, targets: Mapping[TopicPartition, str]) -> dict[TopicPartition, ErrorCode]:
        """Move each replica to its target, or say where it is to be made if there is none yet."""
        errors = {}
        for of, path in targets.items():
            try:
                self._alter(of, path)
                errors[of] = ErrorCode.NONE
            except KafkaError as error:
                code = error.error
                if code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    code = ErrorCode.REPLICA_NOT_AVAILABLE
                errors[of] = code
        return errors

    def _alter(self, of: TopicPartition, path: str) -> None:
        # No file system takes such a name, and the refusal would look like a disk's failure.
        if len(name_for(of, DirectoryKind.FUTURE, 0)) > NAME_BYTES_MAX:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
        logs = self._manager.logs
        if of in self._manager.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{of} is on a failed directory")
        logs.prefer_directory(of, path)
        partition = self._manager.hosted(of)
        target = posixpath.normpath(path)
        future = logs.get(of, future=True) if of in self._tasks else None
        if future is None or posixpath.dirname(future.directory) != target:
            self._begin(partition, target)

    def resume(self, partition: Partition) -> None:
        """Begin the move of this partition again, if one was begun before this broker's start."""
        of = partition.topic_partition
        future = self._manager.logs.get(of, future=True)
        if future is None or partition.log is None or of in self._tasks:
            return
        try:
            self._begin(partition, posixpath.dirname(future.directory))
        except KafkaError as error:
            # The target's disk: the replica is on another.
            logger.error("the move of %s has failed: %s", of, error.message)

    def _begin(self, partition: Partition, target: str) -> None:
        """With an empty copy: one that there is already is deleted. None if the log is there."""
        of, log, logs = partition.topic_partition, partition.local_log, self._manager.logs
        self.cancel(of)
        logs.prefer_directory(of, target)
        if posixpath.dirname(log.directory) == target:
            return
        future = logs.get_or_create(of, log.config, is_new=True, future=True)
        partition.future_log = future
        task = asyncio.ensure_future(self._move(partition, future))
        self._tasks[of] = task
        task.add_done_callback(lambda done: self._ended(of, done))

    def stop(self, of: TopicPartition) -> None:
        """Copy no further."""
        task = self._tasks.pop(of, None)
        if task is not None:
            task.cancel()
        partition = self._manager.partition(of)
        if partition is not None:
            partition.future_log = None

    def cancel(self, of: TopicPartition) -> None:
        """Give the move up and delete what was copied."""
        self.stop(of)
        self._manager.logs.async_delete(of, future=True)

    def _ended(self, of: TopicPartition, task: asyncio.Task[None]) -> None:
        if self._tasks.get(of) is task:
            del self._tasks[of]
        if not task.cancelled() and task.exception() is not None:
            logger.error("the move of %s has failed: %s", of, task.exception())

    async def _move(self, partition: Partition, future: Log) -> None:
        """Copy until both logs end at the same offset; the swap follows without a pause."""
        of = partition.topic_partition
        while partition.future_log is future:
            current = partition.local_log
            if future.end_offset < current.end_offset:
                if self.quota.is_exceeded:
                    await asyncio.sleep(IDLE_S)
                    continue
                self.quota.record(_copy_some(current, future))
            if future.end_offset >= current.end_offset:
                partition.log = self._manager.logs.replace_current_with_future(of)
                partition.future_log = None
                self._moved += 1
                logger.info("%s is now in %s", of, partition.log.directory)
                # Now, or a crash makes the copy begin with a mark from when it was being made.
                self._manager.checkpoint_high_watermarks()
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
