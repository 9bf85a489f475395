"""Topics as they are written to the store, while others write there too."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from odradek.broker.config import BrokerConfig
from odradek.broker.delayed_by_key import DelayedByKey
from odradek.broker.metadata_cache import MetadataCache
from odradek.broker.topics import Topics
from odradek.replica.delayed import TimeoutWheel
from odradek.store.cluster import ClusterStore
from odradek.store.memory import MemoryServer, MemoryStore
from odradek.store.payloads import BrokerRegistration, Endpoint, TopicNode
from odradek.wire.errors import ErrorCode, KafkaError


class BusyStore(ClusterStore):
    """Somebody else writes the topic after it was read here, as often as there is something."""

    meanwhile: list[TopicNode]

    async def brokers(self) -> dict[int, BrokerRegistration]:
        if self.meanwhile:
            await self.set_topic("t", self.meanwhile.pop(0))
        return await super().brokers()


@pytest.fixture
async def store() -> AsyncIterator[BusyStore]:
    store = BusyStore(MemoryStore(MemoryServer()))
    store.meanwhile = []
    await store.session.start()
    await store.prepare()
    await store.controller.elect(1)
    await store.register_broker(BrokerRegistration(1, -1, (Endpoint("h", 1, "PLAINTEXT"),)))
    await store.create_topic("t", of(3))
    yield store
    await store.session.close()


def of(count: int) -> TopicNode:
    return TopicNode(dict.fromkeys(range(count), (1,)))


async def extend(store: ClusterStore, count: int) -> tuple[int | ErrorCode, list[int]]:
    """How many partitions there then are, or the error; and what was permitted on the way."""
    waits = DelayedByKey[str](TimeoutWheel(asyncio.get_running_loop()))
    topics = Topics(BrokerConfig(), store, MetadataCache(), waits, random.Random(1))
    permits: list[int] = []
    try:
        return len(await topics.add_partitions("t", count, None, permit=permits.append)), permits
    except KafkaError as error:
        return error.error, permits


async def test_of_two_who_add_partitions_neither_takes_any_away(store: BusyStore) -> None:
    store.meanwhile = [of(5)]
    assert await extend(store, 7) == (7, [4])
    store.meanwhile = [of(9)]
    assert await extend(store, 8) == (ErrorCode.INVALID_PARTITIONS, [1])
    assert await store.topic("t") == of(9)


async def test_what_is_written_twice_is_written(store: BusyStore) -> None:
    store.meanwhile = [of(5)]
    assert await extend(store, 5) == (5, [2])


async def test_a_reassignment_that_has_just_begun_is_not_overwritten(store: BusyStore) -> None:
    moving = TopicNode(of(3).partitions, adding={0: (2,)})
    store.meanwhile = [moving]
    assert (await extend(store, 4))[0] is ErrorCode.REASSIGNMENT_IN_PROGRESS
    assert await store.topic("t") == moving


async def test_a_topic_that_keeps_changing_is_given_up(store: BusyStore) -> None:
    store.meanwhile = [of(3)] * 100
    assert (await extend(store, 4))[0] is ErrorCode.REQUEST_TIMED_OUT
    assert await store.topic("t") == of(3)
