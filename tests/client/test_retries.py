"""What a broker may answer and when: a scripted one, on a real socket, with a log and sequences.

The other tests talk to whole clusters, where such moments come by chance; here they are ordered.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from random import Random

import pytest

from odradek.client import Client, Consumer, PartitionReader, Producer, UndecodableBatch
from odradek.client.retries import RetryBudget
from odradek.wire.api import APIS, ApiKey
from odradek.wire.batch import HEADER_BYTES, header_at, set_crc, set_offset_and_epoch
from odradek.wire.errors import ErrorCode, KafkaError, error_code
from odradek.wire.frames import FrameProtocol
from odradek.wire.header import decode_request_header, encode_response
from odradek.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from odradek.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from odradek.wire.messages.find_coordinator import FindCoordinatorResponse
from odradek.wire.messages.init_producer_id import InitProducerIdResponse
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.wire.records import decode_records
from odradek.wire.schema import Message
from odradek.wire.topics import TopicPartition

PARTITION = TopicPartition("t", 0)
HANG_UP = "hang up"
SERVED = (
    ApiKey.API_VERSIONS,
    ApiKey.METADATA,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.PRODUCE,
    ApiKey.FETCH,
)


class Script:
    """One broker with one partition. `produce` and `fetch` say what goes wrong next."""

    def __init__(self) -> None:
        self.port = 0
        self.log: list[bytearray] = []
        self.produce: deque[ErrorCode | str] = deque()
        self.fetch: deque[ErrorCode | str] = deque()
        self.fetched_partition = 0
        self.asked: list[ApiKey] = []
        self.expected: dict[int, int] = {}
        self.next_producer_id = 100
        self.has_leader = True
        # A replica that clients with a rack are sent to, which Metadata does not know.
        self.preferred = -1
        self.prefers_for_all = False
        self.outstanding = self.outstanding_max = 0

    @property
    def end(self) -> int:
        return header_at(self.log[-1]).next_offset if self.log else 0

    def values(self) -> list[bytes | None]:
        return [
            record.value for batch in self.log for record in decode_records(batch, header_at(batch))
        ]

    def answer(self, key: ApiKey, request: Message) -> Message | None:
        self.asked.append(key)
        if key is ApiKey.API_VERSIONS:
            apis = [APIS[served] for served in SERVED]
            return ApiVersionsResponse(
                api_keys=[
                    ApiVersion(api_key=a.key, min_version=a.min_version, max_version=a.max_version)
                    for a in apis
                ]
            )
        if isinstance(request, MetadataRequest):
            leader = 1 if self.has_leader else -1
            partition = MetadataResponsePartition(partition_index=0, leader_id=leader)
            return MetadataResponse(
                brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)],
                controller_id=1,
                topics=[
                    MetadataResponseTopic(name="t", partitions=[partition])
                    if wanted.name == "t"
                    else MetadataResponseTopic(
                        name=wanted.name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    )
                    for wanted in request.topics or ()
                ],
            )
        if key is ApiKey.INIT_PRODUCER_ID:
            self.next_producer_id += 1
            return InitProducerIdResponse(producer_id=self.next_producer_id)
        if isinstance(request, ProduceRequest):
            return self.answer_produce(request)
        assert isinstance(request, FetchRequest)
        return self.answer_fetch(request)

    def answer_produce(self, request: ProduceRequest) -> Message | None:
        data = request.topic_data[0].partition_data[0].records
        assert isinstance(data, memoryview)
        trouble = self.produce.popleft() if self.produce else ErrorCode.NONE
        offset = -1
        if trouble is ErrorCode.NONE or trouble is HANG_UP:
            # It hangs up after it has appended: the client cannot know.
            outcome, offset = self.append(bytearray(data))
            if trouble is HANG_UP:
                return None
            trouble = outcome
        assert isinstance(trouble, ErrorCode)
        answer = PartitionProduceResponse(index=0, error_code=trouble, base_offset=offset)
        return ProduceResponse(
            responses=[TopicProduceResponse(name="t", partition_responses=[answer])]
        )

    def append(self, batch: bytearray) -> tuple[ErrorCode, int]:
        header = header_at(batch)
        expected = self.expected.setdefault(header.producer_id, header.base_sequence)
        if header.base_sequence < expected:
            return ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1
        if header.base_sequence > expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        self.expected[header.producer_id] = expected + header.record_count
        offset = self.end
        set_offset_and_epoch(batch, 0, offset, 0)
        self.log.append(batch)
        return ErrorCode.NONE, offset

    def answer_fetch(self, request: FetchRequest) -> Message | None:
        asked = request.topics[0].partitions[0]
        trouble = self.fetch.popleft() if self.fetch else ErrorCode.NONE
        if trouble is HANG_UP:
            return None
        assert isinstance(trouble, ErrorCode)
        records, preferred = b"", -1
        if request.rack_id or self.prefers_for_all:
            preferred = self.preferred
        if trouble is ErrorCode.NONE and preferred < 0:
            kept = [b for b in self.log if header_at(b).next_offset > asked.fetch_offset]
            records = b"".join(kept)
        data = PartitionData(
            partition_index=self.fetched_partition,
            error_code=trouble,
            high_watermark=self.end,
            preferred_read_replica=preferred,
            records=records,
        )
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])


class ScriptedConnection(FrameProtocol):
    def read_finished(self) -> None:
        """What came in one read was sent without waiting for answers."""
        self.script.outstanding = 0

    def __init__(self, script: Script) -> None:
        super().__init__(1 << 24)
        self.script = script

    def frame_received(self, frame: bytearray) -> None:
        header, position = decode_request_header(frame)
        key = ApiKey(header.api_key)
        request = APIS[key].request.decode(memoryview(frame)[position:], header.api_version)
        self.script.outstanding += 1
        self.script.outstanding_max = max(self.script.outstanding, self.script.outstanding_max)
        response = self.script.answer(key, request)
        if response is None:
            self.close()
        else:
            self.send(encode_response(response, header.api_version, header.correlation_id))


@pytest.fixture
async def script() -> AsyncIterator[Script]:
    script = Script()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: ScriptedConnection(script), "127.0.0.1", 0)
    script.port = server.sockets[0].getsockname()[1]
    yield script
    server.close()


@pytest.fixture
async def client(script: Script) -> AsyncIterator[Client]:
    async with Client(f"127.0.0.1:{script.port}", timeout_s=5.0) as client:
        yield client


async def send(producer: Producer, count: int, *, each_alone: bool = True) -> list[bytes | None]:
    """Hand in numbered records, each in a batch of its own; they leave when the loop turns."""
    values: list[bytes | None] = [b"%d" % number for number in range(count)]
    for value in values:
        await producer.send("t", value, partition=0)
        if each_alone:
            producer._lanes[PARTITION].queue[-1].sealed.set()
    return values


@pytest.mark.parametrize(
    "trouble",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.LEADER_NOT_AVAILABLE,
        HANG_UP,
    ],
)
@pytest.mark.parametrize("position", range(3))
async def test_what_passes_is_repeated_in_order(
    script: Script, client: Client, trouble: ErrorCode | str, position: int
) -> None:
    """The first, second or third batch of a train meets trouble: all arrive, once, in order."""
    script.produce.extend([ErrorCode.NONE] * position + [trouble])
    async with Producer(client) as producer:
        values = await send(producer, 7)
        await producer.flush()
        assert producer.statistics()["retries"] > 0
    assert script.values() == values


@pytest.mark.parametrize("position", range(5))
@pytest.mark.parametrize("trouble", [ErrorCode.NOT_LEADER_OR_FOLLOWER, HANG_UP])
async def test_trouble_within_a_train(
    script: Script, client: Client, trouble: ErrorCode | str, position: int
) -> None:
    async with Producer(client) as producer:
        await (await producer.send("t", b"first", partition=0))
        script.produce.extend([ErrorCode.NONE] * position + [trouble])
        values = await send(producer, 7)
        await producer.flush()
        assert producer.statistics()["retries"] > 0
    assert script.values() == [b"first", *values]


async def test_trouble_again_and_again(script: Script, client: Client) -> None:
    script.produce.extend(
        [ErrorCode.NOT_LEADER_OR_FOLLOWER, HANG_UP, ErrorCode.NONE, HANG_UP, ErrorCode.NONE] * 2
    )
    async with Producer(client) as producer:
        values = await send(producer, 12)
    assert script.values() == values


async def test_a_repetition_that_had_arrived_counts_as_delivered(
    script: Script, client: Client
) -> None:
    script.produce.append(HANG_UP)
    async with Producer(client) as producer:
        placed = await (await producer.send("t", b"x", partition=0))
    assert placed.offset == -1, "the broker does not say where"
    assert script.values() == [b"x"]


async def test_a_train_leaves_in_one_go(script: Script, client: Client) -> None:
    async with Producer(client) as producer:
        await (await producer.send("t", b"first", partition=0))
        await send(producer, 5)
        await producer.flush()
        sequences = [header_at(batch).base_sequence for batch in script.log]
    assert sequences == [0, 1, 2, 3, 4, 5]
    assert script.outstanding_max == 5
    assert len({header_at(batch).producer_id for batch in script.log}) == 1


async def test_what_does_not_pass_fails_with_those_behind_it(
    script: Script, client: Client
) -> None:
    async with Producer(client) as producer:
        await (await producer.send("t", b"first", partition=0))
        script.produce.extend([ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH])
        deliveries = []
        for number in range(4):
            deliveries.append(await producer.send("t", b"%d" % number, partition=0))
            producer._lanes[PARTITION].queue[-1].sealed.set()
        with pytest.raises(KafkaError) as caught:
            await producer.flush()
        assert caught.value.error is ErrorCode.INVALID_PRODUCER_EPOCH
        assert (await deliveries[0]).offset == 1
        for delivery in deliveries[1:]:
            with pytest.raises(KafkaError):
                await delivery
        # What comes next has a new producer id and begins at sequence 0.
        await (await producer.send("t", b"next", partition=0))
    last = header_at(script.log[-1])
    assert last.base_sequence == 0
    assert last.producer_id != header_at(script.log[0]).producer_id
    assert script.values() == [b"first", b"0", b"next"]


async def test_a_failure_can_be_asked_for_before_more_is_sent(
    script: Script, client: Client
) -> None:
    async with Producer(client) as producer:
        producer.raise_failure()  # there is none
        script.produce.append(ErrorCode.INVALID_PRODUCER_EPOCH)
        failed = await producer.send("t", b"x", partition=0)
        with pytest.raises(KafkaError):
            await failed
        for ask in (producer.raise_failure, producer.raise_failure):
            with pytest.raises(KafkaError, match="t-0"):
                ask()
        with pytest.raises(KafkaError, match="t-0"):
            await producer.flush()
        producer.raise_failure()  # the flush raised it
        await (await producer.send("t", b"y", partition=0))
    assert script.values() == [b"y"]


async def test_without_idempotence_one_batch_at_a_time(script: Script, client: Client) -> None:
    script.produce.extend([ErrorCode.NOT_LEADER_OR_FOLLOWER])
    async with Producer(client, acks=1) as producer:
        assert producer.train_length == 1
        # Sequence -1 throughout: the script takes each as the next.
        script.expected[-1] = -1
        await send(producer, 1)
    assert script.values() == [b"0"]
    assert ApiKey.INIT_PRODUCER_ID not in script.asked


async def test_a_leader_is_waited_for(script: Script, client: Client) -> None:
    script.has_leader = False
    waiting = asyncio.ensure_future(client.leader(PARTITION))
    while script.asked.count(ApiKey.METADATA) < 3:
        assert not waiting.done()
        await asyncio.sleep(0)
    script.has_leader = True
    assert await waiting == 1


async def test_no_leader_for_too_long(script: Script, client: Client) -> None:
    script.has_leader = False
    with pytest.raises(KafkaError, match="t-0 has no leader at present"):
        await client.leaders([PARTITION], timeout_s=1.0)


@pytest.mark.parametrize("trouble", [ErrorCode.NOT_LEADER_OR_FOLLOWER, HANG_UP])
async def test_reading_resumes_after_errors(
    script: Script, client: Client, trouble: ErrorCode | str
) -> None:
    async with Producer(client) as producer:
        values = await send(producer, 3)
    script.fetch.append(trouble)
    read = [
        record.value
        async for batches in PartitionReader(client).batches(PARTITION, 0, 3)
        for record in batches.open()
    ]
    assert read == values
    script.fetch.append(trouble)
    async with Consumer(client) as consumer:
        await consumer.assign({PARTITION: 1})
        received = [record.value for b in await consumer.poll(5) for record in consumer.open(b)]
    assert received == values[1:]


async def test_an_answer_about_another_partition_is_an_error(
    script: Script, client: Client
) -> None:
    script.fetched_partition = 7
    reader = PartitionReader(client)
    node = await reader.node_for(PARTITION)
    with pytest.raises(KafkaError, match="broker 1 answered a fetch with partition t-7, which was"):
        await reader.fetch(node, {PARTITION: 0})


@pytest.fixture
async def neighbour(script: Script) -> AsyncIterator[Client]:
    """A client that says where it is."""
    async with Client(f"127.0.0.1:{script.port}", timeout_s=5.0, rack="a") as client:
        yield client


async def test_a_preferred_replica_missing_from_the_metadata_is_not_used(
    script: Script, neighbour: Client
) -> None:
    async with Producer(neighbour) as producer:
        values = await send(producer, 3)
    script.preferred = 2
    script.asked.clear()
    reader = PartitionReader(neighbour)
    read = [b async for batches in reader.batches(PARTITION, 0, 3) for b in batches.open()]
    assert [record.value for record in read] == values
    assert script.asked == [ApiKey.FETCH, ApiKey.METADATA, ApiKey.FETCH], "sent on, looked, read"
    script.asked.clear()
    async with Consumer(neighbour) as consumer:
        await consumer.assign({PARTITION: 0})
        received = [record.value for b in await consumer.poll(5) for record in consumer.open(b)]
    assert received == values
    assert script.asked == [ApiKey.FETCH, ApiKey.METADATA, ApiKey.FETCH]


async def test_a_leader_that_will_not_be_read_from_is_not_asked_without_pause(
    script: Script, neighbour: Client
) -> None:
    script.preferred, script.prefers_for_all = 2, True
    for timeout_s in (0.0, 0.1):
        with pytest.raises(KafkaError) as caught:
            await anext(PartitionReader(neighbour).batches(PARTITION, 0, 3, timeout_s=timeout_s))
        assert caught.value.error is ErrorCode.REPLICA_NOT_AVAILABLE, "not that the log is empty"
    assert script.asked.count(ApiKey.FETCH) <= 7


async def test_a_log_that_ends_too_early(script: Script, client: Client) -> None:
    async with Producer(client) as producer:
        await send(producer, 2)
    pieces = PartitionReader(client).batches(PARTITION, 0, 9, timeout_s=1.0)
    assert (await anext(pieces)).next_offset == 2
    with pytest.raises(KafkaError, match="nothing from offset 2 to 9: it ends at 2") as caught:
        await anext(pieces)
    assert caught.value.error is ErrorCode.OFFSET_NOT_AVAILABLE


async def test_a_damaged_batch_is_not_handed_out(script: Script, client: Client) -> None:
    async with Producer(client) as producer:
        await send(producer, 1)
    script.log[0][-1] ^= 1
    with pytest.raises(
        KafkaError, match="batch at offset 0 cannot be decoded: its checksum"
    ) as caught:
        await anext(PartitionReader(client).batches(PARTITION, 0, 1))
    assert caught.value.error is ErrorCode.CORRUPT_MESSAGE


async def test_what_is_no_batch_is_reported_with_its_offset(script: Script, client: Client) -> None:
    async with Producer(client) as producer:
        await send(producer, 1)
    script.log[0] += bytes(8) + (99).to_bytes(4, "big") + bytes(4) + b"\x07" + bytes(94)
    with pytest.raises(KafkaError, match=f"{PARTITION}, at offset 1: batch .* has magic 7"):
        await anext(PartitionReader(client).batches(PARTITION, 0, 1))


async def test_looking_for_the_same_topics_is_done_once(script: Script, client: Client) -> None:
    await asyncio.gather(*(client.refresh(["t"]) for _ in range(10)))
    assert script.asked.count(ApiKey.METADATA) == 1


async def test_a_coordinator_that_another_request_forgets_meanwhile(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find(request: Message) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(node_id=9)

    async def refresh() -> None:
        client._coordinators.clear()  # as after an error of another request to it

    monkeypatch.setattr(client, "ask_any", find)
    monkeypatch.setattr(client, "refresh", refresh)
    assert await client.coordinator("group") == 9


async def test_closing_with_a_question_open(script: Script) -> None:
    client = Client(f"127.0.0.1:{script.port}")
    waiting = asyncio.ensure_future(client.refresh())
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises((ConnectionError, asyncio.CancelledError)):
        await waiting


async def test_retry_budget() -> None:
    budget = RetryBudget(0.05, Random(1))
    passing = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    await budget.back_off(passing)
    fatal = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaError) as caught:
        await budget.back_off(fatal)
    assert caught.value is fatal
    budget = RetryBudget(0.0, Random(1))
    with pytest.raises(KafkaError) as caught:
        await budget.back_off(passing)
    assert caught.value is passing
    assert budget.statistics() == {"pauses": 0, "remaining_s": 0.0}


def test_unknown_error_codes() -> None:
    assert error_code(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert error_code(31_000) is ErrorCode.UNKNOWN_SERVER_ERROR


async def poison(script: Script, client: Client) -> None:
    """Three batches, of which the second has a valid checksum around contents that are not."""
    for number in range(3):
        async with Producer(client) as producer:
            await send(producer, 1)
        if number == 1:
            batch = script.log[-1]
            batch[HEADER_BYTES] = 0x7F  # the length of its first record
            set_crc(batch, header_at(batch))


async def test_an_undecodable_batch_is_named_and_can_be_skipped(
    script: Script, client: Client
) -> None:
    await poison(script, client)
    skipped: list[UndecodableBatch] = []
    async with Consumer(client) as consumer:
        await consumer.assign({PARTITION: 0})
        (batches,) = await consumer.poll(5.0)
        with pytest.raises(UndecodableBatch, match="t-0: the batch at offset 1 cannot be decoded"):
            consumer.open(batches)
        records = consumer.open(batches, skip=skipped.append)
    assert [record.offset for record in records] == [0, 2]
    assert [(batch.base_offset, batch.next_offset) for batch in skipped] == [(1, 2)]


async def test_what_comes_before_a_damaged_batch_is_read_and_the_batch_can_be_skipped(
    script: Script, client: Client
) -> None:
    for _ in range(3):
        async with Producer(client) as producer:
            await send(producer, 1)
    script.log[1][-1] ^= 1
    async with Consumer(client) as consumer:
        await consumer.assign({PARTITION: 0})
        (batches,) = await consumer.poll(5.0)
        assert [record.offset for record in consumer.open(batches)] == [0]
        with pytest.raises(UndecodableBatch, match="offset 1 cannot be decoded") as caught:
            await consumer.poll(5.0)
        consumer.skip(caught.value)
        (batches,) = await consumer.poll(5.0)
        assert [record.offset for record in consumer.open(batches)] == [2]


async def test_a_topic_the_controller_does_not_know_is_refused_at_once(
    script: Script, client: Client
) -> None:
    with pytest.raises(KafkaError, match="topic 'nope' does not exist"):
        await client.require_topics(["t", "nope"])
    assert script.asked.count(ApiKey.METADATA) == 2, "any broker, and the controller"


async def test_a_host_that_cannot_be_resolved_is_said_in_words() -> None:
    async with Client("host.invalid:9092", timeout_s=0.1) as client:
        with pytest.raises(OSError) as caught:
            await client.refresh()
    assert "Unknown error" not in str(caught.value)
    assert "host.invalid" in str(caught.value)
