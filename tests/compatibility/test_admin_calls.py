"""Every call of kafka-python's and aiokafka's admin clients succeeds or gets Kafka's error.

What the brokers of this cluster do not serve is refused by the client before it asks, as with an
Apache Kafka that lacks it.
"""

from collections.abc import Callable, Iterator
from typing import Any

import aiokafka.admin
import kafka
import kafka.admin
import pytest
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AioConfigResourceType
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic, OffsetSpec
from kafka.errors import KafkaError, UnknownError
from kafka.structs import OffsetAndMetadata, TopicPartition

from odradek import Cluster
from odradek.client import Blocking, Producer, check

pytestmark = [pytest.mark.process, pytest.mark.slow]

TOPIC, GROUP = "admin", "admin-group"
ZERO = TopicPartition(TOPIC, 0)

Call = Callable[[Any], Any]

WORKS: dict[str, Call] = {
    "describe_cluster": lambda admin: admin.describe_cluster(),
    "api_versions": lambda admin: admin.api_versions(),
    "get_broker_version_data": lambda admin: admin.get_broker_version_data(1),
    "list_topics": lambda admin: admin.list_topics(),
    "describe_topics": lambda admin: admin.describe_topics([TOPIC]),
    "wait_for_topics": lambda admin: admin.wait_for_topics([TOPIC]),
    "describe_configs": lambda admin: admin.describe_configs(
        [ConfigResource(ConfigResourceType.TOPIC, TOPIC), ConfigResource("broker", "1")],
        include_synonyms=True,
        config_filter="all",
    ),
    "alter_configs": lambda admin: admin.alter_configs(
        [ConfigResource(ConfigResourceType.TOPIC, TOPIC, {"retention.ms": "60000"})]
    ),
    "reset_configs": lambda admin: admin.reset_configs(
        [ConfigResource(ConfigResourceType.TOPIC, TOPIC, ["retention.ms"])]
    ),
    "create_partitions": lambda admin: admin.create_partitions({TOPIC: 5}),
    "describe_log_dirs": lambda admin: admin.describe_log_dirs(),
    "list_partition_offsets": lambda admin: admin.list_partition_offsets({ZERO: OffsetSpec.LATEST}),
    "describe_producers": lambda admin: admin.describe_producers([ZERO]),
    "elect_leaders": lambda admin: admin.elect_leaders(0, raise_errors=False),
    "alter_partition_reassignments": lambda admin: admin.alter_partition_reassignments(
        {ZERO: [1, 2, 3]}
    ),
    "list_partition_reassignments": lambda admin: admin.list_partition_reassignments(),
    "alter_group_offsets": lambda admin: admin.alter_group_offsets(
        GROUP, {ZERO: OffsetAndMetadata(3, "", -1)}
    ),
    "list_groups": lambda admin: admin.list_groups(),
    "describe_groups": lambda admin: admin.describe_groups([GROUP]),
    "list_group_offsets": lambda admin: admin.list_group_offsets({GROUP: [ZERO]}),
    "reset_group_offsets": lambda admin: admin.reset_group_offsets(
        GROUP, {ZERO: OffsetSpec.EARLIEST}
    ),
    "delete_group_offsets": lambda admin: admin.delete_group_offsets(GROUP, [ZERO]),
    "delete_groups": lambda admin: admin.delete_groups([GROUP]),
    "delete_records": lambda admin: admin.delete_records({ZERO: 1}),
}
# Kafka's own error, or the client's word that the cluster does not serve it.
ANSWERED: dict[str, Call] = {
    "create_topics": lambda admin: admin.create_topics([NewTopic(TOPIC, 1, 1)]),
    "delete_topics": lambda admin: admin.delete_topics(["no-such-topic"]),
    "describe_acls": lambda admin: admin.describe_acls(
        kafka.admin.ACLFilter(
            None,
            "*",
            kafka.admin.ACLOperation.ANY,
            kafka.admin.ACLPermissionType.ANY,
            kafka.admin.ResourcePatternFilter(
                kafka.admin.ResourceType.ANY, None, kafka.admin.ACLResourcePatternType.ANY
            ),
        )
    ),
    "describe_features": lambda admin: admin.describe_features(),
    "describe_metadata_quorum": lambda admin: admin.describe_metadata_quorum(),
    "describe_topic_partitions": lambda admin: admin.describe_topic_partitions([TOPIC]),
    "describe_transactions": lambda admin: admin.describe_transactions(["t"]),
    "describe_user_scram_credentials": lambda admin: admin.describe_user_scram_credentials(),
    "list_config_resources": lambda admin: admin.list_config_resources(),
    "list_transactions": lambda admin: admin.list_transactions(),
    "remove_group_members": lambda admin: admin.remove_group_members("no-such-group", []),
    "too_few_partitions": lambda admin: admin.create_partitions({TOPIC: 1}),
    "too_many_copies": lambda admin: admin.create_topics([NewTopic("wide", 1, 9)]),
    "a_bad_name": lambda admin: admin.create_topics([NewTopic("bad name", 1, 1)]),
    "records_beyond_the_end": lambda admin: admin.delete_records({ZERO: 10**9}),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as running:
        with Blocking(running.bootstrap_servers) as client:
            from odradek.client import NewTopic as OurTopic

            check(client.run(client.admin.create_topics([OurTopic(TOPIC, 2, 3)])))

            async def fill() -> None:
                async with Producer(client.client) as producer:
                    for number in range(10):
                        await producer.send(TOPIC, b"%d" % number, partition=0)

            client.run(fill())
            client.run(client.client.coordinator(GROUP))
        yield running


@pytest.fixture(scope="module")
def admin(cluster: Cluster) -> Iterator[Any]:
    client = kafka.KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers.split(","))
    yield client
    client.close()


def refusal(call: Callable[[], object]) -> KafkaError | None:
    """What a call was answered. Anything but Kafka's errors is raised."""
    try:
        call()
    except KafkaError as error:
        return error
    return None


@pytest.mark.parametrize("name", WORKS)
def test_kafka_python_does_it(admin: Any, name: str) -> None:
    assert WORKS[name](admin) is not False


@pytest.mark.parametrize("name", ANSWERED)
def test_kafka_python_gets_the_reason_of_a_refusal(admin: Any, name: str) -> None:
    assert not isinstance(refusal(lambda: ANSWERED[name](admin)), UnknownError)


async def test_aiokafka_does_it(cluster: Cluster) -> None:
    admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    await admin.start()
    try:
        topic = AioConfigResource(AioConfigResourceType.TOPIC, TOPIC)
        broker = AioConfigResource(AioConfigResourceType.BROKER, "2")
        assert (await admin.describe_cluster())["controller_id"] in cluster.ids
        assert TOPIC in await admin.list_topics()
        (described,) = await admin.describe_topics([TOPIC])
        assert described["error_code"] == 0
        for response in await admin.describe_configs([topic, broker]):
            assert all(resource[0] == 0 for resource in response.resources)
        assert await admin.find_coordinator(GROUP) in cluster.ids
        assert isinstance(await admin.list_consumer_groups(), list)
        assert await admin.describe_consumer_groups(["no-such-group"])
        assert await admin.list_consumer_group_offsets("no-such-group") == {}
        created = await admin.create_topics([aiokafka.admin.NewTopic(TOPIC, 1, 1)])
        assert [error[1] for error in created.topic_errors] == [36], "TOPIC_ALREADY_EXISTS"
        deleted = await admin.delete_topics(["no-such-topic"])
        assert [error[1] for error in deleted.topic_error_codes] == [3]
    finally:
        await admin.close()
