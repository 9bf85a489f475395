"""Each row once for readers of what was committed, whatever dies meanwhile and is repeated.

Every task writes its rows in a transaction of its own, together with a mark that says "batch N is
written". An attempt that finds the mark writes nothing. So a batch that Spark repeats adds only
what is missing, and a batch is not atomic: readers see its tasks one after the other.

Rules
1. The transactional id of a task is also the group that holds its mark: taking the id ends what an
   earlier attempt has open, and waits for what it has decided, before the mark is read.
2. The mark is written, in the transaction, before it is read. A group's coordinator that accepts
   the write is the one that leads; one that was deposed would answer with an old mark.
3. The mark becomes visible with the rows, or not at all. There is no other order of events.
4. The driver has a mark too, written when all tasks have returned. It is older than any mark of the
   batch after it: as long as it is there, no mark of that batch can have expired.

docs/spec/transactions.md section 7 has the reasons, and what each crash leaves; docs/spark.md the
conditions that a query has to meet.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from odradek.client.admin import Admin
from odradek.client.client import Client
from odradek.client.groups import Committed, Groups
from odradek.client.transactional_producer import TransactionalProducer
from odradek.client.values import NewTopic, check
from odradek.spark.errors import NotExactlyOnce
from odradek.spark.sender import Sender, client_of, gather, next_of
from odradek.spark.sink_options import SinkOptions
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

# Where marks are committed: a group's offsets are those of a partition that exists. It stays empty.
MARKS = TopicPartition("odradek.sinks", 0)
# How long an attempt that has failed tries to end its transaction; the next attempt does it anyway.
ABANDON_S = 5.0
SUM_MODULUS = 2**64
HINT = (
    "a repeated batch must have the same rows in the same tasks: no rand() or clock, the same "
    "minPartitions and maxRecordsPerPartition, and "
    "spark.sql.adaptive.streaming.stateless.enabled=false"
)

T = TypeVar("T")


class Step(StrEnum):
    """Where a write is: what it does next. The last two are the driver's."""

    TAKE_ID = "take the transactional id"
    MARK = "write the mark"
    LOOK = "look for an earlier mark"
    SEND = "send the rows"
    NOTE = "note rows and sum in the mark"
    COMMIT = "commit"
    RETURN = "return to Spark"
    FINISH = "note the batch as written"
    FINISHED = "let Spark note it too"


@dataclass(frozen=True, slots=True)
class Part:
    """What a task is to write: its part of a batch. `writer` is the driver's group, and begins
    those of the tasks; `run` is the same for all batches between two starts of a stream."""

    writer: str
    batch: int
    task: int
    run: str = ""
    is_stream: bool = False

    @property
    def name(self) -> str:
        """The transactional id, and the group of the mark."""
        return f"{self.writer}.{self.task}"


Reached = Callable[[Step, Part], None]


def tell(step: Step, part: Part) -> None:
    logger.debug("%s, batch %d: %s", part.name, part.batch, step)


class Tally(NamedTuple):
    """How many rows, and a sum of them in any order."""

    rows: int = 0
    sum: int = 0

    def plus(self, batch: "pa.RecordBatch", columns: list[str]) -> "Tally":
        from odradek.spark.compilation import compile_apart

        compile_apart()
        from odradek.spark.encode import checksum

        total = (self.sum + checksum(batch.select(columns))) % SUM_MODULUS
        return Tally(self.rows + batch.num_rows, total)

    def encoded(self) -> str:
        return json.dumps({"rows": self.rows, "sum": self.sum})

    @classmethod
    def decoded(cls, metadata: str) -> "Tally":
        try:
            fields = json.loads(metadata)
            return cls(int(fields["rows"]), int(fields["sum"]))
        except (ValueError, KeyError, TypeError):
            raise NotExactlyOnce(f"a mark at {MARKS} is not ours: {metadata[:100]!r}") from None

    def __str__(self) -> str:
        return f"{self.rows} rows (sum {self.sum:016x})"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a task's part."""

    part: Part
    rows: int
    was_there: bool = False


# Decisions


def was_written(part: Part, mark: Committed | None) -> bool:
    """Whether the mark says that the task's part is committed; raises if it is of a later batch."""
    if mark is None or mark.offset <= part.batch:
        return False
    if mark.offset > part.batch + 1:
        raise NotExactlyOnce(
            f"task {part.task} is to write batch {part.batch} of {part.writer}, and batch "
            f"{mark.offset - 1} is committed: another driver is ahead, or the checkpoint is older "
            "than what was written from it"
        )
    return True


