"""librdkafka's transactional producer and read_committed consumers, also while brokers die."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek import Cluster

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

WAIT_S = 60.0
PARTITIONS = 4


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    config = {
        "transaction.state.log.num.partitions": 4,
        "offsets.topic.num.partitions": 4,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    }
    with Cluster(brokers=3, config=config) as running:
        yield running


def create(cluster: Cluster, name: str, partitions: int = PARTITIONS, **config: str) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    config = {key.replace("_", "."): value for key, value in config.items()}
    new = NewTopic(name, partitions, 3, config={"min.insync.replicas": "2", **config})
    admin.create_topics([new])[name].result(WAIT_S)
    return name


def producer(cluster: Cluster, transactional_id: str, **more: Any) -> Producer:
    made = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "transactional.id": transactional_id,
            "linger.ms": 0,
            **more,
        }
    )
    made.init_transactions(WAIT_S)
    return made


def write(made: Producer, topic: str, values: range, partitions: int = PARTITIONS) -> None:
    for value in values:
        made.produce(topic, str(value), partition=value % partitions)


def read(
    cluster: Cluster, topic: str, count: int, isolation: str = "read_committed", **more: Any
) -> list[int]:
    """The first so many values; fails if they do not come."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": f"reader-of-{topic}",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            **more,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, n, 0) for n in range(PARTITIONS)])
        values: list[int] = []
        while len(values) < count:
            messages = consumer.consume(count - len(values), WAIT_S)
            assert messages, f"only {len(values)} of {count} records came"
            for message in messages:
                assert message.error() is None, message.error()
                values.append(int(message.value() or b""))
        return values
    finally:
        consumer.close()


def test_what_is_aborted_is_never_read(cluster: Cluster) -> None:
    topic = create(cluster, "aborted")
    made = producer(cluster, "aborted")
    for number in range(10):
        made.begin_transaction()
        write(made, topic, range(number * 10, number * 10 + 10))
        if number % 2:
            made.abort_transaction(WAIT_S)
        else:
            made.commit_transaction(WAIT_S)
    wanted = [value for number in range(0, 10, 2) for value in range(number * 10, number * 10 + 10)]
    assert sorted(read(cluster, topic, len(wanted))) == wanted


# Reads a partition from its beginning: so many values, then something happens, then so many more.
Read = Callable[[str, str, int, Callable[[], None], int], list[int]]


def with_confluent(
    servers: str, topic: str, count: int, between: Callable[[], None], more: int
) -> list[int]:
    settings = {"bootstrap.servers": servers, "group.id": topic, "enable.auto.commit": False}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[int] = []

    def read(end: int) -> None:
        while len(values) < end:
            (message,) = consumer.consume(1, WAIT_S)
            assert message.error() is None, message.error()
            values.append(int(message.value() or b""))

    try:
        read(count)
        between()
        read(count + more)
    finally:
        consumer.close()
    return values


def with_kafka_python(
    servers: str, topic: str, count: int, between: Callable[[], None], more: int
) -> list[int]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=servers.split(","),
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(WAIT_S * 1000),
    )
    consumer.assign([kafka.TopicPartition(topic, 0)])
    values: list[int] = []
    try:
        for end in (count, count + more):
            while len(values) < end:
                values.append(int(next(consumer).value))
            if end == count:
                between()
    finally:
        consumer.close()
    return values


def with_aiokafka(
    servers: str, topic: str, count: int, between: Callable[[], None], more: int
) -> list[int]:
    async def read() -> list[int]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        await consumer.start()
        try:
            consumer.assign([aiokafka.TopicPartition(topic, 0)])
            async with asyncio.timeout(WAIT_S):
                values = [int((await consumer.getone()).value) for _ in range(count)]
                await asyncio.to_thread(between)
                return values + [int((await consumer.getone()).value) for _ in range(more)]
        finally:
            await consumer.stop()

    return asyncio.run(read())


