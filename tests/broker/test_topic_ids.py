"""Topic ids as clients see them. docs/spec/protocol-ladder.md section 2.8."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from odradek.store.cluster import ClusterStore
from odradek.store.memory import MemoryStore
from odradek.wire.connection import Connection
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseTopic,
)
from odradek.wire.topic_ids import NO_TOPIC_ID, format_topic_id
from odradek.wire.topics import TopicPartition

from .clusters import Cluster, cluster, produce, until

UNKNOWN = UUID(int=99)


async def create(connection: Connection, name: str, **fields: Any) -> CreatableTopicResult:
    topic = CreatableTopic(
        name=name,
        num_partitions=fields.pop("num_partitions", 1),
        replication_factor=fields.pop("replication_factor", 1),
    )
    wanted = {"timeout_ms": 10_000, **fields}
    response = await connection.request(CreateTopicsRequest(topics=[topic], **wanted), 7)
    found: CreatableTopicResult = response.topics[0]
    return found


async def described(
    connection: Connection, *topics: MetadataRequestTopic, version: int = 12
) -> list[MetadataResponseTopic]:
    request = MetadataRequest(topics=list(topics), allow_auto_topic_creation=True)
    found: list[MetadataResponseTopic] = (await connection.request(request, version)).topics
    return found


async def id_in_store(made: Cluster, name: str) -> UUID | None:
    store = ClusterStore(MemoryStore(made.server))
    await store.session.start()
    node = await store.topic(name)
    await store.session.close()
    return None if node is None else node.topic_id


async def test_a_new_topic_has_one_id_everywhere(tmp_path: Path) -> None:
    async with cluster(tmp_path, inter_broker_protocol_version="3.9") as made:
        connection = await made.connect(1)
        tried = await create(connection, "t", validate_only=True)
        assert (tried.error_code, tried.topic_id) == (0, NO_TOPIC_ID)
        created = await create(connection, "t")
        assert created.error_code == 0 and created.topic_id != NO_TOPIC_ID
        assert await id_in_store(made, "t") == created.topic_id
        late = await create(connection, "late", timeout_ms=0)
        assert late.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert late.topic_id == await id_in_store(made, "late") != NO_TOPIC_ID
        for version in (10, 11, 12):
            (topic,) = await described(connection, MetadataRequestTopic(name="t"), version=version)
            assert topic.topic_id == created.topic_id, version


async def shown(made: Cluster, name: str) -> set[UUID]:
    """The id of a topic according to each broker."""
    found = set()
    for broker_id in made.brokers:
        connection = await made.connect(broker_id)
        (topic,) = await described(connection, MetadataRequestTopic(name=name), version=10)
        found.add(topic.topic_id)
    return found


def replicas_of(made: Cluster, name: str) -> set[tuple[int, int]]:
    """Broker and partition of each replica of a topic."""
    return {
        (broker_id, partition)
        for partition, state in made.controller.cache.partitions(name).items()
        for broker_id in state.replicas
    }


def ids_on_disk(made: Cluster, name: str) -> dict[tuple[int, int], bytes]:
    """What `partition.metadata` of each replica says, by broker and partition."""
    return {
        (int(file.parts[-3]), int(file.parts[-2].rpartition("-")[2])): file.read_bytes()
        for file in made.directory.glob(f"*/{name}-[0-9]/partition.metadata")
    }


def have_id(made: Cluster, name: str, topic_id: UUID) -> bool:
    text = f"version: 0\ntopic_id: {format_topic_id(topic_id)}".encode()
    return ids_on_disk(made, name) == dict.fromkeys(replicas_of(made, name), text)


@pytest.mark.parametrize("protocol", ["2.8", "3.9"])
async def test_each_replica_of_a_new_topic_keeps_its_id(tmp_path: Path, protocol: str) -> None:
    async with cluster(tmp_path, brokers=3, inter_broker_protocol_version=protocol) as made:
        connection = await made.connect(made.controller.id)
        created = await create(connection, "t", num_partitions=2, replication_factor=3)
        assert created.topic_id == await id_in_store(made, "t") != NO_TOPIC_ID
        assert len(replicas_of(made, "t")) == 6
        await until(lambda: have_id(made, "t", created.topic_id))
        assert await shown(made, "t") == {created.topic_id}


async def test_an_id_survives_changes_of_the_topic_and_of_the_controller(tmp_path: Path) -> None:
    """Partitions are added and moved under a controller of 3.9, under another, and under one of
    2.6; then every broker is restarted."""
    async with cluster(tmp_path, brokers=3, inter_broker_protocol_version="3.9") as made:
        await made.create_topic("t", replicas=2)
        topic_id = await id_in_store(made, "t")
        assert topic_id is not None

        async def change(partitions: int) -> None:
            """One partition more, and the first to another pair of brokers."""
            controller = made.controller
            connection = await made.connect(controller.id)
            topic = CreatePartitionsTopic(name="t", count=partitions, assignments=None)
            addition = CreatePartitionsRequest(topics=[topic], timeout_ms=10_000)
            assert (await connection.request(addition, 1)).results[0].error_code == 0
            replicas = list(controller.cache.partitions("t")[0].replicas)
            target = [*(set(made.brokers) - set(replicas)), replicas[0]]
            moved = ReassignablePartition(partition_index=0, replicas=target)
            topics = [ReassignableTopic(name="t", partitions=[moved])]
            move = AlterPartitionReassignmentsRequest(topics=topics)
            response = await connection.request(move, 0)
            assert response.responses[0].partitions[0].error_code == 0
            await until(lambda: list(controller.cache.partitions("t")[0].replicas) == target)
            assert await id_in_store(made, "t") == topic_id

        async def restart(broker_id: int, protocol: str) -> None:
            await made.stop(broker_id)
            await until(lambda: any(each.controller.is_active for each in made.brokers.values()))
            await made.start(broker_id, inter_broker_protocol_version=protocol)
            started = made.brokers.values()
            await until(lambda: all(len(each.cache.brokers()) == 3 for each in started))
            assert await id_in_store(made, "t") == topic_id

        await change(2)
        first = made.controller.id
        await restart(first, "2.6")
        assert made.controller.id != first
        await change(3)
        while made.controller.id != first:
            await restart(made.controller.id, "3.9")
        await change(4)
        for broker_id in list(made.brokers):
            await made.stop(broker_id)
        for broker_id in (1, 2, 3):
            await made.start(broker_id)
        assert await id_in_store(made, "t") == topic_id
        await until(
            lambda: all(
                each.cache.topic_id("t") == topic_id and each.cache.partition_count("t") == 4
                for each in made.brokers.values()
            )
        )
        assert await shown(made, "t") == {topic_id}
        await until(lambda: have_id(made, "t", topic_id))


async def test_metadata_by_id(tmp_path: Path) -> None:
    async with cluster(tmp_path, inter_broker_protocol_version="3.9") as made:
        connection = await made.connect(1)
        topic_id = (await create(connection, "t")).topic_id
        found = await described(
            connection,
            MetadataRequestTopic(name=None, topic_id=topic_id),
            MetadataRequestTopic(name="u"),  # passed over, and not created
            MetadataRequestTopic(name=None, topic_id=UNKNOWN),
        )
        assert [(each.name, each.topic_id, each.error_code) for each in found] == [
            ("t", topic_id, 0),
            (None, UNKNOWN, ErrorCode.UNKNOWN_TOPIC_ID),
        ]
        assert not made.brokers[1].cache.has_topic("u")


async def test_delete_by_id(tmp_path: Path) -> None:
    async with cluster(tmp_path, inter_broker_protocol_version="3.9") as made:
        connection = await made.connect(1)
        topic_id = (await create(connection, "t")).topic_id

        async def delete(*topics: DeleteTopicState) -> list[tuple[str | None, UUID, int]]:
            request = DeleteTopicsRequest(topics=list(topics), timeout_ms=10_000)
            response = await connection.request(request, 6)
            return [(each.name, each.topic_id, each.error_code) for each in response.responses]

        both = DeleteTopicState(name="t", topic_id=topic_id)
        by_name = DeleteTopicState(name="t")
        assert {error for _, _, error in await delete(both, by_name)} == {ErrorCode.INVALID_REQUEST}
        assert made.brokers[1].cache.has_topic("t")
        by_id = DeleteTopicState(name=None, topic_id=topic_id)
        unknown = DeleteTopicState(name=None, topic_id=UNKNOWN)
        assert await delete(unknown, by_id) == [
            (None, UNKNOWN, ErrorCode.UNKNOWN_TOPIC_ID),
            ("t", topic_id, 0),
        ]
        await until(lambda: not made.brokers[1].controller.is_queued_for_deletion("t"))
        again = (await create(connection, "t")).topic_id
        assert again not in (topic_id, NO_TOPIC_ID)
        (known,) = await delete(by_id)
        assert known == (None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID), "the new topic is another"
        assert await delete(by_name) == [("t", NO_TOPIC_ID, 0)]


async def test_at_2_6_there_are_no_ids(tmp_path: Path) -> None:
    async with cluster(tmp_path, inter_broker_protocol_version="2.6") as made:
        connection = await made.connect(1)
        assert (await create(connection, "t")).topic_id == NO_TOPIC_ID
        assert await id_in_store(made, "t") is None
        (topic,) = await described(connection, MetadataRequestTopic(name="t"))
        assert topic.topic_id == NO_TOPIC_ID


async def test_what_was_made_at_2_6_is_upgraded_by_its_first_start_at_the_default(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, inter_broker_protocol_version="2.6") as made:
        await made.create_topic("t")
        await produce(await made.connect(1), "t", b"old")
        file = tmp_path / "1" / "t-0" / "partition.metadata"
        assert not file.exists()
        del made.settings["inter.broker.protocol.version"]
        ids = []
        for _ in range(2):
            await made.stop(1)
            await made.start(1)
            await until(lambda: made.brokers[1].cache.topic_id("t") != NO_TOPIC_ID)
            topic_id = await id_in_store(made, "t")
            assert topic_id is not None
            ids.append(topic_id)
            connection = await made.connect(1)
            await produce(connection, "t", b"new")
            assert file.read_text().endswith(format_topic_id(ids[-1]))
        assert ids[0] == ids[1]
        assert made.brokers[1].logs.logs[TopicPartition("t", 0)].end_offset == 3
