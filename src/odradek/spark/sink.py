"""Writing rows to topics: `df.write.format("odradek")` and `writeStream`.

At least once, as with Spark's own format: within a task each row is written once, whatever happens
to the cluster, since the producer numbers its batches; a task or batch that Spark repeats is
written again. docs/spec/spark-kafka-format.md section 4.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from odradek.client.client import Client
from odradek.client.producer import Producer
from odradek.spark import memory
from odradek.spark.client_settings import security_settings
from odradek.spark.errors import BadRow, OptionError, plainly
from odradek.spark.sink_options import SinkOptions, sink_options
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

BYTES = ("string", "binary")
HEADERS = "array<struct<key:string,value:binary>>"
COLUMNS = {
    "value": BYTES,
    "key": BYTES,
    "topic": ("string",),
    "partition": ("int",),
    "headers": (HEADERS,),
}

# Spark hands over small batches; several together make fuller batches per partition.
GATHER_BYTES = 2 * 1024 * 1024

# The limit is the topic's, and of a whole batch: many small rows together may be over it.
TOO_LARGE = (
    "set kafka.batch.size to less than that, or raise max.message.bytes of the topic if a single "
    "row is larger"
)


@dataclass
class Written(WriterCommitMessage):
    """What one task wrote."""

    rows: int


def check_columns(schema: StructType, topic: str | None) -> list[str]:
    """The names of the columns that are written; OptionError if they cannot be."""
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "value" not in kinds:
        raise OptionError(f"a column value is needed; there are {', '.join(kinds) or 'none'}")
    if topic is None and "topic" not in kinds:
        raise OptionError("say where to write: an option topic or a column topic")
    for name, allowed in COLUMNS.items():
        if name in kinds and kinds[name] not in allowed:
            raise OptionError(f"column {name} must be {' or '.join(allowed)}, and is {kinds[name]}")
    return [name for name in COLUMNS if name in kinds]


class _Writer:
    """What a batch and a stream write have in common: all but Spark's names for it."""

    def __init__(self, options: dict[str, str], schema: StructType) -> None:
        self._options = sink_options(options)
        self._columns = check_columns(schema, self._options.topic)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Written:
        memory.for_writing()
        with plainly(), _advised():
            return Written(asyncio.run(_write(self._options, self._columns, iterator)))


@contextmanager
def _advised() -> Iterator[None]:
    """Say what to do about a batch that its topic does not take."""
    try:
        yield
    except KafkaError as error:
        if error.error is not ErrorCode.MESSAGE_TOO_LARGE:
            raise
        raise KafkaError(error.error, f"{error.message}; {TOO_LARGE}") from None


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Writes a DataFrame."""


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes each batch of a stream. There is nothing to commit: what is written is written."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass


async def _write(options: SinkOptions, columns: list[str], rows: "Iterator[pa.RecordBatch]") -> int:
    client = Client(
        options.bootstrap_servers,
        client_id=options.client_id,
        timeout_s=options.request_timeout_ms / 1000,
        security=security_settings(options.client),
    )
    async with (
        client,
        Producer(
            client,
            acks=options.acks,
            idempotent=options.idempotent,
            buffer_bytes=options.buffer_bytes,
            delivery_timeout_s=options.delivery_timeout_ms / 1000,
        ) as producer,
    ):
        sending = _Sending(options, columns, client, producer)
        gathered = gather(rows)
        loop = asyncio.get_running_loop()
        # Spark's iterator blocks, and what was sent must go on meanwhile.
        while (batch := await loop.run_in_executor(None, next, gathered, None)) is not None:
            await sending.send(batch)
            del batch  # before the next is read
        await producer.flush()
        return sending.rows


def gather(
    rows: "Iterable[pa.RecordBatch]", size_bytes: int = GATHER_BYTES
) -> "Iterator[pa.RecordBatch]":
    """The same rows in fewer batches, of about this size."""
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    waiting_bytes = 0

    def together() -> pa.RecordBatch:
        whole = pa.Table.from_batches(waiting).combine_chunks().to_batches()[0]
        waiting.clear()
        return whole

    for batch in rows:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        waiting_bytes += batch.nbytes
        del batch
        if waiting_bytes >= size_bytes:
            yield together()
            waiting_bytes = 0
    if waiting:
        yield together()


class _Sending:
    """Sorts rows by topic and partition, and hands them to the producer as record batches."""

    def __init__(
        self,
        options: SinkOptions,
        columns: list[str],
        client: Client,
        producer: Producer,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._options = options
        self._columns = columns
        self._client = client
        self._producer = producer
        self._clock = clock
        self.rows = 0

    async def send(self, batch: "pa.RecordBatch") -> None:
        # Here, so that planning a query does not load pyarrow.
        import numpy as np

        from odradek.spark.arrays import numbers_of, to_mask

        batch = batch.select(self._columns)
        self.rows += batch.num_rows
        if self._options.topic is not None:
            await self._send_to(self._options.topic, batch)
            return
        topics = batch["topic"]
        if topics.null_count:
            raise BadRow("KAFKA_NULL_TOPIC_IN_DATA: a row has no topic, and there is no option")
        encoded = topics.dictionary_encode()
        numbers = numbers_of(encoded.indices, np.int32)
        for number, topic in enumerate(encoded.dictionary.to_pylist()):
            await self._send_to(topic, batch.filter(to_mask(numbers == number)))

    async def _send_to(self, topic: str, batch: "pa.RecordBatch") -> None:
        # Here, so that planning a query does not load the compiler.
        from odradek.spark.compilation import compile_apart
        from odradek.spark.encode import Columns, encode_rows, partitions_of, rows_by_partition

        compile_apart()
        count = await self._partition_count(topic)
        columns = Columns.of(batch)
        keyless = self._client.rng.randrange(count)
        _check_partitions(topic, count, batch)
        chosen = partitions_of(batch, columns.key, count, keyless)
        now_ms = self._clock()
        for partition, rows in rows_by_partition(chosen):
            target = TopicPartition(topic, partition)
            for encoded in encode_rows(
                columns, rows, now_ms, self._options.codec, self._options.batch_bytes
            ):
                # The first failure is the task's: all that follows would be written for nothing,
                # and without brokers each batch takes its whole time to fail.
                self._producer.raise_failure()
                await self._producer.send_batch(target, encoded.data)

    async def _partition_count(self, topic: str) -> int:
        if topic not in self._client.metadata.topics:
            # Brokers that create topics on first use do it for a client that asks like this.
            await self._client.ask_any(
                MetadataRequest(
                    topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True
                )
            )
            await self._client.require_topics([topic])
        return len(self._client.metadata.topics[topic].partitions)


def _check_partitions(topic: str, count: int, batch: "pa.RecordBatch") -> None:
    import numpy as np

    from odradek.spark.arrays import numbers_of, valid_of

    if "partition" not in batch.schema.names:
        return
    column = batch["partition"]
    given = numbers_of(column, np.int32)[valid_of(column)]
    wrong = given[(given < 0) | (given >= count)]
    if len(wrong):
        raise BadRow(f"topic {topic!r} has {count} partitions, and a row asks for {wrong[0]}")
