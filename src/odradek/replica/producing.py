"""A produce that waits for its replicas. docs/spec/controller-and-replication.md section 5.4.

With acks=all the answer goes out when every partition's high watermark has passed what was written,
or at the time-out. One object waits, in each partition's queue; a queue is in offset order because
appends are, so a high watermark that moves looks only at those it releases.
"""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from odradek.replica.delayed import Delayed
from odradek.wire.errors import ErrorCode
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    from odradek.replica.partition import Partition

__all__ = ["DelayedProduce", "ProduceResult"]


@dataclass(slots=True)
class ProduceResult:
    """What became of the records of one partition. `base_offset` is -1 if nothing was written."""

    error: ErrorCode = ErrorCode.NONE
    base_offset: int = -1
    append_time_ms: int = -1
    log_start_offset: int = -1
    message: str = ""


class DelayedProduce(Delayed):
    """Waits in the queue of each partition in `waiting`."""

    __slots__ = ("future", "results", "waiting")

    def __init__(
        self,
        results: dict[TopicPartition, ProduceResult],
        waiting: "dict[TopicPartition, Partition]",
        future: "asyncio.Future[dict[TopicPartition, ProduceResult]]",
    ) -> None:
        super().__init__()
        self.results = results
        self.waiting = waiting
        self.future = future

    def partition_done(self, topic_partition: TopicPartition, error: ErrorCode) -> None:
        """The partition has taken us out of its queue."""
        del self.waiting[topic_partition]
        self.results[topic_partition].error = error
        if not self.waiting:
            self._end()

    def expire(self) -> None:
        for topic_partition in self.waiting:
            self.results[topic_partition].error = ErrorCode.REQUEST_TIMED_OUT
        self._end()

    def unregister(self) -> None:
        for partition in self.waiting.values():
            partition.produce_queue.pop(self, None)

    def _end(self) -> None:
        if self.finish() and not self.future.done():
            self.future.set_result(self.results)
