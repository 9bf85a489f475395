"""Groups on whole brokers, in the simulated world: failover of a coordinator, deleted topics."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.authorization import Permissions
from odradek.broker.handlers import describe_groups, offset_fetch
from odradek.client.admin import Admin
from odradek.client.client import Client
from odradek.client.groups import Groups
from odradek.client.values import NewTopic
from odradek.coordinator.replicated import READ_BYTES
from odradek.coordinator.state_topic import partition_for
from odradek.coordinator.storage import OFFSETS_TOPIC
from odradek.security.principal import ANONYMOUS
from odradek.sim.world import World
from odradek.wire.batch import scan
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from odradek.wire.records import Record, encode_batch
from odradek.wire.topics import TopicPartition

T0, U0 = TopicPartition("t", 0), TopicPartition("u", 0)
CONFIG = {
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
}


def run(story: Any) -> None:
    world = World(5, 3, CONFIG)

    async def whole(world: World) -> None:
        async def client_side() -> None:
            async with Client(world.bootstrap, rng=world.dice("client")) as client:
                await client.refresh()
                while len(client.metadata.nodes) < 3:
                    await asyncio.sleep(0.1)
                    await client.refresh()
                await Admin(client).create_topics([NewTopic("t", 1, 3), NewTopic("u", 1, 3)])
                await story(world, client)

        await world.process("client").run(client_side())

    world.run(whole)
    assert world.loop.failures == []


async def coordinator_of(client: Client, world: World, group: str) -> int:
    broker = next(iter(world.brokers()))
    partition = broker.groups.storage.partition_for(group)
    metadata = await client.refresh([OFFSETS_TOPIC])
    return metadata.leader(TopicPartition(OFFSETS_TOPIC, partition))


def test_committed_offsets_outlive_their_coordinator() -> None:
    async def story(world: World, client: Client) -> None:
        groups = Groups(client)
        for number in range(1, 6):
            await groups.alter_offsets("g", {T0: number, U0: 10 * number})
            victim = await coordinator_of(client, world, "g")
            world.hosts[victim].kill()
            found = await groups.offsets("g")
            assert {tp: at.offset for tp, at in found.items()} == {T0: number, U0: 10 * number}
            world.hosts[victim].start()
            await asyncio.sleep(20)

    run(story)


def test_offsets_of_a_deleted_topic_are_removed() -> None:
    async def story(world: World, client: Client) -> None:
        groups = Groups(client)
        await groups.alter_offsets("g", {T0: 1, U0: 2})
        await Admin(client).delete_topics(["t"])
        await asyncio.sleep(5)
        assert (await groups.offsets("g")).keys() == {U0}

    run(story)


def test_a_coordinator_whose_partition_is_taken_away_answers_for_it_no_longer() -> None:
    async def story(world: World, client: Client) -> None:
        groups = Groups(client)
        await groups.alter_offsets("g", {T0: 1})
        old = await coordinator_of(client, world, "g")
        others = [broker for broker in world.hosts if broker != old]
        broker = world.hosts[old].broker
        assert broker is not None
        partition = broker.groups.storage.partition_for("g")
        await Admin(client).alter_reassignments({TopicPartition(OFFSETS_TOPIC, partition): others})
        await asyncio.sleep(10)
        assert partition not in broker.groups.storage.owned
        assert (await groups.offsets("g"))[T0].offset == 1

    run(story)


def test_a_topic_that_does_not_exist_cannot_be_committed() -> None:
    async def story(world: World, client: Client) -> None:
        with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await Groups(client).alter_offsets("g", {TopicPartition("none", 0): 1})
        assert all(broker.groups.storage.get("g") is None for broker in world.brokers())

    run(story)


def test_a_group_named_twice_is_described_once() -> None:
    async def story(world: World, client: Client) -> None:
        await Groups(client).alter_offsets("g", {T0: 4, U0: 5})
        coordinator = await coordinator_of(client, world, "g")
        broker = next(each for each in world.brokers() if each.id == coordinator)
        context: Any = SimpleNamespace(version=9, may=Permissions(None, ANONYMOUS, ""))

        request = DescribeGroupsRequest(groups=["g"] * 3)
        described = await describe_groups.handle(broker, request, context).result()
        assert [each.group_id for each in described.groups] == ["g"]

        def offsets(*asked: list[str] | None) -> dict[str, int]:
            groups = [
                OffsetFetchRequestGroup(
                    group_id="g",
                    topics=None
                    if topics is None
                    else [OffsetFetchRequestTopics(name=t, partition_indexes=[0]) for t in topics],
                )
                for topics in asked
            ]
            (group,) = offset_fetch.handle(
                broker, OffsetFetchRequest(groups=groups), context
            ).groups
            return {topic.name: topic.partitions[0].committed_offset for topic in group.topics}

        assert offsets(["t"], ["t"]) == {"t": 4}
        assert offsets(["t"], ["u"]) == {"t": 4, "u": 5}
        assert offsets(["t"], None, ["u"], None) == {"t": 4, "u": 5}

    run(story)


def test_a_broker_that_knows_a_part_of_the_offsets_topic_divides_groups_by_the_whole() -> None:
    """Else another group's offsets would be looked for in a partition it leads, and not found."""

    async def story(world: World, client: Client) -> None:
        groups = Groups(client)
        await groups.alter_offsets("g", {T0: 1})
        host = world.hosts[await coordinator_of(client, world, "g")]
        await host.stop()
        world.config["offsets.topic.num.partitions"] = "7"
        host.start()
        await asyncio.sleep(30)
        assert host.broker is not None
        known = host.broker.cache.partitions(OFFSETS_TOPIC)
        assert len(known) == 3
        for number in list(known)[1:]:
            del known[number]  # as if the controller had died between two requests
        of = host.broker.groups.storage.partition_for
        names = [f"group-{number}" for number in range(20)]
        assert [of(name) for name in names] == [partition_for(name, 3) for name in names]

    run(story)


def test_the_offsets_topic_is_read_in_small_pieces() -> None:
    """Each is taken in at once, so none may keep a broker from its other work for long."""

    async def story(world: World, client: Client) -> None:
        await Groups(client).alter_offsets("g", {T0: 1})
        host = world.hosts[await coordinator_of(client, world, "g")]
        assert host.broker is not None
        offsets_log = host.broker.state_topics.replicated(OFFSETS_TOPIC, host.broker.replicas)
        partition = partition_for("g", 3)
        for size_bytes in (100_000, 20_000, 20_000, 300_000, 1_000):
            batch = encode_batch([Record(-1, 0, b"\x7f\xff", bytes(size_bytes))])
            assert (await offsets_log.append(partition, batch, 5_000)).error == ErrorCode.NONE
        pieces = list(offsets_log.read(partition))
        headers = [list(scan(piece)) for piece in pieces]
        sizes = [sum(header.size_bytes for header in each) for each in headers]
        assert [size for size in sizes if size > READ_BYTES] == [
            max(header.size_bytes for each in headers for header in each)
        ], "one batch is larger, and comes alone"
        offsets = [header.base_offset for each in headers for header in each]
        assert offsets == list(range(len(offsets)))
        assert len(pieces) == 4

    run(story)
