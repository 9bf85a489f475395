"""Sending records: batched per partition, in order, each once however often it has to be retried.

Every partition has a lane of its own where batches wait and leave in trains of up to five. Every
batch carries the producer's id and a sequence number: a broker refuses one whose predecessor is
missing, and knows a repetition of one that had arrived. So a train is sent in one go, and whatever
of it was refused is then repeated in order, batch by batch, before the next train leaves. When a
batch is given up, it may or may not have arrived, so those behind it in the train fail with it and
the numbers are begun again under a new producer id.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from struct import Struct
from typing import Any, NamedTuple, Self

from odradek.client.client import Client
from odradek.client.partitioner import partition_for
from odradek.client.retries import STALE_METADATA, RetryBudget
from odradek.wire.batch import HEADER_BYTES, SEQUENCE_MODULUS, header_at, set_crc
from odradek.wire.compression import Codec
from odradek.wire.errors import ErrorCode, KafkaError, error_code
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.wire.records import Headers, Record, encode_batch
from odradek.wire.topics import TopicPartition

ACKS_ALL = -1
# How many batches a broker remembers of each producer, to know a repetition by.
TRAIN_LENGTH = 5
BATCH_BYTES = 256 * 1024
BUFFER_BYTES = 64 * 1024 * 1024
LINGER_S = 0.005
DELIVERY_TIMEOUT_S = 120.0
# Lengths and deltas in front of a record's key and value, at most.
RECORD_OVERHEAD_BYTES = 21
# The broker must have given up on its replicas before we give up on the broker.
ANSWER_MARGIN_S = 5.0

ATTRIBUTES_OFFSET = 22  # the low byte
PRODUCER_OFFSET = 43
_PRODUCER = Struct(">qhi")


class Identity(NamedTuple):
    """What the cluster knows a producer by."""

    producer_id: int
    epoch: int


class RecordMetadata(NamedTuple):
    """Where a record went. The offset is -1 where the broker does not say: without acks, or when
    it had the record already."""

    partition: TopicPartition
    offset: int
    timestamp_ms: int


class _Batch:
    """Records, or a batch made elsewhere, on the way to one partition."""

    def __init__(self, partition: TopicPartition, encoded: bytearray | None = None) -> None:
        self.partition = partition
        self.encoded = encoded
        self.records: list[Record] = []
        self.size_bytes = HEADER_BYTES if encoded is None else len(encoded)
        self.sealed = asyncio.Event()
        self.handed_in_s = asyncio.get_running_loop().time()
        self.done: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()
        if encoded is not None:
            self.sealed.set()


class Delivery:
    """A record that was handed in; await it to know where it went."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: _Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        return self._record_metadata().__await__()

    async def _record_metadata(self) -> RecordMetadata:
        batch = self._batch
        offset, append_time_ms = await asyncio.shield(batch.done)
        timestamp_ms = append_time_ms
        if append_time_ms < 0 and batch.records:
            timestamp_ms = batch.records[self._index].timestamp
        return RecordMetadata(
            batch.partition, offset if offset < 0 else offset + self._index, timestamp_ms
        )

    def done(self) -> bool:
        return self._batch.done.done()


class _Lane:
    """What waits for one partition, and the sequence number that comes next."""

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.queue: deque[_Batch] = deque()
        self.wake = asyncio.Event()
        self.identity: Identity | None = None
        self.sequence = 0
        # The identity under which the partition's leader has acknowledged something.
        self.known_as: Identity | None = None


