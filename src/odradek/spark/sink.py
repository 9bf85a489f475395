"""Writing rows to topics: `df.write.format("odradek")` and `writeStream`.

At least once, as with Spark's own format, or with `exactlyOnce` each row once for readers of what
was committed (`exactly_once`). At least once means: within a task each row is written once,
whatever happens to the cluster, since the producer numbers its batches; a task or batch that Spark
repeats is written again. docs/spec/spark-kafka-format.md section 4.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from odradek.client.producer import Producer
from odradek.spark import memory
from odradek.spark.errors import NotExactlyOnce, OptionError, plainly
from odradek.spark.exactly_once import Outcome, Part, Reached, finish, tell, write_once
from odradek.spark.sender import Sender, client_of, gather, next_of
from odradek.spark.sink_options import SinkOptions, sink_options
from odradek.wire.errors import ErrorCode, KafkaError

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

# What Spark passes to every task of a stream: decision 0011.
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
RUN_ID = "spark.jobGroup.id"

# The limit is the topic's, and of a whole batch: many small rows together may be over it.
TOO_LARGE = (
    "set kafka.batch.size to less than that, or raise max.message.bytes of the topic if a single "
    "row is larger"
)


@dataclass
class Written(WriterCommitMessage):
    """What one task wrote, and with exactlyOnce as which part of what."""

    rows: int
    outcome: Outcome | None = None


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


class _Writer(ABC):
    """What a batch and a stream write have in common: all but Spark's names for it.

    `reached` is called before each step of a write that is exactly once."""

    def __init__(
        self, options: dict[str, str], schema: StructType, reached: Reached = tell
    ) -> None:
        self._options = sink_options(options)
        self._columns = check_columns(schema, self._options.topic)
        self._reached = reached

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Written:
        memory.for_writing()
        with plainly(), _advised():
            if self._options.transactions is None:
                return Written(asyncio.run(_write(self._options, self._columns, iterator)))
            context = TaskContext.get()
            if context is None:
                raise RuntimeError("exactlyOnce is for tasks of Spark, and this is none")
            part = self._part(context)
            written = write_once(self._options, self._columns, part, iterator, self._reached)
            outcome = asyncio.run(written)
            return Written(outcome.rows, outcome)

    @abstractmethod
    def _part(self, context: TaskContext) -> Part:
        """Which part of which write this task is."""

    def _finish(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._options.transactions is None:
            return
        outcomes = [one.outcome for one in messages if isinstance(one, Written) and one.outcome]
        with plainly():
            asyncio.run(finish(self._options, outcomes, self._reached))


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
    """Writes a DataFrame. With exactlyOnce it is the caller's application and version that are
    written once; without them this one write, whose name all its tasks have from here."""

    def __init__(
        self, options: dict[str, str], schema: StructType, reached: Reached = tell
    ) -> None:
        super().__init__(options, schema, reached)
        self._unique = uuid4().hex

    def _part(self, context: TaskContext) -> Part:
        how = self._options.transactions
        assert how is not None
        application = how.application or self._unique
        # In `foreachBatch` this is a stream's run, which repeats a version in its first batch only.
        run = context.getLocalProperty(RUN_ID) if context.getLocalProperty(QUERY_ID) else None
        return Part(f"{how.prefix}.{application}", how.version, context.partitionId(), run or "")

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._finish(messages)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes each batch of a stream."""

    def __init__(
        self, options: dict[str, str], schema: StructType, reached: Reached = tell
    ) -> None:
        super().__init__(options, schema, reached)
        how = self._options.transactions
        if how is not None and how.application:
            raise OptionError("txnAppId is for batch writes: a stream has its query and batch")

    def _part(self, context: TaskContext) -> Part:
        how = self._options.transactions
        assert how is not None
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise NotExactlyOnce("this Spark does not pass a task its query and batch")
        run = context.getLocalProperty(RUN_ID) or ""
        return Part(f"{how.prefix}.{query}", int(batch), context.partitionId(), run, is_stream=True)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._finish(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing: what was committed is found by the next attempt, the rest never shows."""


async def _write(options: SinkOptions, columns: list[str], rows: "Iterator[pa.RecordBatch]") -> int:
    async with (
        client_of(options) as client,
        Producer(
            client,
            acks=options.acks,
            idempotent=options.idempotent,
            buffer_bytes=options.buffer_bytes,
            delivery_timeout_s=options.delivery_timeout_ms / 1000,
        ) as producer,
    ):
        sender = Sender(options, columns, client, producer)
        gathered = gather(rows)
        while (batch := await next_of(gathered)) is not None:
            await sender.send(batch)
            del batch  # before the next is read
        await producer.flush()
        return sender.rows
