"""A topic that is deleted and created again under a reader's eyes, on a broker in this process."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.broker.clusters import Cluster, cluster, until

from odradek.client import (
    Admin,
    Client,
    Consumer,
    NewTopic,
    PartitionReader,
    Producer,
    TopicRecreated,
    check,
)
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topic_ids import NO_TOPIC_ID
from odradek.wire.topics import TopicPartition

TP = TopicPartition("t", 0)
OLD = [b"old 0", b"old 1", b"old 2"]
NEW = [b"new 0", b"new 1", b"new 2", b"new 3", b"new 4"]


async def create(client: Client, values: list[bytes]) -> None:
    check(await Admin(client).create_topics([NewTopic("t", 1, 1)]))
    async with Producer(client, idempotent=False) as producer:
        for value in values:
            await producer.send("t", value, partition=0)


async def recreate(made: Cluster, client: Client) -> None:
    check(await Admin(client).delete_topics(["t"]))
    await until(lambda: not made.brokers[1].controller.is_queued_for_deletion("t"))
    await create(client, NEW)


@asynccontextmanager
async def old_topic(
    directory: Path, protocol: str = "3.9"
) -> AsyncIterator[tuple[Cluster, Client, Client]]:
    """A broker with the old topic, a client that reads it, and one that changes it."""
    async with cluster(directory, inter_broker_protocol_version=protocol) as made:
        endpoint = made.brokers[1].endpoints[0]
        address = f"{endpoint.host}:{endpoint.port}"
        async with Client(address) as reading, Client(address) as changing:
            await create(changing, OLD)
            yield made, reading, changing


async def read(consumer: Consumer, count: int) -> list[tuple[int, bytes | None]]:
    records: list[tuple[int, bytes | None]] = []
    while len(records) < count:
        for batches in await consumer.poll(30):
            records += [(record.offset, record.value) for record in consumer.open(batches)]
    return records


async def test_a_topic_created_again_is_read_from_its_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with old_topic(tmp_path) as (made, client, admin), Consumer(client) as consumer:
        await consumer.assign({TP: 0})
        assert await read(consumer, len(OLD)) == list(enumerate(OLD))
        node = client.metadata.leader(TP)
        assert (await client.connection(node)).version_of(ApiKey.FETCH) == 17
        await recreate(made, admin)
        with caplog.at_level(logging.WARNING):
            assert await read(consumer, len(NEW)) == list(enumerate(NEW))
        assert "topic 't' was deleted and created again" in caplog.text
        assert consumer.lag() == {TP: 0}


async def test_a_reader_bound_to_the_old_topic_gets_an_error(tmp_path: Path) -> None:
    async with old_topic(tmp_path) as (made, client, admin):
        async with Consumer(client, follows_name=False) as consumer:
            await consumer.assign({TP: 1})
            await read(consumer, len(OLD) - 1)
            old_id = client.metadata.topics["t"].id
            await recreate(made, admin)
            with pytest.raises(TopicRecreated) as caught:
                await consumer.poll(30)
            assert caught.value.partition == TP
            # Another assignment is of the topic that is there then.
            await consumer.assign({TP: 4})
            assert await read(consumer, 1) == [(4, NEW[4])]
        # A range that was planned before, read after: offsets 0 to 3 exist in both.
        reader = PartitionReader(client)
        reader.bind(TP, old_id)
        with pytest.raises(TopicRecreated):
            _ = [batches async for batches in reader.batches(TP, 0, 3)]


async def test_a_broker_that_has_not_heard_of_an_id_is_asked_again(tmp_path: Path) -> None:
    async with old_topic(tmp_path) as (made, client, _), Consumer(client) as consumer:
        await consumer.assign({TP: 0})
        cache = made.brokers[1].cache
        topic_id = cache.topic_id("t")
        await client.refresh(["t"])
        # As if the controller had sent the topic to another broker, but not yet to this one.
        cache._forget_id("t")
        found = (await PartitionReader(client).fetch(1, {TP: 0}))[TP]
        assert isinstance(found, KafkaError) and found.error is ErrorCode.UNKNOWN_TOPIC_ID
        assert await consumer.poll(0) == []
        cache._remember_id("t", topic_id)
        assert await read(consumer, len(OLD)) == list(enumerate(OLD))


async def test_below_2_8_topics_are_read_by_name(tmp_path: Path) -> None:
    """Nothing tells the new topic from the old: reading goes on at the next offset."""
    async with old_topic(tmp_path, "2.6") as (made, client, admin), Consumer(client) as consumer:
        await consumer.assign({TP: 0})
        await read(consumer, len(OLD))
        assert client.metadata.topics["t"].id == NO_TOPIC_ID
        await recreate(made, admin)
        assert await read(consumer, 2) == [(3, NEW[3]), (4, NEW[4])]
