"""The admin APIs on whole brokers: what they do, and Kafka's error for each slip."""

from pathlib import Path
from typing import Any

import pytest
from tests.broker.clusters import cluster, fetch_request, produce, until

from odradek.wire.connection import Connection
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from odradek.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.describe_acls import DescribeAclsRequest
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from odradek.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from odradek.wire.topics import TopicPartition


async def create(
    connection: Connection, topic: CreatableTopic, version: int = 5, **options: Any
) -> CreatableTopicResult:
    request = CreateTopicsRequest(topics=[topic], **{"timeout_ms": 10_000, **options})
    return (await connection.request(request, version)).topics[0]


async def test_api_versions_lists_what_is_served(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        connection = await made.connect(1)
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
        response = await connection.request(request, 3)
        ranges = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        assert ranges[0] == (0, 11)
        assert ranges[1] == (0, 17)
        assert ranges[3] == (0, 12)
        assert (ranges[17], ranges[36]) == ((0, 1), (0, 2))
        assert not {55, 64, 68, 69, 71, 72, 74, 75} & ranges.keys()
        bad = ApiVersionsRequest(client_software_name="", client_software_version="1.0")
        assert (await connection.request(bad, 3)).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("protocol", ["2.6", "3.9"])
async def test_what_brokers_of_any_protocol_send_is_advertised(
    tmp_path: Path, protocol: str
) -> None:
    """Fetch, WriteTxnMarkers, AlterPartition and AllocateProducerIds: a broker of Kafka that does
    not find the last two at its controller changes no ISR and gives out no producer ids."""
    async with cluster(tmp_path, inter_broker_protocol_version=protocol) as made:
        connection = await made.connect(1)
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1.0")
        response = await connection.request(request, 4)
        ranges = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        assert [ranges[key] for key in (1, 27, 56, 67)] == [(0, 17), (0, 1), (0, 3), (0, 0)]


@pytest.mark.parametrize("version", range(8))
async def test_create_a_topic(tmp_path: Path, version: int) -> None:
    async with cluster(tmp_path) as made:
        connection = await made.connect(1)
        wanted = CreatableTopic(
            name="t",
            num_partitions=3,
            replication_factor=1,
            configs=[CreatableTopicConfig(name="retention.ms", value="1000")],
        )
        result = await create(connection, wanted, version)
        assert result.error_code == ErrorCode.NONE
        assert not result.error_message
        if version >= 5:
            assert result.error_message is None
            assert (result.num_partitions, result.replication_factor) == (3, 1)
            described = {
                each.name: (each.value, each.config_source) for each in result.configs or []
            }
            assert described["retention.ms"] == ("1000", 1)
            assert described["segment.bytes"] == ("1073741824", 5)
        assert made.brokers[1].cache.partition_count("t") == 3
        log = next(iter(made.brokers[1].logs.logs.values()))
        assert log.config.retention_ms == 1000
        again = await create(connection, wanted, version)
        assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (CreatableTopic(name="a b", num_partitions=1, replication_factor=1), "TOPIC_EXCEPTION"),
        (CreatableTopic(name="", num_partitions=1, replication_factor=1), "TOPIC_EXCEPTION"),
        (CreatableTopic(name="..", num_partitions=1, replication_factor=1), "TOPIC_EXCEPTION"),
        (CreatableTopic(name="x" * 250, num_partitions=1, replication_factor=1), "TOPIC_EXCEPTION"),
        (CreatableTopic(name="a_b", num_partitions=1, replication_factor=1), "TOPIC_EXCEPTION"),
        (CreatableTopic(name="t", num_partitions=0, replication_factor=1), "PARTITIONS"),
        (CreatableTopic(name="t", num_partitions=1, replication_factor=0), "REPLICATION_FACTOR"),
        (CreatableTopic(name="t", num_partitions=1, replication_factor=2), "REPLICATION_FACTOR"),
        (
            CreatableTopic(
                name="t",
                num_partitions=1,
                replication_factor=1,
                configs=[CreatableTopicConfig(name="retention.mss", value="1")],
            ),
            "CONFIG",
        ),
        (
            CreatableTopic(
                name="t",
                num_partitions=1,
                replication_factor=1,
                configs=[CreatableTopicConfig(name="retention.ms", value=None)],
            ),
            "CONFIG",
        ),
        (
            CreatableTopic(
                name="t",
                num_partitions=1,
                replication_factor=-1,
                assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1])],
            ),
            "REQUEST",
        ),
        (
            CreatableTopic(
                name="t",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[CreatableReplicaAssignment(partition_index=1, broker_ids=[1])],
            ),
            "REPLICA_ASSIGNMENT",
        ),
        (
            CreatableTopic(
                name="t",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 1])],
            ),
            "REPLICA_ASSIGNMENT",
        ),
    ],
)
async def test_topics_that_cannot_be(tmp_path: Path, topic: CreatableTopic, error: str) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("a.b")
        connection = await made.connect(1)
        result = await create(connection, topic)
        assert ErrorCode(result.error_code).name == f"INVALID_{error}", result
        assert made.brokers[1].cache.topics() == ["a.b"]


