"""Following partitions of which some cannot be read, in virtual time: the others do not wait."""

import asyncio
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

import pytest

from odradek.client import Client, Consumer, PartitionReader
from odradek.client.metadata import Metadata
from odradek.client.reader import FROM_LEADER, LEADER_ONLY_S
from odradek.sim.loop import SimLoop
from odradek.wire.batch import set_offset_and_epoch
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from odradek.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.wire.records import Record, encode_batch
from odradek.wire.schema import Message
from odradek.wire.topics import TopicPartition

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
TIMEOUT_S = 30.0
BROKERS = (1, 2)


class Played(Client):
    """A cluster of two brokers, one partition each, that are there or not."""

    def __init__(self) -> None:
        super().__init__("h:1", timeout_s=TIMEOUT_S, rack="r", rng=Random(1))
        self.leaders_now = {0: 1, 1: 2}
        self.topic_error = ErrorCode.NONE
        self.dead: set[int] = set()
        # The replica that leaders prefer for clients that name a rack; it has no records.
        self.preferred = -1
        self.behind: set[int] = set()
        self.fetch_errors: dict[int, ErrorCode] = {}
        # Until when a quota makes the brokers answer without a word of any partition.
        self.withheld_until = 0.0
        self.fetched: list[int] = []
        self.refreshed = 0

    async def refresh(self, topics: Iterable[str] | None = ()) -> Metadata:
        self.refreshed += 1
        await asyncio.sleep(0.001)
        partitions = [
            MetadataResponsePartition(partition_index=index, leader_id=leader)
            for index, leader in self.leaders_now.items()
        ]
        topic = MetadataResponseTopic(name="t", error_code=self.topic_error, partitions=partitions)
        brokers = [MetadataResponseBroker(node_id=node, host="h", port=node) for node in BROKERS]
        self.metadata.update(MetadataResponse(brokers=brokers, topics=[topic]), whole=False)
        return self.metadata

    async def ask_leaders(self, wanted: Mapping[TopicPartition, Any], *_: Any, **__: Any) -> Any:
        if not wanted:
            return {}
        raise ConnectionError("no broker has the start of the log")

    async def ask(
        self,
        node: int,
        message: Message,
        *,
        timeout: float | None = None,
        version_max: int | None = None,
    ) -> Any:
        """One record at each offset, for ever; a second goes by for each."""
        assert isinstance(message, FetchRequest)
        self.fetched.append(node)
        if node in self.dead:
            raise ConnectionError(f"broker {node} is gone")
        await asyncio.sleep(1.0)
        if asyncio.get_running_loop().time() < self.withheld_until:
            return FetchResponse(throttle_time_ms=1000)
        data = []
        for wanted in message.topics[0].partitions:
            answer = PartitionData(partition_index=wanted.partition)
            data.append(answer)
            if message.rack_id and node != self.preferred >= 0:
                answer.preferred_read_replica = self.preferred
                continue
            if node in self.behind:
                answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
                continue
            if error := self.fetch_errors.get(wanted.partition):
                answer.error_code = error
                continue
            batch = encode_batch([Record(-1, 0, None, b"v")])
            set_offset_and_epoch(batch, 0, wanted.fetch_offset, 0)
            answer.records = batch
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=data)])