def refuse_other_rows(part: Part, committed: Tally, repeated: Tally) -> None:
    if committed != repeated:
        raise NotExactlyOnce(
            f"task {part.task} of batch {part.batch} of {part.writer}: {committed} are committed, "
            f"and the repeated batch has {repeated}; {HINT}"
        )


def refuse_gaps(parts: Sequence[Part]) -> None:
    """Every task of the batch once, and all of the same batch."""
    first = parts[0]
    batches = {(part.writer, part.batch) for part in parts}
    if len(batches) != 1 or sorted(part.task for part in parts) != list(range(len(parts))):
        tasks = ", ".join(str(part.task) for part in parts)
        raise NotExactlyOnce(f"batch {first.batch} of {first.writer} came from tasks {tasks}")


# A task


async def write_once(
    options: SinkOptions,
    columns: list[str],
    part: Part,
    rows: "Iterator[pa.RecordBatch]",
    reached: Reached,
) -> Outcome:
    """Write a task's part unless an earlier attempt has."""
    gathered = gather(rows)
    first = await next_of(gathered)
    if first is None:
        return Outcome(part, 0)
    how = options.transactions
    assert how is not None
    async with client_of(options) as client:
        producer = TransactionalProducer(
            client,
            part.name,
            transaction_timeout_ms=how.timeout_ms,
            buffer_bytes=options.buffer_bytes,
            delivery_timeout_s=options.delivery_timeout_ms / 1000,
        )
        attempt = _Attempt(options, columns, part, client, producer, reached)
        try:
            return await attempt.write(first, gathered)
        except BaseException:
            with contextlib.suppress(OSError, TimeoutError, KafkaError):
                async with asyncio.timeout(ABANDON_S):
                    await producer.abandon()
            raise
        finally:
            await producer.close()


class _Attempt:
    """One attempt of a task, step by step."""

    def __init__(
        self,
        options: SinkOptions,
        columns: list[str],
        part: Part,
        client: Client,
        producer: TransactionalProducer,
        reached: Reached,
    ) -> None:
        self._options = options
        self._columns = columns
        self._part = part
        self._client = client
        self._producer = producer
        self._hook = reached

    async def write(self, first: "pa.RecordBatch", others: "Iterator[pa.RecordBatch]") -> Outcome:
        part, producer = self._part, self._producer
        self._reached(Step.TAKE_ID)
        await self._patiently(lambda: create_marks(self._client))
        with _advised():
            await self._patiently(producer.init_transactions)
        # Apache Kafka answers for a marker a moment before its offsets count.
        await self._patiently(lambda: mark_of(self._client, part.name, require_stable=True))
        producer.begin()
        self._reached(Step.MARK)
        await self._mark("")
        self._reached(Step.LOOK)
        mark = await self._patiently(lambda: mark_of(self._client, part.name))
        if was_written(part, mark):
            assert mark is not None
            await self._patiently(producer.abort)
            refuse_other_rows(part, Tally.decoded(mark.metadata), await self._read(first, others))
            return Outcome(part, Tally.decoded(mark.metadata).rows, was_there=True)
        how = self._options.transactions
        if mark is None and part.is_stream and part.batch and how and how.fail_on_missing_mark:
            await self._patiently(lambda: _require_mark(self._client, part))
        self._reached(Step.SEND)
        tally = await self._send(first, others)
        self._reached(Step.NOTE)
        await self._mark(tally.encoded())
        self._reached(Step.COMMIT)
        await self._patiently(producer.commit)
        self._reached(Step.RETURN)
        return Outcome(part, tally.rows)

    def _reached(self, step: Step) -> None:
        self._hook(step, self._part)

    async def _mark(self, metadata: str) -> None:
        marks = {MARKS: self._part.batch + 1}
        await self._patiently(
            lambda: self._producer.send_offsets(marks, self._part.name, metadata=metadata)
        )

    async def _send(
        self, batch: "pa.RecordBatch | None", others: "Iterator[pa.RecordBatch]"
    ) -> Tally:
        sender = Sender(self._options, self._columns, self._client, self._producer)
        tally = Tally()
        while batch is not None:
            tally = tally.plus(batch, self._columns)
            await sender.send(batch)
            batch = None  # before the next is read
            batch = await next_of(others)
        # Not repeated: what was not delivered must not be committed.
        await self._producer.flush()
        return tally

    async def _read(
        self, batch: "pa.RecordBatch | None", others: "Iterator[pa.RecordBatch]"
    ) -> Tally:
        tally = Tally()
        while batch is not None:
            tally = tally.plus(batch, self._columns)
            batch = await next_of(others)
        return tally

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        return await patiently(self._client, self._options, call)