async def test_creating_details(tmp_path: Path) -> None:
    async with cluster(tmp_path, num_partitions="4") as made:
        connection = await made.connect(1)
        defaults = CreatableTopic(name="defaults", num_partitions=-1, replication_factor=-1)
        result = await create(connection, defaults, validate_only=True)
        assert (result.error_code, result.num_partitions) == (ErrorCode.NONE, 4)
        assert not made.brokers[1].cache.has_topic("defaults"), "only validated"
        late = CreatableTopic(name="late", num_partitions=1, replication_factor=1)
        result = await create(connection, late, timeout_ms=0)
        assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
        await until(lambda: made.brokers[1].cache.has_topic("late"))
        twice = CreateTopicsRequest(topics=[defaults, defaults], timeout_ms=1000)
        results = (await connection.request(twice, 5)).topics
        assert [each.error_code for each in results] == [ErrorCode.INVALID_REQUEST]
        alike = [
            CreatableTopic(name=name, num_partitions=1, replication_factor=factor)
            for name, factor in (("a.b", 7), ("a_b", 1), ("a.b.c", 1), ("a_b.c", 1), ("a_b_c", 1))
        ]
        request = CreateTopicsRequest(topics=alike, timeout_ms=10_000)
        results = (await connection.request(request, 5)).topics
        assert {each.name: ErrorCode(each.error_code) for each in results} == {
            "a.b": ErrorCode.INVALID_REPLICATION_FACTOR,
            "a_b": ErrorCode.NONE,
            "a.b.c": ErrorCode.NONE,
            "a_b.c": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "a_b_c": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
        manual = CreatableTopic(
            name="manual",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=p, broker_ids=[1]) for p in range(2)
            ],
        )
        assert (await create(connection, manual)).num_partitions == 2


async def test_only_the_controller_changes_topics(tmp_path: Path) -> None:
    async with cluster(tmp_path, brokers=2) as made:
        other = next(each for each in made.brokers.values() if not each.controller.is_active)
        connection = await made.connect(other.id)
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        assert (await create(connection, topic)).error_code == ErrorCode.NOT_CONTROLLER
        delete = DeleteTopicsRequest(topic_names=["t"], timeout_ms=100)
        (deleted,) = (await connection.request(delete, 5)).responses
        assert deleted.error_code == ErrorCode.NOT_CONTROLLER
        widen = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=2)])
        (widened,) = (await connection.request(widen, 1)).results
        assert widened.error_code == ErrorCode.NOT_CONTROLLER
        elected = await connection.request(ElectLeadersRequest(topic_partitions=None), 1)
        assert elected.error_code == ErrorCode.NOT_CONTROLLER
        altered = await connection.request(AlterPartitionReassignmentsRequest(), 0)
        assert altered.error_code == ErrorCode.NOT_CONTROLLER
        listed = await connection.request(ListPartitionReassignmentsRequest(), 0)
        assert listed.error_code == ErrorCode.NOT_CONTROLLER
        metadata = await connection.request(MetadataRequest(topics=[]), 9)
        assert metadata.controller_id == made.controller.id