class Producer:
    """Sends to any number of topics. Use it as an async context manager: leaving it flushes."""

    def __init__(
        self,
        client: Client,
        *,
        acks: int = ACKS_ALL,
        idempotent: bool | None = None,
        codec: Codec = Codec.NONE,
        linger_s: float = LINGER_S,
        batch_bytes: int = BATCH_BYTES,
        buffer_bytes: int = BUFFER_BYTES,
        delivery_timeout_s: float = DELIVERY_TIMEOUT_S,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        if idempotent and acks != ACKS_ALL:
            raise ValueError("an idempotent producer needs acks=all")
        self.client = client
        self.acks = acks
        self.idempotent = acks == ACKS_ALL if idempotent is None else idempotent
        self.codec = codec
        self.linger_s = linger_s
        self.batch_bytes = batch_bytes
        self.buffer_bytes = buffer_bytes
        self.delivery_timeout_s = delivery_timeout_s
        # Without sequence numbers a second batch could overtake a first that has to be repeated.
        self.train_length = TRAIN_LENGTH if self.idempotent else 1
        self.clock = clock
        # Set in every batch, besides its codec.
        self.batch_attributes = 0
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._sticky: dict[str, int] = {}
        self._identity: Identity | None = None
        self._identifying = asyncio.Lock()
        self._unidentified: Exception | None = None
        # In the order of arrival, so that a simulated run can be repeated.
        self._unfinished: dict[_Batch, None] = {}
        self._buffered_bytes = 0
        self._room = asyncio.Event()
        self._failure: Exception | None = None
        self._records = self._batches = self._retries = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, exception_type: type[BaseException] | None, *_: object) -> None:
        try:
            if exception_type is None:
                await self.flush()
        finally:
            await self.close()

    # Handing in

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Queue a record. Returns at once unless the topic is new to us or the buffer is full."""
        size_bytes = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        size_bytes += sum(10 + len(name) + len(content or b"") for name, content in headers)
        await self._make_room(size_bytes)
        if partition is None:
            partition = await self._choose(topic, key)
        if timestamp_ms is None:
            timestamp_ms = self.clock()
        lane = self._lane(TopicPartition(topic, partition))
        batch = lane.queue[-1] if lane.queue else None
        if (
            batch is None
            or batch.sealed.is_set()
            or (batch.size_bytes + size_bytes > self.batch_bytes)
        ):
            if batch is not None:
                batch.sealed.set()
                self._sticky.pop(topic, None)
            batch = self._enqueue(lane, _Batch(lane.partition))
        batch.records.append(Record(-1, timestamp_ms, key, value, headers))
        batch.size_bytes += size_bytes
        self._buffered_bytes += size_bytes
        self._records += 1
        return Delivery(batch, len(batch.records) - 1)

    async def send_batch(self, partition: TopicPartition, batch: bytearray) -> Delivery:
        """Queue a batch made elsewhere. Its producer fields and checksum are set here."""
        await self._make_room(len(batch))
        queued = self._enqueue(self._lane(partition), _Batch(partition, batch))
        self._records += header_at(batch).record_count
        return Delivery(queued, 0)

    async def flush(self) -> None:
        """Wait until all that was handed in before is acknowledged, or without acks has left;
        raises the first failure since the last flush."""
        # Not for what others hand in meanwhile, which need never end.
        if waited_for := list(self._unfinished):
            for batch in waited_for:
                batch.sealed.set()
            await asyncio.wait([batch.done for batch in waited_for])
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def raise_failure(self) -> None:
        """Raise what the next flush would, if something has failed already.

        For callers that send much and await no delivery: `send` itself accepts records after a
        failure, for callers that await each delivery.
        """
        if self._failure is not None:
            raise self._failure

    async def close(self) -> None:
        """Stop at once. What is not acknowledged yet fails."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for batch in list(self._unfinished):
            self._fail(batch, ConnectionError("the producer was closed"))

    async def _make_room(self, size_bytes: int) -> None:
        while self._buffered_bytes and self._buffered_bytes + size_bytes > self.buffer_bytes:
            self._room.clear()
            await self._room.wait()

    async def _choose(self, topic: str, key: bytes | None) -> int:
        if topic not in self.client.metadata.topics:
            await self.client.require_topics([topic])
        partitions: Sequence[int] = list(self.client.metadata.topics[topic].partitions)
        if key is not None:
            return partition_for(key, len(partitions))
        if topic not in self._sticky:
            self._sticky[topic] = self.client.rng.choice(partitions)
        return self._sticky[topic]

    def _lane(self, partition: TopicPartition) -> _Lane:
        lane = self._lanes.get(partition)
        if lane is None:
            lane = self._lanes[partition] = _Lane(partition)
            self._tasks.append(asyncio.create_task(self._work(lane)))
        return lane

    def _enqueue(self, lane: _Lane, batch: _Batch) -> _Batch:
        lane.queue.append(batch)
        lane.wake.set()
        self._unfinished[batch] = None
        self._buffered_bytes += batch.size_bytes
        return batch

    # Delivering

    async def _work(self, lane: _Lane) -> None:
        while True:
            while not lane.queue:
                lane.wake.clear()
                await lane.wake.wait()
            train = [await self._ready(lane)]
            # A broker that knows nothing of a producer takes any number as its first: until it has
            # had one, a second batch in place of the first would pass for it.
            is_known = lane.known_as is not None and lane.known_as == self._identity
            length = self.train_length if is_known else 1
            while len(train) < length and lane.queue and lane.queue[0].sealed.is_set():
                train.append(lane.queue.popleft())
            try:
                await self._deliver(lane, train)
            except Exception as error:
                # It is unknown which of those that are left have arrived, so all of them fail.
                self._identity = None
                failed = [batch for batch in train if not batch.done.done()]
                if isinstance(error, OSError | TimeoutError):
                    # The cluster did not answer for as long as a delivery may take: those queued
                    # behind would wait as long each, one train after the other.
                    failed += lane.queue
                    lane.queue.clear()
                for batch in failed:
                    self._fail(batch, error)

    async def _ready(self, lane: _Lane) -> _Batch:
        """The first in the queue, once it is full or has waited long enough for company."""
        batch = lane.queue[0]
        if not batch.sealed.is_set() and self.linger_s > 0:
            try:
                async with asyncio.timeout(self.linger_s):
                    await batch.sealed.wait()
            except TimeoutError:
                pass
        batch.sealed.set()
        return lane.queue.popleft()

    async def _deliver(self, lane: _Lane, train: list[_Batch]) -> None:
        """Send all at once. What is refused is then sent one by one, in order, until it arrives."""
        budget = RetryBudget(self._remaining_s(train[0]), self.client.rng)
        encoded = [await self._stamped(lane, batch, budget) for batch in train]
        results = await self._produce(lane.partition, encoded, budget)
        refused = []
        for batch, data, result in zip(train, encoded, results, strict=True):
            if isinstance(result, Exception):
                refused.append((batch, data, result))
            else:
                self._succeed(batch, result)
        for batch, data, refusal in refused:
            # One that was refused only because one before it was missing need not wait.
            wait_for = None if refused[0][0] is not batch and _is_out_of_order(refusal) else refusal
            self._succeed(batch, await self._repeat(lane.partition, data, wait_for, budget))
            budget.renew(self._remaining_s(batch))
        lane.known_as = lane.identity

    def _remaining_s(self, batch: _Batch) -> float:
        """What is left of a batch's delivery time-out, which began when it was handed in."""
        elapsed_s = asyncio.get_running_loop().time() - batch.handed_in_s
        return max(0.0, self.delivery_timeout_s - elapsed_s)

    async def _repeat(
        self,
        partition: TopicPartition,
        encoded: bytearray,
        failure: Exception | None,
        budget: RetryBudget,
    ) -> tuple[int, int]:
        while True:
            if failure is not None:
                if _is_duplicate(failure):
                    return -1, -1
                await budget.back_off(failure)
                if not isinstance(failure, KafkaError) or failure.error in STALE_METADATA:
                    self.client.forget(partition.topic)
            self._retries += 1
            (result,) = await self._produce(partition, [encoded], budget)
            if not isinstance(result, Exception):
                return result
            failure = result

    async def _stamped(self, lane: _Lane, batch: _Batch, budget: RetryBudget) -> bytearray:
        """The batch's bytes with the producer's id and the lane's next sequence numbers."""
        encoded = batch.encoded
        if encoded is None:
            encoded = encode_batch(batch.records, codec=self.codec)
        self._batches += 1
        if self.idempotent:
            identity = await self._identify(budget)
            if lane.identity != identity:
                lane.identity, lane.sequence = identity, 0
            _PRODUCER.pack_into(encoded, PRODUCER_OFFSET, *identity, lane.sequence)
            encoded[ATTRIBUTES_OFFSET] |= self.batch_attributes
            header = header_at(encoded)
            set_crc(encoded, header)
            lane.sequence = (lane.sequence + header.last_offset_delta + 1) % SEQUENCE_MODULUS
        return encoded

    async def _identify(self, budget: RetryBudget) -> Identity:
        async with self._identifying:
            if self._identity is None and self._unidentified and not budget.remaining_s:
                # The time went by while another lane asked: what that heard is said to all.
                raise self._unidentified
            while self._identity is None:
                try:
                    self._identity = await self._new_identity()
                    self._unidentified = None
                except (OSError, TimeoutError, KafkaError) as failure:
                    self._unidentified = failure
                    # The client is at its end after the time for one answer, a delivery is not.
                    await budget.back_off(failure)
            return self._identity

    async def _new_identity(self) -> Identity:
        response = await self.client.ask_any(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        )
        if response.error_code:
            raise KafkaError(error_code(response.error_code), "no producer id")
        return Identity(response.producer_id, response.producer_epoch)

    async def _produce(
        self, partition: TopicPartition, train: Sequence[bytearray], budget: RetryBudget
    ) -> list[tuple[int, int] | Exception]:
        """Send batches to the partition's leader, in order, and wait for what becomes of each."""
        try:
            leaders = await self.client.leaders([partition], timeout_s=budget.remaining_s)
            connection = await self.client.connection(leaders[partition])
            if self.acks == 0:
                # What has left is all that can be known, and until then it fills our buffer.
                for encoded in train:
                    request = self._request(partition, encoded)
                    await connection.send_no_response(request, timeout=self.client.timeout_s)
                return [(-1, -1)] * len(train)
            # All are started before any is awaited: order is that of the connection.
            timeout_s = self.client.timeout_s + ANSWER_MARGIN_S
            answers = [
                connection.start(self._request(partition, encoded), timeout=timeout_s)
                for encoded in train
            ]
        except (OSError, TimeoutError, KafkaError) as error:
            return [error] * len(train)
        responses = await asyncio.gather(*answers, return_exceptions=True)
        return [_result(partition, response) for response in responses]

    def _request(self, partition: TopicPartition, encoded: bytearray) -> ProduceRequest:
        data = PartitionProduceData(index=partition.partition, records=encoded)
        return ProduceRequest(
            acks=self.acks,
            timeout_ms=int(self.client.timeout_s * 1000),
            topic_data=[TopicProduceData(name=partition.topic, partition_data=[data])],
        )

    def _succeed(self, batch: _Batch, placed: tuple[int, int]) -> None:
        self._finish(batch)
        batch.done.set_result(placed)

    def _fail(self, batch: _Batch, error: Exception) -> None:
        self._finish(batch)
        self._failure = self._failure or error
        batch.done.set_exception(error)
        # Raised by the delivery and by flush; a caller need not await both.
        batch.done.exception()

    def _finish(self, batch: _Batch) -> None:
        self._unfinished.pop(batch, None)
        self._buffered_bytes -= batch.size_bytes
        self._room.set()

    def statistics(self) -> dict[str, int]:
        return {
            "records": self._records,
            "batches": self._batches,
            "retries": self._retries,
            "buffered_bytes": self._buffered_bytes,
            "unfinished_batches": len(self._unfinished),
            "lanes": len(self._lanes),
        }


def _result(
    partition: TopicPartition, response: ProduceResponse | BaseException
) -> tuple[int, int] | Exception:
    """Offset and append time of a batch's first record, or why it was not acknowledged."""
    if isinstance(response, BaseException):
        if not isinstance(response, OSError | TimeoutError):
            raise response
        return response
    answer = response.responses[0].partition_responses[0]
    if answer.error_code:
        reason = f": {answer.error_message}" if answer.error_message else ""
        return KafkaError(error_code(answer.error_code), f"partition {partition}{reason}")
    return answer.base_offset, answer.log_append_time_ms


def _is_out_of_order(error: Exception) -> bool:
    """Whether the broker misses a batch before this one."""
    return isinstance(error, KafkaError) and error.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def _is_duplicate(error: Exception) -> bool:
    """Whether the broker has had the batch all along."""
    return isinstance(error, KafkaError) and error.error is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
