"""Names are the clients' to choose: none of them becomes a path, on disk or in the store."""

import os
from pathlib import Path

import pytest
from tests.broker.clusters import Cluster, cluster

from odradek.wire.connection import Connection
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from odradek.wire.schema import Message, Request

NAMES = ("../escaped", "t/../../escaped", "/escaped", "t/partitions", "..", ".", "a\0b", "a\nb", "")


def requests_about(name: str) -> list[tuple[Request[Message], int]]:
    topic = MetadataRequestTopic(name=name)
    wide = AlterableConfig(name="retention.ms", config_operation=0, value="1")
    moved = ReassignablePartition(partition_index=0, replicas=[1])
    return [
        (MetadataRequest(topics=[topic], allow_auto_topic_creation=True), 9),
        (
            CreateTopicsRequest(
                topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)],
                timeout_ms=1000,
            ),
            4,
        ),
        (DeleteTopicsRequest(topic_names=[name], timeout_ms=0), 5),
        (
            CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name=name, count=3, assignments=None)],
                timeout_ms=1000,
            ),
            2,
        ),
        (
            IncrementalAlterConfigsRequest(
                resources=[
                    AlterConfigsResource(resource_type=2, resource_name=name, configs=[wide])
                ]
            ),
            1,
        ),
        (
            ElectLeadersRequest(
                topic_partitions=[TopicPartitions(topic=name, partitions=[0])], timeout_ms=100
            ),
            2,
        ),
        (
            AlterPartitionReassignmentsRequest(
                topics=[ReassignableTopic(name=name, partitions=[moved])], timeout_ms=100
            ),
            0,
        ),
    ]


async def test_no_name_of_a_topic_is_a_path(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path / "data") as made:
        await made.create_topic("t")
        connection = await made.connect(1)
        before = sorted(os.listdir(tmp_path)), await nodes_of(made)
        for name in NAMES:
            for message, version in requests_about(name):
                response = await connection.request(message, version)
                assert response is not None
            assert (sorted(os.listdir(tmp_path)), await nodes_of(made)) == before, name
        assert "Traceback" not in caplog.text
        assert not [record for record in caplog.records if record.exc_info]


async def nodes_of(made: Cluster) -> list[list[str]]:
    session = made.brokers[1].store.session
    paths = ("/brokers/topics", "/brokers/topics/t", "/admin/delete_topics", "/config/topics")
    return [sorted(await session.children(path)) for path in paths]


async def test_a_controller_that_is_not_one_makes_no_directory_elsewhere(tmp_path: Path) -> None:
    """Even one that knows the epochs: a name that no topic can have is refused for itself."""
    async with cluster(tmp_path / "data") as made:
        await made.create_topic("t")
        for name in NAMES:
            await check_control(made, tmp_path, name)


def files_below(directory: Path) -> list[str]:
    return sorted(str(path) for path in directory.rglob("*"))


async def check_control(made: Cluster, tmp_path: Path, name: str) -> None:
    connection = await made.connect(1)
    term = await made.brokers[1].store.controller.term()
    assert term is not None
    state = LeaderAndIsrPartitionState(
        partition_index=0,
        controller_epoch=term.epoch,
        leader=1,
        leader_epoch=0,
        isr=[1],
        partition_epoch=0,
        replicas=[1],
        is_new=True,
    )
    request = LeaderAndIsrRequest(
        controller_id=1,
        controller_epoch=term.epoch,
        broker_epoch=made.brokers[1].epoch,
        topic_states=[LeaderAndIsrTopicState(topic_name=name, partition_states=[state])],
    )
    before = files_below(tmp_path)
    response = await connection.request(request, 4)
    codes = [each.error_code for each in response.partition_errors]
    assert codes == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert files_below(tmp_path) == before
    stop = StopReplicaRequest(
        controller_id=1,
        controller_epoch=term.epoch,
        broker_epoch=made.brokers[1].epoch,
        topic_states=[
            StopReplicaTopicState(
                topic_name=name,
                partition_states=[
                    StopReplicaPartitionState(
                        partition_index=0, leader_epoch=-2, delete_partition=True
                    )
                ],
            )
        ],
    )
    await connection.request(stop, 3)
    assert files_below(tmp_path) == before


USERS = (".", "..", "../brokers", "<default>", "a/b", "a\0b", "ü%2F")


async def test_a_user_of_any_name_has_a_node_of_its_own(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        connection = await made.connect(1)
        for name in USERS:
            upsertion = ScramCredentialUpsertion(
                name=name, mechanism=1, iterations=4096, salt=b"salt", salted_password=bytes(32)
            )
            request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
            (result,) = (await connection.request(request, 0)).results
            assert result.error_code == 0, name
            assert (await quota(connection, "user", name)) == 0
            assert (await quota(connection, "client-id", name)) == 0
        session = made.brokers[1].store.session
        assert len(await session.children("/config/users")) == len(USERS)
        assert made.brokers[1].security.credentials.users == sorted(USERS)


async def quota(connection: Connection, kind: str, name: str) -> int:
    entity = AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name)
    wanted = OpData(key="producer_byte_rate", value=1e6, remove=False)
    request = AlterClientQuotasRequest(
        entries=[AlterClientQuotasRequestEntryData(entity=[entity], ops=[wanted])]
    )
    response = await connection.request(request, 0)
    return int(response.entries[0].error_code)
