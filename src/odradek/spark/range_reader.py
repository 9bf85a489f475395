"""What a task does: reads a range of offsets of one partition as Arrow batches.

A leader that moves or a broker that dies is the client's business: it asks again until the range is
read or the time is over. Only offsets that the log does not have are data loss, and
`failOnDataLoss` says what follows. docs/spec/spark-kafka-format.md section 3.

A range is planned for a topic by its id, where the cluster has ids: a topic that was deleted and
created again in between has offsets of the same numbers, and none of them is read.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from pyspark.sql.datasource import InputPartition

from odradek.client.reader import (
    EARLIEST,
    LATEST,
    Batches,
    PartitionReader,
    TopicRecreated,
    offsets_at,
)
from odradek.spark import memory
from odradek.spark.errors import DataLoss, plainly
from odradek.spark.lookup import connect, isolation_of
from odradek.spark.options import SourceOptions
from odradek.spark.ranges import OffsetRange
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from odradek.client.blocking_client import Blocking

logger = logging.getLogger(__name__)

# Two fetches and their rows are in memory at a time.
FETCH_BYTES = 2 * 1024 * 1024
FETCH_WAIT_MS = 500
# What an offset outside the log is answered with; just at its end, with nothing for all the time.
NOT_THERE = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_NOT_AVAILABLE)
# A broker that has just become leader may not know its log's end yet.
DOUBTS_MAX = 10


@dataclass(frozen=True, slots=True)
class RangeBounds:
    """A range as planned; EARLIEST and LATEST are looked up by the task."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str | None = None


class RangePartition(InputPartition):
    """One task's range, the way Spark carries it to the task."""

    def __init__(self, bounds: RangeBounds) -> None:
        super().__init__(bounds)
        self.bounds = bounds


def partitions_of(ranges: list[OffsetRange], topic_ids: Mapping[str, str]) -> list[InputPartition]:
    return [
        RangePartition(
            RangeBounds(*r.topic_partition, r.start, r.end, topic_ids.get(r.topic_partition.topic))
        )
        for r in ranges
    ]


def read_range(options: SourceOptions, bounds: RangeBounds) -> "Iterator[pa.RecordBatch]":
    """The rows of a range. Closing the generator closes the connections."""
    memory.for_reading()
    with plainly(), connect(options) as cluster:
        yield from RangeReader(options, cluster, bounds).rows()


class RangeReader:
    """Reads on until the range is done, past what is lost if that is allowed."""

    def __init__(self, options: SourceOptions, cluster: "Blocking", bounds: RangeBounds) -> None:
        self._options = options
        self._cluster = cluster
        self._partition = TopicPartition(bounds.topic, bounds.partition)
        self._topic_id = None if bounds.topic_id is None else UUID(bounds.topic_id)
        self._start = self._concrete(bounds.start)
        self._end = self._concrete(bounds.end)
        self._doubts = 0

    def rows(self) -> "Iterator[pa.RecordBatch]":
        # Here, so that planning a query does not load the compiler.
        from odradek.spark.compilation import compile_apart
        from odradek.spark.decode import Decoder

        compile_apart()
        topic, partition = self._partition
        while self._start < self._end:
            decoder = Decoder(
                topic, partition, self._start, self._end, self._options.include_headers
            )
            try:
                for batches in self._batches():
                    self._doubts = 0
                    yield from decoder.decode(batches.records, batches.aborted)
                    self._start = max(decoder.start, batches.next_offset)
                return
            except TopicRecreated as error:
                self._lose_the_rest(error.message, error)
                return
            except KafkaError as error:
                if error.error not in NOT_THERE:
                    raise
                self._go_on_after(error)

    def _batches(self) -> Iterator[Batches]:
        settings = self._options.client
        reader = PartitionReader(
            self._cluster.client,
            isolation=isolation_of(self._options),
            fetch_bytes=int(settings.get("fetch.max.bytes", FETCH_BYTES)),
            partition_bytes=int(settings.get("max.partition.fetch.bytes", FETCH_BYTES)),
            wait_ms=int(settings.get("fetch.max.wait.ms", FETCH_WAIT_MS)),
            min_bytes=int(settings.get("fetch.min.bytes", 1)),
        )
        if self._topic_id is not None:
            reader.bind(self._partition, self._topic_id)
        return self._cluster.iterate(
            reader.batches(
                self._partition,
                self._start,
                self._end,
                timeout_s=self._options.poll_timeout_ms / 1000,
            )
        )

    def _concrete(self, offset: int) -> int:
        if offset >= 0:
            return offset
        found = self._cluster.run(
            offsets_at(
                self._cluster.client,
                {self._partition: offset},
                isolation=isolation_of(self._options),
            )
        )
        return found[self._partition].offset

    def _go_on_after(self, error: KafkaError) -> None:
        """After an offset out of range: fail, or move the start to what is left."""
        earliest, latest = self._concrete(EARLIEST), self._concrete(LATEST)
        is_inside = earliest <= self._start < latest
        if is_inside and error.error is ErrorCode.OFFSET_NOT_AVAILABLE:
            raise error  # the time for it is over
        if is_inside and self._doubts < DOUBTS_MAX:
            self._doubts += 1
            logger.warning("%s, yet the log has %d to %d: again", error, earliest, latest)
            return
        text = (
            f"offsets {self._start} to {self._end} of {self._partition} cannot be read: the log "
            f"has {earliest} to {latest}"
        )
        if self._start < earliest < self._end:
            self._lose(text, error, earliest)
        else:
            self._lose(text, error, self._end)

    def _lose_the_rest(self, reason: str, error: KafkaError) -> None:
        where = f"offsets {self._start} to {self._end} of {self._partition}"
        self._lose(f"{where} cannot be read: {reason}", error, self._end)

    def _lose(self, text: str, error: KafkaError, go_on_at: int) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss("COULD_NOT_READ_OFFSET_RANGE", text) from error
        logger.warning("%s; continuing at offset %d", text, go_on_at)
        self._start = go_on_at