async def read_for(consumer: Consumer, seconds: float) -> set[TopicPartition]:
    """Which partitions something came from in this time."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    seen = set()
    while (now := loop.time()) < until:
        seen |= {batches.partition for batches in await consumer.poll(0.4)}
        assert loop.time() - now <= 0.4 + 1e-6, "a poll keeps to its time"
    return seen


@pytest.mark.parametrize("leader_is_gone", [True, False])
def test_a_partition_that_cannot_be_read_holds_up_no_other(
    loop: SimLoop, leader_is_gone: bool
) -> None:
    async def story() -> None:
        client = Played()
        if leader_is_gone:
            client.leaders_now[1] = -1
        else:
            client.dead.add(2)
        async with Consumer(client) as consumer:
            await consumer.assign({FIRST: 0, SECOND: 0})
            assert await read_for(consumer, 10 * TIMEOUT_S) == {FIRST}
            assert consumer.positions[FIRST] >= 10 * TIMEOUT_S - 2
            assert 100 < client.refreshed < 500, "looked for again and again, with pauses"
            assert client.fetched.count(2) < 500
            client.leaders_now[1] = 2
            client.dead.clear()
            assert await read_for(consumer, 4) == {FIRST, SECOND}
            refreshed = client.refreshed
            await read_for(consumer, 10)
            assert client.refreshed == refreshed, "there is nothing to look for"

    loop.run_until_complete(story())


@pytest.mark.parametrize(
    ("error", "leader", "within_s", "says"),
    [
        (ErrorCode.NONE, -1, TIMEOUT_S, "has no leader at present"),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 1, 3.0, "does not exist"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 1, 0.0, "cannot be described"),
    ],
)
def test_what_is_wrong_with_all_is_raised_in_time(
    loop: SimLoop, error: ErrorCode, leader: int, within_s: float, says: str
) -> None:
    async def story() -> None:
        client = Played()
        client.leaders_now = {0: leader, 1: leader}
        client.topic_error = error
        async with Consumer(client) as consumer:
            await consumer.assign({FIRST: 0, SECOND: 0})
            with pytest.raises(KafkaError, match=says):
                await read_for(consumer, 10 * TIMEOUT_S)
            assert within_s <= loop.time() <= within_s + 1.5

    loop.run_until_complete(story())


def test_what_came_with_a_failure_is_handed_out(loop: SimLoop) -> None:
    """Both partitions in one answer: where the one goes on cannot be found out, the other came."""

    async def story() -> None:
        client = Played()
        client.leaders_now = {0: 1, 1: 1}
        client.fetch_errors[1] = ErrorCode.OFFSET_OUT_OF_RANGE
        async with Consumer(client) as consumer:
            await consumer.assign({FIRST: 0, SECOND: 5})
            for offset in range(10):
                (batches,) = await consumer.poll(5)
                assert (batches.partition, batches.start) == (FIRST, offset)

    loop.run_until_complete(story())


@pytest.mark.parametrize("is_dead", [True, False])
def test_a_preferred_replica_that_does_not_help_is_left_for_the_leader(
    loop: SimLoop, is_dead: bool
) -> None:
    async def story() -> None:
        client = Played()
        client.leaders_now, client.preferred = {0: 1, 1: 1}, 2
        useless = client.dead if is_dead else client.behind
        useless.add(2)
        async with Consumer(client) as consumer:
            await consumer.assign({FIRST: 100, SECOND: 100})
            assert await read_for(consumer, 10 * LEADER_ONLY_S) == {FIRST, SECOND}
            assert all(
                position > 100 + 7 * LEADER_ONLY_S for position in consumer.positions.values()
            )
            assert 5 <= client.fetched.count(2) <= 25, "tried again now and then"
            useless.clear()
            await read_for(consumer, 2 * LEADER_ONLY_S)
            client.fetched.clear()
            await read_for(consumer, 2 * LEADER_ONLY_S)
            assert set(client.fetched) == {2}
        useless.add(2)
        read = [batches.start async for batches in PartitionReader(client).batches(FIRST, 5, 8)]
        assert read == [5, 6, 7], "a range too is the leader's to know"

    loop.run_until_complete(story())


def test_a_client_over_its_quota_reads_on_when_it_may(loop: SimLoop) -> None:
    async def story() -> None:
        client = Played()
        client.withheld_until = TIMEOUT_S / 2
        async with Consumer(client) as consumer:
            await consumer.assign({FIRST: 0})
            assert await read_for(consumer, TIMEOUT_S) == {FIRST}
        reader = PartitionReader(client)
        client.withheld_until = loop.time() + TIMEOUT_S / 2
        assert [batches.start async for batches in reader.batches(FIRST, 5, 8)] == [5, 6, 7]
        client.withheld_until = loop.time() + 2 * TIMEOUT_S
        with pytest.raises(KafkaError) as raised:
            await anext(reader.batches(FIRST, 5, 8))
        assert raised.value.error is ErrorCode.THROTTLING_QUOTA_EXCEEDED

    loop.run_until_complete(story())


def test_a_preferred_replica_that_is_no_help_is_given_up_for_a_while() -> None:
    state = FROM_LEADER.sent_to(3)
    assert (state.preferred, state.is_leader_only(0.0)) == (3, False)
    state = state.given_up(now_s=5.0)
    assert state.preferred is None
    assert state.is_leader_only(5.0 + LEADER_ONLY_S - 0.1)
    assert not state.is_leader_only(5.0 + LEADER_ONLY_S)
    assert state.sent_to(4).sent_back() == state, "referred elsewhere: the time stays"