@pytest.mark.parametrize("version", range(3))
async def test_a_refused_election_is_refused_for_each_partition(
    tmp_path: Path, version: int
) -> None:
    async with cluster(tmp_path, brokers=2) as made:
        await made.create_topic("t", partitions=2)
        other = next(each for each in made.brokers.values() if not each.controller.is_active)
        named = [TopicPartitions(topic="t", partitions=[0, 1])]

        async def codes(broker: int, **options: Any) -> dict[int, ErrorCode]:
            connection = await made.connect(broker)
            response = await connection.request(ElectLeadersRequest(**options), version)
            (result,) = response.replica_election_results
            return {
                part.partition_id: ErrorCode(part.error_code) for part in result.partition_result
            }

        for asked in (named, None):
            found = await codes(other.id, topic_partitions=asked)
            assert found == dict.fromkeys((0, 1), ErrorCode.NOT_CONTROLLER)
        if version:
            found = await codes(made.controller.id, topic_partitions=named, election_type=7)
            assert found == dict.fromkeys((0, 1), ErrorCode.INVALID_REQUEST)


async def test_delete_topics(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t", partitions=2)
        connection = await made.connect(1)

        async def delete(name: str, version: int = 5, timeout_ms: int = 10_000) -> ErrorCode:
            request = DeleteTopicsRequest(topic_names=[name], timeout_ms=timeout_ms)
            if version >= 6:
                request = DeleteTopicsRequest(
                    topics=[DeleteTopicState(name=name)], timeout_ms=timeout_ms
                )
            return ErrorCode((await connection.request(request, version)).responses[0].error_code)

        assert await delete("nowhere") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await delete("t") is ErrorCode.NONE
        assert not made.brokers[1].cache.has_topic("t")
        await until(lambda: not made.brokers[1].logs.logs)
        answer = await produce(connection, "t", b"value")
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await until(lambda: not made.brokers[1].controller.is_queued_for_deletion("t"))
        await made.create_topic("t")
        assert (await produce(connection, "t", b"value")).base_offset == 0
        assert await delete("t", 6) is ErrorCode.NONE


async def test_deletion_can_be_disabled(tmp_path: Path) -> None:
    async with cluster(tmp_path, delete_topic_enable="false") as made:
        await made.create_topic("t")
        connection = await made.connect(1)
        request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
        for version, error in (
            (2, ErrorCode.INVALID_REQUEST),
            (3, ErrorCode.TOPIC_DELETION_DISABLED),
        ):
            response = await connection.request(request, version)
            assert response.responses[0].error_code == error


async def test_a_request_has_a_bound_on_all_its_new_partitions(tmp_path: Path) -> None:
    async with cluster(tmp_path, num_partitions="3000") as made:
        await made.create_topic("t", partitions=1)
        await made.create_topic("u", partitions=1)
        connection = await made.connect(1)
        placed = [CreatableReplicaAssignment(partition_index=p, broker_ids=[1]) for p in range(500)]
        topics = [
            CreatableTopic(name="many", num_partitions=6500, replication_factor=1),
            CreatableTopic(name="default", num_partitions=-1, replication_factor=1),
            CreatableTopic(
                name="manual", num_partitions=-1, replication_factor=-1, assignments=placed
            ),
            CreatableTopic(name="none", num_partitions=-5, replication_factor=1),
        ]
        one = CreatableTopic(name="one", num_partitions=1, replication_factor=1)
        for asked in (topics, [*topics, one]):
            create = CreateTopicsRequest(topics=asked, timeout_ms=10_000, validate_only=True)
            codes = {each.error_code for each in (await connection.request(create, 5)).topics}
            expected = {ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS}
            assert codes == (expected if asked is topics else {ErrorCode.POLICY_VIOLATION})
        for more in (0, 1):
            extend = CreatePartitionsRequest(
                topics=[
                    CreatePartitionsTopic(name="t", count=5001, assignments=None),
                    CreatePartitionsTopic(name="u", count=5001 + more, assignments=None),
                    CreatePartitionsTopic(name="nowhere", count=9000, assignments=None),
                ],
                timeout_ms=10_000,
                validate_only=True,
            )
            results = (await connection.request(extend, 1)).results
            assert [ErrorCode(each.error_code) for each in results] == (
                [ErrorCode.POLICY_VIOLATION] * 3
                if more
                else [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            )


async def test_create_partitions(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t", partitions=2)
        connection = await made.connect(1)

        async def extend(
            name: str, count: int, assignments: list[list[int]] | None = None, **options: Any
        ) -> ErrorCode:
            lists = None
            if assignments is not None:
                lists = [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
            topic = CreatePartitionsTopic(name=name, count=count, assignments=lists)
            request = CreatePartitionsRequest(topics=[topic], timeout_ms=10_000, **options)
            return ErrorCode((await connection.request(request, 1)).results[0].error_code)

        assert await extend("nowhere", 3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await extend("t", 2) is ErrorCode.INVALID_PARTITIONS
        assert await extend("t", 1) is ErrorCode.INVALID_PARTITIONS
        assert await extend("t", 3, [[7]]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert await extend("t", 4, [[1]]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert await extend("t", 5, validate_only=True) is ErrorCode.NONE
        assert made.brokers[1].cache.partition_count("t") == 2
        assert await extend("t", 4) is ErrorCode.NONE
        assert await extend("t", 5, [[1]]) is ErrorCode.NONE
        assert made.brokers[1].cache.partition_count("t") == 5
        assert (await produce(connection, "t", b"v", partition=4)).error_code == ErrorCode.NONE


async def test_delete_records(tmp_path: Path) -> None:
    async with cluster(tmp_path, brokers=2) as made:
        await made.create_topic("t", replicas=2)
        await made.create_topic("compacted", cleanup_policy="compact")
        leader = made.controller.cache.partitions("t")[0].leader
        connection = await made.connect(leader)
        await produce(connection, "t", *[b"x"] * 10)

        async def delete(topic: str, offset: int, partition: int = 0) -> tuple[ErrorCode, int]:
            asked = DeleteRecordsPartition(partition_index=partition, offset=offset)
            request = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=topic, partitions=[asked])], timeout_ms=10_000
            )
            result = (await connection.request(request, 1)).topics[0].partitions[0]
            return ErrorCode(result.error_code), result.low_watermark

        assert await delete("t", 4) == (ErrorCode.NONE, 4)
        assert await delete("t", 11) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await delete("t", -1) == (ErrorCode.NONE, 10)
        assert (await delete("t", 0, 5))[0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        internal = "__consumer_offsets"
        assert (await delete(internal, 0))[0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await made.create_topic(internal, partitions=2, cleanup_policy="compact")
        for partition in range(2):  # of which one is led by another broker
            code = (await delete(internal, 0, partition))[0]
            assert code is ErrorCode.INVALID_TOPIC_EXCEPTION
        response = await connection.request(fetch_request("t", 3), 11)
        fetched = response.responses[0].partitions[0]
        assert fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        for broker in made.brokers.values():
            logs = [log for of, log in broker.logs.logs.items() if of.topic == "t"]
            assert logs[0].start_offset == 10


async def test_metadata(tmp_path: Path) -> None:
    async with cluster(tmp_path, auto_create_topics_enable="false") as made:
        await made.create_topic("t", partitions=2)
        connection = await made.connect(1)
        for version in range(13):
            everything = MetadataRequest(topics=None if version else [])
            response = await connection.request(everything, version)
            assert [topic.name for topic in response.topics] == ["t"]
            assert [broker.node_id for broker in response.brokers] == [1]
            assert len(response.topics[0].partitions) == 2
        nothing = await connection.request(MetadataRequest(topics=[]), 9)
        assert nothing.topics == []
        internal = "__consumer_offsets"
        asked = [MetadataRequestTopic(name=name) for name in ("t", "nowhere", "a b", internal)]
        response = await connection.request(
            MetadataRequest(topics=asked, include_topic_authorized_operations=True), 9
        )
        answers = {topic.name: topic for topic in response.topics}
        assert answers["nowhere"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert answers[internal].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert made.brokers[1].cache.topics() == ["t"]
        assert answers["a b"].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert answers["t"].topic_authorized_operations == 3576
        response = await connection.request(MetadataRequest(topics=asked[:1]), 9)
        assert response.topics[0].topic_authorized_operations == -(2**31)


async def test_topics_are_created_by_asking_for_them(tmp_path: Path) -> None:
    async with cluster(tmp_path, brokers=2, num_partitions="3") as made:
        for broker_id in made.brokers:
            connection = await made.connect(broker_id)
            name = f"auto-{broker_id}"
            asked = [MetadataRequestTopic(name=name)]
            refused = await connection.request(
                MetadataRequest(topics=asked, allow_auto_topic_creation=False), 9
            )
            assert refused.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            response = await connection.request(MetadataRequest(topics=asked), 9)
            assert response.topics[0].error_code == ErrorCode.NONE
            assert len(response.topics[0].partitions) == 3
        bad = await connection.request(
            MetadataRequest(topics=[MetadataRequestTopic(name="no/slash")]), 9
        )
        assert bad.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_describe_cluster(tmp_path: Path) -> None:
    async with cluster(tmp_path, brokers=2) as made:
        connection = await made.connect(1)
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        for version in (0, 1):
            response = await connection.request(request, version)
            assert [broker.broker_id for broker in response.brokers] == [1, 2]
            assert response.controller_id == made.controller.id
            assert len(response.cluster_id) == 22
            assert response.cluster_authorized_operations == 8096
        for endpoint_type, error in (
            (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
            (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        ):
            wrong = DescribeClusterRequest(endpoint_type=endpoint_type)
            assert (await connection.request(wrong, 1)).error_code == error


async def test_producer_ids_are_different_everywhere(tmp_path: Path) -> None:
    async with cluster(tmp_path, brokers=2) as made:
        ids = []
        for broker_id in made.brokers:
            connection = await made.connect(broker_id)
            for version in range(6):
                request = InitProducerIdRequest(transactional_id=None)
                response = await connection.request(request, version)
                assert response.error_code == ErrorCode.NONE
                ids.append(response.producer_id)
        assert len(set(ids)) == len(ids)
        wrong = InitProducerIdRequest(transactional_id="t", producer_id=5)
        response = await connection.request(wrong, 3)
        assert response.error_code == ErrorCode.INVALID_REQUEST


async def test_describe_log_dirs_and_producers(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t", partitions=2)
        connection = await made.connect(1)
        await produce(connection, "t", b"value")
        for version in range(5):
            response = await connection.request(DescribeLogDirsRequest(topics=None), version)
            (directory,) = response.results
            sizes = {
                each.partition_index: each.partition_size for each in directory.topics[0].partitions
            }
            assert sizes[0] > 0
            assert sizes[1] == 0
        assert directory.total_bytes > directory.usable_bytes > 0
        request = DescribeProducersRequest(
            topics=[
                TopicRequest(name="t", partition_indexes=[0, 0]),
                TopicRequest(name="t", partition_indexes=[9, 0]),  # each is answered once
            ]
        )
        (topic,) = (await connection.request(request, 0)).topics
        codes = [each.error_code for each in topic.partitions]
        assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        request = DescribeProducersRequest(
            topics=[TopicRequest(name=name, partition_indexes=[0]) for name in ("none", "no/topic")]
        )
        topics = (await connection.request(request, 0)).topics
        codes = [each.error_code for topic in topics for each in topic.partitions]
        assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION]


async def test_producers_are_described_by_those_who_have_a_replica(tmp_path: Path) -> None:
    async with cluster(tmp_path, brokers=2) as made:
        await made.create_topic("t")
        leader = made.controller.cache.partitions("t")[0].leader
        request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])

        async def answered(broker: int) -> ErrorCode:
            response = await (await made.connect(broker)).request(request, 0)
            return ErrorCode(response.topics[0].partitions[0].error_code)

        assert await answered(leader) is ErrorCode.NONE
        assert await answered(3 - leader) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        made.brokers[leader].replicas.roles.take_offline(TopicPartition("t", 0))
        assert await answered(leader) is ErrorCode.KAFKA_STORAGE_ERROR


async def test_reassignment_and_election(tmp_path: Path) -> None:
    async with cluster(tmp_path, brokers=3) as made:
        await made.create_topic("t", replicas=2)
        controller = made.controller
        connection = await made.connect(controller.id)
        before = controller.cache.partitions("t")[0]
        producer = await made.connect(before.leader)
        await produce(producer, "t", b"value")
        spare = next(each for each in made.brokers if each not in before.replicas)
        target = [spare, before.leader]

        async def reassign(replicas: list[int] | None) -> ErrorCode:
            request = AlterPartitionReassignmentsRequest(
                topics=[
                    ReassignableTopic(
                        name="t",
                        partitions=[ReassignablePartition(partition_index=0, replicas=replicas)],
                    )
                ]
            )
            response = await connection.request(request, 0)
            return ErrorCode(response.responses[0].partitions[0].error_code)

        assert await reassign(None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        assert await reassign([9]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert await reassign(target) is ErrorCode.NONE
        await until(lambda: list(controller.cache.partitions("t")[0].replicas) == target)
        listed = await connection.request(ListPartitionReassignmentsRequest(), 0)
        assert listed.topics == []
        elect = ElectLeadersRequest(
            election_type=0, topic_partitions=[TopicPartitions(topic="t", partitions=[0, 5])]
        )
        elected = await connection.request(elect, 1)
        codes = {
            each.partition_id: ErrorCode(each.error_code)
            for each in elected.replica_election_results[0].partition_result
        }
        assert codes == {0: ErrorCode.NONE, 5: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert controller.cache.partitions("t")[0].leader == spare
        everything = ElectLeadersRequest(election_type=0, topic_partitions=None)
        elected = await connection.request(everything, 1)
        assert elected.replica_election_results == []


async def test_a_replica_moves_to_another_directory(tmp_path: Path) -> None:
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    async with cluster(tmp_path, log_dirs=f"{first},{second}") as made:
        await made.create_topic("t")
        connection = await made.connect(1)
        for number in range(10):
            await produce(connection, "t", str(number).encode() * 100)
        of = next(iter(made.brokers[1].logs.logs))
        origin = made.brokers[1].logs.logs[of].directory
        target = second if origin.startswith(first) else first

        async def move(path: str, topic: str = "t") -> ErrorCode:
            request = AlterReplicaLogDirsRequest(
                dirs=[
                    AlterReplicaLogDir(
                        path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=[0])]
                    )
                ]
            )
            response = await connection.request(request, 1)
            return ErrorCode(response.results[0].partitions[0].error_code)

        assert await move("/elsewhere") is ErrorCode.LOG_DIR_NOT_FOUND
        assert await move(target) is ErrorCode.NONE
        await until(lambda: made.brokers[1].logs.logs[of].directory.startswith(target))
        assert (await produce(connection, "t", b"after")).base_offset == 10
        response = await connection.request(fetch_request("t"), 11)
        assert response.responses[0].partitions[0].high_watermark == 11


async def test_sasl_on_a_plaintext_listener_is_refused(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        connection = await made.connect(1)
        handshake = SaslHandshakeRequest(mechanism="PLAIN")
        for version in range(2):
            agreed = await connection.request(handshake, version)
            assert agreed.error_code == ErrorCode.ILLEGAL_SASL_STATE
        password = SaslAuthenticateRequest(auth_bytes=b"\0user\0password")
        for version in range(3):
            authenticated = await connection.request(password, version)
            assert authenticated.error_code == ErrorCode.ILLEGAL_SASL_STATE


async def test_there_is_no_authorizer(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        connection = await made.connect(1)
        for version in range(4):
            described = await connection.request(DescribeAclsRequest(), version)
            assert described.error_code == ErrorCode.SECURITY_DISABLED
            created = await connection.request(
                CreateAclsRequest(creations=[AclCreation(), AclCreation()]), version
            )
            assert [each.error_code for each in created.results] == [54, 54]
            deleted = await connection.request(
                DeleteAclsRequest(filters=[DeleteAclsFilter()]), version
            )
            assert [each.error_code for each in deleted.filter_results] == [54]
