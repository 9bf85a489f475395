"""A produce that waits for its replicas. docs/spec/controller-and-replication.md section 5.4.

With acks=all the answer goes out when every partition's high watermark has passed what was written,
or at the time-out. One `DelayedProduce` waits, in the `ProduceQueue` of each of its partitions. A
queue is in offset order because appends are, so a high watermark that moves looks only at the
produces it releases.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from odradek.replica.delayed import Delayed
from odradek.wire.errors import ErrorCode
from odradek.wire.topics import TopicPartition

__all__ = ["DelayedProduce", "ProduceQueue", "ProduceResult"]


@dataclass(slots=True)
class ProduceResult:
    """The outcome for the records of one partition. `base_offset` is -1 if nothing was written;
    `record_errors` are the indexes of bad records, and why they are."""

    error: ErrorCode = ErrorCode.NONE
    base_offset: int = -1
    append_time_ms: int = -1
    log_start_offset: int = -1
    message: str = ""
    record_errors: Sequence[tuple[int, str]] = ()


class ProduceQueue:
    """The produces that wait for one partition's high watermark, in the order of their offsets."""

    __slots__ = ("_offsets", "_tp")

    def __init__(self, tp: TopicPartition) -> None:
        self._tp = tp
        self._offsets: OrderedDict[DelayedProduce, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, produce: "DelayedProduce", offset: int) -> None:
        self._offsets[produce] = offset
        produce.queues[self._tp] = self

    def discard(self, produce: "DelayedProduce") -> None:
        self._offsets.pop(produce, None)

    def release(self, high_watermark: int, error: Callable[[], ErrorCode]) -> None:
        """Complete the produces that the high watermark has passed, with what `error` returns."""
        offsets = self._offsets
        while offsets:
            produce, offset = next(iter(offsets.items()))
            if offset > high_watermark:
                return
            del offsets[produce]
            produce.partition_done(self._tp, error())

    def fail(self, error: ErrorCode) -> None:
        """Complete all: the high watermark they wait for will not be seen here."""
        while self._offsets:
            produce, _ = self._offsets.popitem(last=False)
            produce.partition_done(self._tp, error)


class DelayedProduce(Delayed):
    """Waits in `queues`, one for each partition whose replicas do not have the records yet."""

    __slots__ = ("future", "queues", "results")

    def __init__(
        self,
        results: dict[TopicPartition, ProduceResult],
        future: "asyncio.Future[dict[TopicPartition, ProduceResult]]",
    ) -> None:
        super().__init__()
        self.results = results
        self.queues: dict[TopicPartition, ProduceQueue] = {}
        self.future = future

    def partition_done(self, tp: TopicPartition, error: ErrorCode) -> None:
        """The partition's queue has let go of this produce."""
        del self.queues[tp]
        self.results[tp].error = error
        if not self.queues:
            self._end()

    def expire(self) -> None:
        for tp in self.queues:
            self.results[tp].error = ErrorCode.REQUEST_TIMED_OUT
        self._end()

    def unregister(self) -> None:
        for queue in self.queues.values():
            queue.discard(self)

    def _end(self) -> None:
        if self.finish() and not self.future.done():
            self.future.set_result(self.results)
