"""Against an independent server: the mock cluster inside librdkafka, on real sockets.

It speaks other versions than we do (ApiVersions up to v2, Fetch up to v16) and knows nothing of
our broker, so what works here works by the protocol.
"""

import confluent_kafka
import pytest

from odradek.client import (
    EARLIEST,
    LATEST,
    Admin,
    Client,
    Consumer,
    PartitionReader,
    Producer,
    offsets_at,
    partition_for,
)
from odradek.client.consumer import ConsumerRecord
from odradek.wire.batch import scan
from odradek.wire.compression import Codec
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.records import Record, encode_batch
from odradek.wire.topics import TopicPartition

PARTITIONS = 4


@pytest.fixture(scope="module")
def theirs() -> confluent_kafka.Producer:
    """A producer of librdkafka, and with it three brokers that live as long as it does."""
    return confluent_kafka.Producer(
        {"test.mock.num.brokers": 3, "bootstrap.servers": "mock", "log_level": 0, "linger.ms": 0}
    )


@pytest.fixture(scope="module")
def bootstrap(theirs: confluent_kafka.Producer) -> str:
    brokers = theirs.list_topics(timeout=60).brokers.values()
    return ",".join(f"{broker.host}:{broker.port}" for broker in brokers)


@pytest.fixture
def topic(theirs: confluent_kafka.Producer, request: pytest.FixtureRequest) -> str:
    """The mock makes a topic with four partitions when it is first asked about it."""
    name = str(request.node.name).replace("[", "-").replace("]", "")
    theirs.list_topics(name, timeout=60)
    return name


async def test_what_the_cluster_is(bootstrap: str, topic: str) -> None:
    async with Client(bootstrap) as client:
        description = await Admin(client).describe_cluster()
        assert [node.id for node in description.nodes] == [1, 2, 3]
        assert topic in await Admin(client).list_topics()
        described = await Admin(client).describe_topics([topic])
        assert sorted(described[topic].partitions) == list(range(PARTITIONS))
        statistics = client.statistics()
        assert statistics["connections"] == 1 and statistics["refreshes"] == 3


async def test_a_topic_that_is_not_there(bootstrap: str) -> None:
    async with Client(bootstrap, missing_topic_s=0.1) as client:
        with pytest.raises(KafkaError, match="topic 'nowhere' does not exist") as caught:
            await client.leader(TopicPartition("nowhere", 0))
        assert caught.value.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_partition_that_is_not_there(bootstrap: str, topic: str) -> None:
    async with Client(bootstrap, missing_topic_s=0.1) as client:
        with pytest.raises(KafkaError, match="has no partition 99; it has 4"):
            await client.leader(TopicPartition(topic, 99))


def read_back(bootstrap: str, topic: str, count: int) -> list[confluent_kafka.Message]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.assign(
        [confluent_kafka.TopicPartition(topic, index, 0) for index in range(PARTITIONS)]
    )
    messages: list[confluent_kafka.Message] = []
    while len(messages) < count:
        batch = consumer.consume(count, timeout=60)
        assert batch, f"only {len(messages)} of {count} came"
        messages += batch
    consumer.close()
    return messages


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
async def test_what_we_send_they_read(bootstrap: str, topic: str, codec: Codec) -> None:
    async with Client(bootstrap) as client, Producer(client, codec=codec) as producer:
        deliveries = [
            await producer.send(
                topic,
                b"value %d" % number,
                key=b"key %d" % number,
                headers=(("h", b"x"), ("none", None)),
                timestamp_ms=1_000 + number,
            )
            for number in range(100)
        ]
        await producer.flush()
        placed = [await delivery for delivery in deliveries]
        assert all(delivery.done() for delivery in deliveries)
    messages = {message.key(): message for message in read_back(bootstrap, topic, 100)}
    for number, place in enumerate(placed):
        message = messages[b"key %d" % number]
        assert message.value() == b"value %d" % number
        assert message.partition() == partition_for(b"key %d" % number, PARTITIONS)
        assert (message.partition(), message.offset()) == (place.partition.partition, place.offset)
        assert message.timestamp() == (confluent_kafka.TIMESTAMP_CREATE_TIME, 1_000 + number)
        assert message.headers() == [("h", b"x"), ("none", None)]


async def test_keyless_records_stay_together_until_a_batch_is_full(
    bootstrap: str, topic: str
) -> None:
    async with Client(bootstrap) as client, Producer(client, linger_s=10) as producer:
        deliveries = [await producer.send(topic, b"x") for _ in range(50)]
        await producer.flush()
        assert len({(await delivery).partition for delivery in deliveries}) == 1
        assert producer.statistics()["batches"] == 1


async def test_one_producer_id_and_sequences_without_a_gap(bootstrap: str, topic: str) -> None:
    partition = TopicPartition(topic, 1)
    async with Client(bootstrap) as client:
        async with Producer(client, linger_s=0) as producer:
            for _ in range(3):
                for _ in range(2):
                    await producer.send(topic, b"x", partition=1)
                await producer.flush()
            raw = encode_batch([Record(-1, 5, None, b"raw"), Record(-1, 5, None, b"raw")])
            await (await producer.send_batch(partition, raw))
        end = (await offsets_at(client, {partition: LATEST}))[partition].offset
        headers = [
            header
            async for batches in PartitionReader(client).batches(partition, 0, end)
            for header in batches.headers()
        ]
    assert sum(header.record_count for header in headers) == 8
    assert len({header.producer_id for header in headers}) == 1
    assert headers[0].producer_id > 0
    expected = 0
    for header in headers:
        assert header.base_sequence == expected
        expected += header.record_count


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_what_they_send_we_read(bootstrap: str, topic: str, codec: str) -> None:
    sender = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20}
    )
    for number in range(200):
        sender.produce(topic, b"value %d" % number, partition=2, headers={"h": b"1"})
    sender.flush(10)
    partition = TopicPartition(topic, 2)
    async with Client(bootstrap) as client:
        found = await offsets_at(client, {partition: EARLIEST})
        assert found[partition].offset == 0
        records = [
            record
            async for batches in PartitionReader(client).batches(partition, 0, 200)
            for record in batches.open()
        ]
    assert [record.value for record in records] == [b"value %d" % n for n in range(200)]
    assert [record.offset for record in records] == list(range(200))
    assert records[0].headers == (("h", b"1"),)