@contextlib.contextmanager
def _advised() -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        if error.error is not ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise
        raise NotExactlyOnce(
            "the brokers do not allow transactions of kafka.transaction.timeout.ms: set it to "
            "their transaction.max.timeout.ms, and more than a task takes"
        ) from None


# The driver


async def finish(options: SinkOptions, outcomes: Sequence[Outcome], reached: Reached) -> None:
    """When all tasks have returned: check that they are the whole batch, and write the mark."""
    if not outcomes:
        return
    refuse_gaps([outcome.part for outcome in outcomes])
    part = outcomes[0].part
    reached(Step.FINISH, part)
    async with client_of(options) as client:
        await patiently(client, options, lambda: create_marks(client))
        last = await patiently(client, options, lambda: mark_of(client, part.writer))
        was_written(part, last)
        # Between two batches of a run nothing is repeated.
        if last is None or not part.run or last.metadata != part.run:
            await patiently(client, options, lambda: _refuse_strays(client, outcomes))

        async def note() -> None:
            marks = {MARKS: part.batch + 1}
            check(await Groups(client).alter_offsets(part.writer, marks, part.run))

        await patiently(client, options, note)
    reached(Step.FINISHED, part)


async def _refuse_strays(client: Client, outcomes: Sequence[Outcome]) -> None:
    """Raise if a task has committed a part of this batch that the repeated batch does not have."""
    part = outcomes[0].part
    busy = {outcome.part.name for outcome in outcomes if outcome.rows}
    groups = Groups(client)
    for group in await groups.list_groups():
        number = group.id.removeprefix(f"{part.writer}.")
        if group.id in busy or number == group.id or not number.isdecimal():
            continue
        mark = await mark_of(client, group.id)
        if mark is not None and mark.offset == part.batch + 1:
            stray = Part(part.writer, part.batch, int(number))
            refuse_other_rows(stray, Tally.decoded(mark.metadata), Tally())


# What both do


async def mark_of(client: Client, group: str, *, require_stable: bool = False) -> Committed | None:
    groups = Groups(client)
    return (await groups.offsets(group, [MARKS], require_stable=require_stable)).get(MARKS)


async def require_mark(options: SinkOptions, part: Part) -> None:
    """Raise if the driver's mark is not there, and so those of the tasks may be gone too."""
    async with client_of(options) as client:
        await patiently(client, options, lambda: _require_mark(client, part))


async def _require_mark(client: Client, part: Part) -> None:
    if await mark_of(client, part.writer) is None:
        raise NotExactlyOnce(
            f"batch {part.batch} of {part.writer}: the mark of the batch before is gone, so parts "
            "of this one may be committed and their marks gone too. Marks live as long as offsets "
            "of groups (offsets.retention.minutes); a query that ran without exactlyOnce has none. "
            "failOnMissingMark=false goes on, and rows of this batch may then come twice"
        )


async def create_marks(client: Client) -> None:
    """Have the topic that marks are offsets of. While fewer brokers live than it has replicas it
    cannot be created, which passes: COORDINATOR_NOT_AVAILABLE, as for the topic of offsets."""
    try:
        await client.require_topics([MARKS.topic])
        return
    except KafkaError as error:
        if error.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
    topic = NewTopic(MARKS.topic, partitions=1)
    outcome = (await Admin(client).create_topics([topic]))[MARKS.topic]
    if outcome is not None and outcome.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
        lacks_brokers = outcome.error is ErrorCode.INVALID_REPLICATION_FACTOR
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE if lacks_brokers else outcome.error,
            f"{outcome.message}: exactlyOnce needs a topic {MARKS.topic} with a partition, which "
            "stays empty; create it, or allow this client to",
        )
    await client.require_topics([MARKS.topic])


async def patiently(client: Client, options: SinkOptions, call: Callable[[], Awaitable[T]]) -> T:
    """What `call` returns, which may be repeated while the cluster changes: for as long as a
    delivery may take, not only as one answer."""
    budget = client.retry_budget(options.delivery_timeout_ms / 1000)
    while True:
        try:
            return await call()
        except (OSError, TimeoutError, KafkaError) as error:
            await budget.back_off(error)
