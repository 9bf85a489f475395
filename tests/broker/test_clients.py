"""Today's clients, unmodified: each writes 100,000 records in every codec and reads them back."""

import asyncio
import shutil
import subprocess
from collections.abc import Iterable

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.admin
import kafka.codec
import pytest
from tests.broker.processes import BrokerProcess

from odradek.client import Blocking
from odradek.client.quotas import QuotaEntity

pytestmark = [pytest.mark.process, pytest.mark.slow]

RECORDS = 100_000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
PARTITIONS = 3


def record(number: int) -> tuple[bytes, bytes]:
    """A key and a value that compress somewhat and are all different."""
    return str(number).encode(), b"value-%d-" % number + b"0123456789" * (number % 7)


# Partition, offset, key, value.
Found = tuple[int | None, int | None, bytes | None, bytes | None]


def assert_all_there(found: Iterable[Found]) -> None:
    """(partition, offset, key, value): each record once, each partition in order."""
    by_key: dict[bytes, bytes] = {}
    last: dict[int, tuple[int, int]] = {}
    for partition, offset, key, value in found:
        assert partition is not None and offset is not None
        assert key is not None and value is not None
        assert key not in by_key, f"{key!r} came twice"
        by_key[key] = value
        number = int(key)
        if partition in last:
            assert offset == last[partition][0] + 1
            assert number > last[partition][1], "out of order"
        last[partition] = offset, number
    assert by_key == dict(record(number) for number in range(RECORDS))


def test_librdkafka_learns_that_it_is_throttled(broker: BrokerProcess) -> None:
    servers: dict[str, str | int | float | bool] = {"bootstrap.servers": broker.bootstrap}
    admin = confluent_kafka.admin.AdminClient(servers)
    admin.create_topics([confluent_kafka.admin.NewTopic("throttled", 1, 1)])["throttled"].result(10)
    throttled: list[float] = []
    producer = confluent_kafka.Producer(
        {
            **servers,
            "client.id": "eager",
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
    )
    entity = QuotaEntity(client_id="eager")
    with Blocking(broker.bootstrap) as cluster:
        cluster.run(cluster.quotas.alter(entity, {"producer_byte_rate": 100_000.0}))
        while not throttled:  # brokers learn of the quota a moment after it is set
            producer.produce("throttled", b"x" * 500_000)
            producer.flush(30)
        cluster.run(cluster.quotas.alter(entity, {"producer_byte_rate": None}))
    assert throttled[0] > 0


@pytest.mark.parametrize("codec", CODECS)
def test_confluent_kafka(broker: BrokerProcess, codec: str) -> None:
    topic = f"confluent-{codec}"
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([confluent_kafka.admin.NewTopic(topic, PARTITIONS, 1)])[topic].result(10)
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "compression.codec": codec,
            "enable.idempotence": True,
            "linger.ms": 5,
            "queue.buffering.max.messages": RECORDS,
        }
    )
    failures: list[object] = []
    for number in range(RECORDS):
        key, value = record(number)
        producer.produce(
            topic,
            value,
            key,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(60) == 0
    assert failures == []
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    found: list[Found] = []
    while len(found) < RECORDS:
        messages = consumer.consume(10_000, 10.0)
        assert messages, f"only {len(found)} records came"
        for message in messages:
            assert message.error() is None
            found.append((message.partition(), message.offset(), message.key(), message.value()))
    consumer.close()
    assert_all_there(found)


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_python(broker: BrokerProcess, codec: str) -> None:
    if codec != "none" and not getattr(kafka.codec, f"has_{codec}")():
        pytest.skip(f"kafka-python finds no library for {codec}")
    topic = f"kafka-python-{codec}"
    admin = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics([kafka.admin.NewTopic(topic, PARTITIONS, 1)])
    admin.close()
    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.bootstrap,
        compression_type=None if codec == "none" else codec,
        linger_ms=20,
        batch_size=200_000,
        max_block_ms=60_000,
    )
    futures = []
    for number in range(RECORDS):
        key, value = record(number)
        futures.append(producer.send(topic, value, key, partition=number % PARTITIONS))
    producer.flush(60)
    assert all(future.succeeded() for future in futures)
    producer.close()
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=10_000,
    )
    consumer.assign([kafka.TopicPartition(topic, partition) for partition in range(PARTITIONS)])
    found = []
    for message in consumer:
        found.append((message.partition, message.offset, message.key, message.value))
        if len(found) == RECORDS:
            break
    consumer.close()
    assert_all_there(found)


@pytest.mark.parametrize("codec", CODECS)
async def test_aiokafka(broker: BrokerProcess, codec: str) -> None:
    topic = f"aiokafka-{codec}"
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=True,
        linger_ms=10,
        max_batch_size=200_000,
    )
    await producer.start()
    pending = []
    for number in range(RECORDS):
        key, value = record(number)
        pending.append(await producer.send(topic, value, key, partition=0))
    await asyncio.gather(*pending)
    await producer.stop()
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
    )
    await consumer.start()
    consumer.assign([aiokafka.TopicPartition(topic, 0)])
    found: list[Found] = []
    while len(found) < RECORDS:
        batches = await consumer.getmany(timeout_ms=10_000)
        assert batches, f"only {len(found)} records came"
        for messages in batches.values():
            found.extend((m.partition, m.offset, m.key, m.value) for m in messages)
    await consumer.stop()
    assert_all_there(found)


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat(broker: BrokerProcess) -> None:
    lines = "\n".join(f"{number}:value-{number}" for number in range(1000))
    base = ["kcat", "-b", broker.bootstrap, "-t", "kcat", "-K:"]
    subprocess.run([*base, "-P", "-p", "0"], input=lines, text=True, check=True, timeout=60)
    read = subprocess.run(
        [*base, "-C", "-e", "-q"], capture_output=True, text=True, check=True, timeout=60
    )
    assert read.stdout.split() == lines.split()


def test_the_broker_stays_small(broker: BrokerProcess) -> None:
    """After everything above: 1.5 million records in and out."""
    assert broker.memory_mb() < 100