@pytest.mark.parametrize("read_with", [with_confluent, with_kafka_python, with_aiokafka])
def test_every_client_reads_what_is_committed_and_nothing_undecided(
    cluster: Cluster, read_with: Read
) -> None:
    name = read_with.__name__
    topic = create(cluster, name, partitions=1, segment_bytes="1000")
    made, last = producer(cluster, name), producer(cluster, f"{name}-last")
    for number in range(20):
        made.begin_transaction()
        write(made, topic, range(number * 10, number * 10 + 10), partitions=1)
        if number % 2:
            made.abort_transaction(WAIT_S)
        else:
            made.commit_transaction(WAIT_S)
    made.begin_transaction()
    write(made, topic, range(200, 210), partitions=1)
    made.flush(WAIT_S)
    last.begin_transaction()
    write(last, topic, range(210, 211), partitions=1)
    last.commit_transaction(WAIT_S)
    wanted = [value for value in range(200) if value // 10 % 2 == 0]

    def abort() -> None:
        made.abort_transaction(WAIT_S)

    found = read_with(cluster.bootstrap_servers, topic, len(wanted), abort, 1)
    assert found == [*wanted, 210]


def test_a_successor_fences_the_first_producer(cluster: Cluster) -> None:
    topic = create(cluster, "fenced")
    first = producer(cluster, "fenced")
    first.begin_transaction()
    write(first, topic, range(8))
    first.flush(WAIT_S)
    second = producer(cluster, "fenced")
    with pytest.raises(KafkaException) as refused:
        first.commit_transaction(WAIT_S)
    assert refused.value.args[0].fatal()
    second.begin_transaction()
    write(second, topic, range(8, 16))
    second.commit_transaction(WAIT_S)
    assert sorted(read(cluster, topic, 8)) == list(range(8, 16))


def test_a_transaction_that_takes_too_long_is_aborted(cluster: Cluster) -> None:
    topic = create(cluster, "timeout")
    slow = producer(cluster, "timeout", **{"transaction.timeout.ms": 1000})
    slow.begin_transaction()
    write(slow, topic, range(4))
    slow.flush(WAIT_S)
    other = producer(cluster, "in-time")
    other.begin_transaction()
    write(other, topic, range(4, 8))
    other.commit_transaction(WAIT_S)
    # These stand behind the open transaction: they can be read once it has been aborted.
    assert sorted(read(cluster, topic, 4)) == list(range(4, 8))
    with pytest.raises(KafkaException):
        slow.commit_transaction(WAIT_S)


def test_offsets_are_committed_with_the_records(cluster: Cluster) -> None:
    """Read, process, write: every second transaction is aborted and done again."""
    source, target = create(cluster, "source"), create(cluster, "target")
    plain = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    write(plain, source, range(200))
    plain.flush(WAIT_S)
    made = producer(cluster, "copy")
    attempts = copied = 0
    while copied < 200:
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "group.id": "copy",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe([source])
        messages: list[Any] = []
        while not messages:
            messages = consumer.consume(20, 1.0)
        made.begin_transaction()
        for message in messages:
            made.produce(target, message.value(), partition=message.partition())
        made.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), WAIT_S
        )
        attempts += 1
        if attempts % 2:
            made.abort_transaction(WAIT_S)
        else:
            made.commit_transaction(WAIT_S)
            copied += len(messages)
        consumer.close()
    assert sorted(read(cluster, target, 200)) == list(range(200))


def leader_of(cluster: Cluster, topic: str, partition: int) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    found = admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions[partition]
    return int(found.leader)


@pytest.mark.parametrize("role", ["coordinator", "leader"])
def test_a_broker_is_killed_in_the_middle_of_a_transaction(cluster: Cluster, role: str) -> None:
    topic = create(cluster, f"killed-{role}")
    made = producer(cluster, f"killed-{role}")
    wanted: list[int] = []
    for number in range(6):
        values = range(number * 20, number * 20 + 20)
        victim = None
        for attempt in range(20):
            try:
                made.begin_transaction()
                write(made, topic, values)
                made.flush(WAIT_S)
                if number == 2 and attempt == 0:
                    name = "__transaction_state" if role == "coordinator" else topic
                    victim = leader_of(cluster, name, 0)
                    cluster.kill(victim)
                made.commit_transaction(WAIT_S)
                wanted += values
                break
            except KafkaException as error:
                failure: KafkaError = error.args[0]
                assert failure.txn_requires_abort(), failure
                made.abort_transaction(WAIT_S)
        else:
            pytest.fail("no transaction could be committed")
        if victim is not None:
            cluster.start(victim)
    assert sorted(read(cluster, topic, len(wanted))) == wanted