async def test_a_range_of_offsets_in_small_fetches(bootstrap: str, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    async with Client(bootstrap) as client:
        async with Producer(client, linger_s=0, batch_bytes=200) as producer:
            for number in range(100):
                await producer.send(topic, b"%d" % number, partition=0)
        reader = PartitionReader(client, fetch_bytes=300)
        pieces = [piece async for piece in reader.batches(partition, 17, 63)]
    assert len(pieces) > 2
    opened = [record for piece in pieces for record in piece.open()]
    assert [int(record.value or b"") for record in opened if record.offset < 63] == list(
        range(17, 63)
    )
    # Whole batches only, none that lies outside.
    assert all(header.base_offset < 63 for piece in pieces for header in scan(piece.records))
    assert all(header.next_offset > 17 for piece in pieces for header in scan(piece.records))
    assert pieces[-1].next_offset >= 63


async def test_nothing_is_asked_for_an_empty_range(bootstrap: str, topic: str) -> None:
    async with Client(bootstrap) as client:
        assert [
            b async for b in PartitionReader(client).batches(TopicPartition(topic, 0), 5, 5)
        ] == []
        assert client.statistics()["connections_opened"] == 0


async def test_offsets_beyond_the_log_are_an_error(bootstrap: str, topic: str) -> None:
    async with Client(bootstrap) as client:
        batches = PartitionReader(client, wait_ms=20).batches(
            TopicPartition(topic, 0), 1_000, 1_001
        )
        with pytest.raises(KafkaError) as caught:
            await anext(batches)
        assert caught.value.error is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_following_partitions(bootstrap: str, topic: str) -> None:
    partitions = {TopicPartition(topic, index): EARLIEST for index in range(PARTITIONS)}
    async with (
        Client(bootstrap) as client,
        Producer(client) as producer,
        Consumer(client, wait_ms=50) as consumer,
    ):
        await consumer.assign(partitions)
        assert await consumer.poll(0.1) == []
        received: list[ConsumerRecord] = []
        for round_number in range(3):
            for number in range(40):
                await producer.send(topic, b"%d" % number, key=b"%d-%d" % (round_number, number))
            await producer.flush()
            while len(received) < 40 * (round_number + 1):
                for batches in await consumer.poll(10):
                    received += consumer.open(batches)
        assert len({record.key for record in received}) == 120
        assert all(lag == 0 for lag in consumer.lag().values())
        for partition in partitions:
            offsets = [record.offset for record in received if record.partition == partition]
            assert offsets == list(range(len(offsets)))


async def test_a_position_outside_the_log(bootstrap: str, topic: str) -> None:
    partition = TopicPartition(topic, 3)
    async with Client(bootstrap) as client:
        async with Producer(client) as producer:
            await producer.send(topic, b"only", partition=3)
        async with Consumer(client, wait_ms=20) as consumer:
            await consumer.assign({partition: 50})
            records = consumer.records()
            assert (await anext(records)).value == b"only"
            await records.aclose()
        async with Consumer(client, wait_ms=20, out_of_range=None) as strict:
            await strict.assign({partition: 50})
            with pytest.raises(KafkaError) as caught:
                await strict.poll(10)
            assert caught.value.error is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_without_acknowledgement(bootstrap: str, topic: str) -> None:
    async with Client(bootstrap) as client:
        async with Producer(client, acks=0) as producer:
            placed = await (await producer.send(topic, b"x", partition=0))
            assert placed.offset == -1
        with pytest.raises(ValueError, match="acks=all"):
            Producer(client, acks=1, idempotent=True)


async def test_what_cannot_be_delivered_is_reported(bootstrap: str) -> None:
    async with Client(bootstrap) as client:
        producer = Producer(client, delivery_timeout_s=0.2)
        delivery = await producer.send("nowhere", b"x", partition=0)
        with pytest.raises(KafkaError):
            await producer.flush()
        with pytest.raises(KafkaError):
            await delivery
        await producer.flush()  # reported once
        await producer.close()


async def test_closing_a_producer_fails_what_waits(bootstrap: str, topic: str) -> None:
    async with Client(bootstrap) as client:
        producer = Producer(client, linger_s=1_000)
        delivery = await producer.send(topic, b"x", partition=0)
        await producer.close()
        with pytest.raises(ConnectionError, match="the producer was closed"):
            await delivery


async def test_a_full_buffer_holds_the_sender_up(bootstrap: str, topic: str) -> None:
    async with (
        Client(bootstrap) as client,
        Producer(client, buffer_bytes=2_000, linger_s=0) as producer,
    ):
        for _ in range(50):
            await producer.send(topic, b"v" * 500, partition=0)
            assert producer.statistics()["buffered_bytes"] <= 2_100
