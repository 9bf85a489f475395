"""Against our own brokers, in processes of their own: administration, groups, and failures."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer

from odradek.client import (
    EARLIEST,
    LATEST,
    Admin,
    Blocking,
    Client,
    ConfigChange,
    ConfigOperation,
    ConfigSource,
    Consumer,
    ElectionType,
    Groups,
    NewPartitions,
    NewTopic,
    PartitionReader,
    Producer,
    Resource,
    ResourceType,
    check,
    offsets_at,
)
from odradek.testing.cluster import Cluster
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

pytestmark = pytest.mark.process

WAIT_S = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    config = {
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "auto.leader.rebalance.enable": "false",
        "auto.create.topics.enable": "false",
    }
    with Cluster(brokers=3, racks=["a", "b", "c"], config=config) as cluster:
        yield cluster


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    name: str = request.node.name
    return name


async def eventually(ask: Callable[[], Any], accept: Callable[[Any], bool]) -> Any:
    """The first answer that is accepted, asked for again and again."""
    async with asyncio.timeout(WAIT_S):
        while True:
            answer = await ask()
            if accept(answer):
                return answer
            await asyncio.sleep(0.01)


async def fill(client: Client, topic: str, count: int, partition: int = 0) -> None:
    async with Producer(client) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number, partition=partition)


async def test_a_topic_from_birth_to_death(cluster: Cluster, topic: str) -> None:
    async with Client(cluster.bootstrap_servers, missing_topic_s=0.1) as client:
        admin = Admin(client)
        tried = await admin.create_topics([NewTopic(topic, 2, 3)], validate_only=True)
        assert tried == {topic: None}
        check(await admin.create_topics([NewTopic(topic, 2, 3, configs={"retention.ms": "1000"})]))
        again = await admin.create_topics([NewTopic(topic, 2, 3)])
        error = again[topic]
        assert error is not None and error.error is ErrorCode.TOPIC_ALREADY_EXISTS
        # Brokers hear of a change a moment apart, and any of them may be the one that is asked.
        await eventually(admin.list_topics, lambda names: topic in names)
        described = (await admin.describe_topics([topic]))[topic]
        assert [len(part.replicas) for part in described.partitions.values()] == [3, 3]

        check(await admin.create_partitions({topic: NewPartitions(4, [[3, 1, 2], [1, 2, 3]])}))
        described = await eventually(
            lambda: admin.describe_topics([topic]), lambda found: len(found[topic].partitions) == 4
        )
        assert described[topic].partitions[2].replicas == [3, 1, 2]
        fewer = (await admin.create_partitions({topic: NewPartitions(1)}))[topic]
        assert fewer is not None and fewer.error is ErrorCode.INVALID_PARTITIONS

        assert await admin.delete_topics([topic]) == {topic: None}
        await eventually(admin.list_topics, lambda names: topic not in names)
        with pytest.raises(KafkaError, match="does not exist"):
            await eventually(lambda: admin.describe_topics([topic]), lambda found: False)


async def test_errors_say_what_they_are_about(cluster: Cluster) -> None:
    async with Client(cluster.bootstrap_servers) as client:
        admin = Admin(client)
        outcomes = await admin.create_topics([NewTopic("bad name", 1, 1), NewTopic("wide", 1, 9)])
        bad, wide = outcomes["bad name"], outcomes["wide"]
        assert bad is not None and bad.error is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert wide is not None and wide.error is ErrorCode.INVALID_REPLICATION_FACTOR
        assert "wide" in str(wide)
        with pytest.raises(KafkaError) as caught:
            check(outcomes)
        assert caught.value is bad


async def test_manual_placement(cluster: Cluster, topic: str) -> None:
    async with Client(cluster.bootstrap_servers) as client:
        admin = Admin(client)
        check(await admin.create_topics([NewTopic(topic, assignment={0: [2, 1], 1: [3, 2]})]))
        partitions = (await admin.describe_topics([topic]))[topic].partitions
        assert {index: part.replicas for index, part in partitions.items()} == {
            0: [2, 1],
            1: [3, 2],
        }


async def test_settings(cluster: Cluster, topic: str) -> None:
    async with Client(cluster.bootstrap_servers) as client:
        admin = Admin(client)
        check(await admin.create_topics([NewTopic(topic, 1, 1)]))
        owner = Resource(ResourceType.TOPIC, topic)

        async def setting(name: str) -> tuple[str | None, ConfigSource]:
            entries = (await admin.describe_configs([owner]))[owner]
            while isinstance(entries, KafkaError):  # any broker may be asked, also one that has
                assert entries.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # not heard of it yet
                entries = (await admin.describe_configs([owner]))[owner]
            (entry,) = [entry for entry in entries if entry.name == name]
            return entry.value, entry.source

        assert (await setting("retention.ms"))[1] is not ConfigSource.TOPIC
        check(await admin.alter_configs({owner: [ConfigChange("retention.ms", "5000")]}))
        await eventually(
            lambda: setting("retention.ms"), lambda found: found == ("5000", ConfigSource.TOPIC)
        )
        delete = ConfigChange("retention.ms", None, ConfigOperation.DELETE)
        check(await admin.alter_configs({owner: [delete]}))
        await eventually(
            lambda: setting("retention.ms"), lambda found: found[1] is not ConfigSource.TOPIC
        )
        bad = (await admin.alter_configs({owner: [ConfigChange("no.such", "1")]}))[owner]
        assert bad is not None and bad.error is ErrorCode.INVALID_CONFIG
        broker = Resource(ResourceType.BROKER, "2")
        entries = (await admin.describe_configs([broker]))[broker]
        assert isinstance(entries, list)
        assert ("broker.id", "2") in {(entry.name, entry.value) for entry in entries}


async def test_moving_replicas_and_electing_leaders(cluster: Cluster, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    async with Client(cluster.bootstrap_servers) as client:
        admin = Admin(client)
        check(await admin.create_topics([NewTopic(topic, assignment={0: [1, 2]})]))
        await fill(client, topic, 100)
        check(await admin.alter_reassignments({partition: [3, 2]}))

        async def replicas() -> list[int]:
            return (await admin.describe_topics([topic]))[topic].partitions[0].replicas

        await eventually(admin.list_reassignments, lambda ongoing: partition not in ongoing)
        await eventually(replicas, lambda now: now == [3, 2])
        cancelled = (await admin.alter_reassignments({partition: None}))[partition]
        assert cancelled is not None
        assert cancelled.error is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS

        # The order of replicas makes another one the preferred leader.
        check(await admin.alter_reassignments({partition: [2, 3]}))
        await eventually(replicas, lambda now: now == [2, 3])
        await admin.elect_leaders(ElectionType.PREFERRED, [partition])

        async def leader() -> int:
            await client.refresh([topic])
            return await client.leader(partition)

        await eventually(leader, lambda now: now == 2)
        again = (await admin.elect_leaders(ElectionType.PREFERRED, [partition]))[partition]
        assert again is not None and again.error is ErrorCode.ELECTION_NOT_NEEDED
        assert len([b async for b in PartitionReader(client).batches(partition, 0, 100)]) > 0


async def test_log_directories(cluster: Cluster, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    async with Client(cluster.bootstrap_servers) as client:
        admin = Admin(client)
        check(await admin.create_topics([NewTopic(topic, assignment={0: [2]})]))
        await fill(client, topic, 10)
        directories = await admin.describe_log_dirs([2], [partition])
        (found,) = [replica for directory in directories[2] for replica in directory.replicas]
        assert found.partition == partition
        assert found.size_bytes > 10 and not found.is_future
        assert set(await admin.describe_log_dirs()) == {1, 2, 3}


async def test_offsets_by_time_and_deleted_records(cluster: Cluster, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    async with Client(cluster.bootstrap_servers) as client:
        admin = Admin(client)
        check(await admin.create_topics([NewTopic(topic, 1, 3)]))
        async with Producer(client, linger_s=0) as producer:
            for number in range(10):
                await producer.send(topic, b"x", partition=0, timestamp_ms=1_000 * number)
                await producer.flush()
        for timestamp, offset in ((0, 0), (1, 1), (4_000, 4), (9_001, -1), (LATEST, 10)):
            found = (await offsets_at(client, {partition: timestamp}))[partition]
            assert found.offset == offset, timestamp
        assert await admin.delete_records({partition: 6}) == {partition: 6}
        assert (await offsets_at(client, {partition: EARLIEST}))[partition].offset == 6
        with pytest.raises(KafkaError) as caught:
            await admin.delete_records({partition: 11})
        assert caught.value.error is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_groups(cluster: Cluster, topic: str) -> None:
    partitions = [TopicPartition(topic, index) for index in range(2)]
    group = f"group of {topic}"
    async with Client(cluster.bootstrap_servers) as client:
        groups = Groups(client)
        check(await Admin(client).create_topics([NewTopic(topic, 2, 1)]))
        await fill(client, topic, 30)
        with pytest.raises(KafkaError) as caught:
            await groups.describe_group(group)
        assert caught.value.error is ErrorCode.GROUP_ID_NOT_FOUND

        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=cluster.bootstrap_servers,
            group_id=group,
            client_id="theirs",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        try:
            for _ in range(12):
                await consumer.getone()
            await consumer.commit()
            described = await groups.describe_group(group)
            assert described.state == "Stable" and described.protocol_type == "consumer"
            (member,) = described.members
            assert member.client_id == "theirs" and sorted(member.partitions) == partitions
            assert described.coordinator == await client.coordinator(group)
            (listed,) = [found for found in await groups.list_groups() if found.id == group]
            assert listed.coordinator == described.coordinator
            busy = (await groups.alter_offsets(group, {partitions[0]: 3}))[partitions[0]]
            assert busy is not None and busy.error is ErrorCode.UNKNOWN_MEMBER_ID
        finally:
            await consumer.stop()

        lag = await groups.lag(group)
        assert (lag[partitions[0]].committed, lag[partitions[0]].records) == (12, 18)
        # Two partitions: a group whose last offset is deleted goes with it.
        check(await groups.alter_offsets(group, {partitions[0]: 3, partitions[-1]: 0}))
        committed = await groups.offsets(group)
        assert committed[partitions[0]].offset == 3
        assert (await groups.offsets(group, [partitions[0]])).keys() == {partitions[0]}
        check(await groups.delete_offsets(group, [partitions[0]]))
        assert partitions[0] not in await groups.offsets(group)
        check(await groups.delete_groups([group]))
        assert group not in {found.id for found in await groups.list_groups()}
        gone = (await groups.delete_groups([group]))[group]
        assert gone is not None and gone.error is ErrorCode.GROUP_ID_NOT_FOUND


async def test_a_consumer_reads_in_its_own_rack(cluster: Cluster, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    async with Client(cluster.bootstrap_servers, rack="b") as client:
        check(await Admin(client).create_topics([NewTopic(topic, assignment={0: [1, 2, 3]})]))
        await fill(client, topic, 20)
        reader = PartitionReader(client)
        records = [
            record
            async for batches in reader.batches(partition, 0, 20)
            for record in batches.open()
        ]
        assert len(records) == 20
        assert await client.leader(partition) == 1
        assert await reader.node_for(partition) == 2


def test_without_an_event_loop(cluster: Cluster, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with Blocking(cluster.bootstrap_servers, missing_topic_s=0.1) as blocking:
        check(blocking.run(blocking.admin.create_topics([NewTopic(topic, 1, 1)])))
        blocking.run(fill(blocking.client, topic, 500))
        reader = blocking.reader(fetch_bytes=500)
        values = [
            int(record.value or b"")
            for batches in blocking.iterate(reader.batches(partition, 0, 500))
            for record in batches.open()
        ]
        assert values == list(range(500))
        first = next(blocking.iterate(reader.batches(partition, 100, 500)))
        assert first.start == 100
        assert blocking.run(blocking.groups.list_groups()) is not None
        with pytest.raises(KafkaError, match="no-such-topic"):
            blocking.run(blocking.admin.describe_topics(["no-such-topic"]))


async def all_alive(client: Client) -> None:
    await eventually(Admin(client).describe_cluster, lambda found: len(found.nodes) == 3)


async def test_every_record_once_and_in_order_while_the_leader_dies(
    cluster: Cluster, topic: str
) -> None:
    partition = TopicPartition(topic, 0)
    async with Client(cluster.bootstrap_servers) as client:
        await all_alive(client)
        configs = {"min.insync.replicas": "2"}
        check(await Admin(client).create_topics([NewTopic(topic, 1, 3, configs=configs)]))
        leader = await client.leader(partition)
        async with Producer(client, linger_s=0.001) as producer:
            for number in range(1_000):
                delivery = await producer.send(topic, b"%d" % number, partition=0)
                if number % 50 == 0:
                    await delivery
                if number == 500:
                    cluster.kill(leader)
            await producer.flush()
            assert producer.statistics()["retries"] > 0
        assert await client.leader(partition) != leader
        end = (await offsets_at(client, {partition: LATEST}))[partition].offset
        values = [
            int(record.value or b"")
            async for batches in PartitionReader(client).batches(partition, 0, end)
            for record in batches.open()
        ]
    cluster.start(leader)
    assert values == list(range(1_000))


async def test_following_through_the_death_of_a_leader(cluster: Cluster, topic: str) -> None:
    partitions = [TopicPartition(topic, index) for index in range(3)]
    async with (
        Client(cluster.bootstrap_servers) as client,
        Consumer(client, wait_ms=50) as consumer,
        Producer(client) as producer,
    ):
        await all_alive(client)
        check(await Admin(client).create_topics([NewTopic(topic, 3, 3)]))
        await consumer.assign(dict.fromkeys(partitions, EARLIEST))
        victim = await client.leader(partitions[0])
        seen: list[bytes | None] = []
        for round_number in range(2):
            for number in range(90):
                value = b"%d" % (90 * round_number + number)
                await producer.send(topic, value, partition=number % 3)
            await producer.flush()
            while len(seen) < 90 * (round_number + 1):
                for batches in await consumer.poll(WAIT_S):
                    seen += [record.value for record in consumer.open(batches)]
            if round_number == 0:
                cluster.kill(victim)
        assert sorted(int(value or b"") for value in seen) == list(range(180))
        cluster.start(victim)


async def test_the_controller_dies(cluster: Cluster, topic: str) -> None:
    async with Client(cluster.bootstrap_servers) as client:
        admin = Admin(client)
        await all_alive(client)
        controller = (await admin.describe_cluster()).controller_id
        cluster.kill(controller)
        check(await admin.create_topics([NewTopic(topic, 1, 2)]))
        assert (await admin.describe_cluster()).controller_id != controller
        cluster.start(controller)
        await all_alive(client)


async def test_a_frozen_broker_does_not_stop_the_others(cluster: Cluster, topic: str) -> None:
    """SIGSTOP: its connections stay open and say nothing. Requests to it time out."""
    async with Client(cluster.bootstrap_servers, timeout_s=3.0) as client:
        await all_alive(client)
        check(await Admin(client).create_topics([NewTopic(topic, assignment={0: [1], 1: [2]})]))
        assert await client.leader(TopicPartition(topic, 0)) == 1
        cluster.pause(1)
        try:
            await fill(client, topic, 10, partition=1)
            found = await offsets_at(client, {TopicPartition(topic, 1): LATEST})
            assert found[TopicPartition(topic, 1)].offset == 10
            with pytest.raises((OSError, TimeoutError, KafkaError)):
                await offsets_at(client, {TopicPartition(topic, 0): LATEST})
        finally:
            cluster.resume(1)
