"""Rows on their way to a producer: gathered, sorted by topic and partition, encoded."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from odradek.client.client import Client
from odradek.client.producer import Producer
from odradek.spark.client_settings import security_settings
from odradek.spark.errors import BadRow
from odradek.spark.sink_options import SinkOptions
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

# Spark hands over small batches; several together make fuller batches per partition.
GATHER_BYTES = 2 * 1024 * 1024


def client_of(options: SinkOptions) -> Client:
    return Client(
        options.bootstrap_servers,
        client_id=options.client_id,
        timeout_s=options.request_timeout_ms / 1000,
        security=security_settings(options.client),
    )


async def next_of(batches: "Iterator[pa.RecordBatch]") -> "pa.RecordBatch | None":
    """The next, None at the end. Spark's iterator blocks, and what was sent must go on."""
    return await asyncio.get_running_loop().run_in_executor(None, next, batches, None)


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


class Sender:
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
