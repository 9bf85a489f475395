"""Against Apache Kafka itself, if `make peers` has brought it: one node, without ZooKeeper."""

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.harness.processes import bound_to_us

from odradek.client import (
    EARLIEST,
    LATEST,
    Admin,
    Client,
    ConfigChange,
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
from odradek.placement import TopicPartitionReplica
from odradek.wire.compression import Codec
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

JARS = Path(__file__).parents[1] / "interop" / "harness" / "lib" / "kafka-3.9"
JAVA = shutil.which("java")

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not JARS.is_dir(), reason="Apache Kafka is not here: run `make peers`"),
    pytest.mark.skipif(JAVA is None, reason="there is no java to run Apache Kafka with"),
]

PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=3
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
"""


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [held.getsockname()[1] for held in sockets]
    for held in sockets:
        held.close()
    return ports


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker of Apache Kafka that lives as long as this module's tests."""
    assert JAVA is not None
    directory = tmp_path_factory.mktemp("kafka")
    broker, controller = free_ports(2)
    config = directory / "server.properties"
    config.write_text(
        PROPERTIES.format(broker=broker, controller=controller, data=directory / "data")
    )
    java = [JAVA, "-Xmx300m", "-cp", f"{JARS}/*"]
    form = ["kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", str(config)]
    subprocess.run([*java, *form], check=True, capture_output=True)
    with open(directory / "log", "wb") as log:
        process = subprocess.Popen(
            bound_to_us([*java, "kafka.Kafka", str(config)]), stdout=log, stderr=log
        )
    try:
        yield f"127.0.0.1:{broker}"
    finally:
        process.kill()
        process.wait()


async def test_all_that_the_client_can_do(kafka: str) -> None:
    zero, one = TopicPartition("t", 0), TopicPartition("t", 1)
    async with Client(kafka, timeout_s=60, missing_topic_s=5) as client:
        admin, groups = Admin(client), Groups(client)
        assert [node.id for node in (await admin.describe_cluster()).nodes] == [1]
        outcomes = await admin.create_topics([NewTopic("t", 2, 1), NewTopic("wide", 1, 9)])
        wide = outcomes["wide"]
        assert outcomes["t"] is None
        assert wide is not None and wide.error is ErrorCode.INVALID_REPLICATION_FACTOR
        assert await admin.list_topics() == ["t"]

        async with Producer(client, codec=Codec.LZ4) as producer:
            deliveries = [
                await producer.send("t", b"%d" % number, partition=0, timestamp_ms=1_000 + number)
                for number in range(1_000)
            ]
            await producer.flush()
            assert [(await delivery).offset for delivery in deliveries] == list(range(1_000))
        ends = await offsets_at(client, {zero: LATEST, one: LATEST})
        assert (ends[zero].offset, ends[one].offset) == (1_000, 0)
        assert (await offsets_at(client, {zero: 1_500}))[zero].offset == 500
        read = [
            int(record.value or b"")
            async for batches in PartitionReader(client).batches(zero, 100, 1_000)
            for record in batches.open()
        ]
        assert read == list(range(100, 1_000))
        async with Consumer(client) as consumer:
            await consumer.assign({zero: EARLIEST, one: EARLIEST})
            received = 0
            while received < 1_000:
                received += sum(len(consumer.open(batches)) for batches in await consumer.poll(10))

        check(await groups.alter_offsets("g", {zero: 300, one: 0}))
        assert (await groups.lag("g"))[zero].records == 700
        assert [group.id for group in await groups.list_groups()] == ["g"]
        assert (await groups.describe_group("g")).state == "Empty"
        check(await groups.delete_offsets("g", [zero]))
        check(await groups.delete_groups(["g"]))
        with pytest.raises(KafkaError, match="does not exist"):
            await groups.describe_group("g")

        assert await admin.delete_records({zero: 10}) == {zero: 10}
        check(await admin.delete_topics(["t"]))


async def test_administration(kafka: str) -> None:
    owner = Resource(ResourceType.TOPIC, "a")
    zero = TopicPartition("a", 0)
    async with Client(kafka, timeout_s=60, missing_topic_s=5) as client:
        admin = Admin(client)
        check(await admin.create_topics([NewTopic("a", assignment={0: [1]})]))
        check(await admin.alter_configs({owner: [ConfigChange("retention.ms", "5000")]}))
        entries = (await admin.describe_configs([owner]))[owner]
        assert isinstance(entries, list)
        found = {entry.name: (entry.value, entry.source) for entry in entries}
        assert found["retention.ms"] == ("5000", ConfigSource.TOPIC)
        unknown = (await admin.alter_configs({owner: [ConfigChange("no.such", "1")]}))[owner]
        assert unknown is not None and unknown.error is ErrorCode.INVALID_CONFIG
        check(await admin.create_partitions({"a": NewPartitions(3)}))
        assert len((await admin.describe_topics(["a"]))["a"].partitions) == 3

        assert await admin.list_reassignments() == {}
        assert await admin.alter_reassignments({zero: [1]}) == {zero: None}
        cancelled = (await admin.alter_reassignments({zero: None}))[zero]
        assert cancelled is not None
        assert cancelled.error is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        elected = (await admin.elect_leaders(ElectionType.PREFERRED, [zero]))[zero]
        assert elected is not None and elected.error is ErrorCode.ELECTION_NOT_NEEDED
        (directory,) = (await admin.describe_log_dirs())[1]
        assert {replica.partition for replica in directory.replicas} >= {zero}
        replica = TopicPartitionReplica("a", 0, 1)
        moved = (await admin.alter_log_dirs({replica: "/no/such/directory"}))[replica]
        assert moved is not None and moved.error is ErrorCode.LOG_DIR_NOT_FOUND
