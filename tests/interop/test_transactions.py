"""Transactions in a mixed cluster: each kind of broker is coordinator, leads the records, leads the
group's offsets, and is stopped and killed in the middle. docs/spec/transactions.md, section 6.
"""

import asyncio
import random
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.client.test_transactions import Unverified
from tests.interop.conftest import MakeCluster
from tests.interop.harness.copying import SOURCE, TARGET, Copying
from tests.interop.harness.kafka import KAFKA_2_8, KAFKA_3_5, KAFKA_3_9, is_here
from tests.interop.harness.mixed import APACHE, OURS, MixedCluster
from tests.interop.harness.traffic import Traffic, read_all

from odradek.client import Client
from odradek.client.client import CoordinatorType
from odradek.wire.batch import TRANSACTIONAL_BIT
from odradek.wire.connection import Connection
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest

STATE, OFFSETS, HELD = "__transaction_state", "__consumer_offsets", "held"
# Broker 1 is ours, broker 2 is Apache Kafka's; broker 3 has a replica, too.
ROLES = tuple(product((1, 2), repeat=3))
PARTITIONS = 1
BOUNCED_RECORDS_MIN = 10_000
WAIT_S = 60.0


class Held:
    """Transactions of one record that are open while something happens."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.committed = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "transactional.id": HELD,
                "transaction.timeout.ms": 600_000,  # as long as bouncing may take
                "log_level": 2,
            }
        )
        self._producer.init_transactions(WAIT_S)

    def begin(self) -> None:
        self._producer.begin_transaction()
        self._producer.produce(HELD, str(self.committed), partition=0)
        assert self._producer.flush(WAIT_S) == 0

    def commit(self) -> None:
        self._producer.commit_transaction(WAIT_S)
        self.committed += 1


def bounces(coordinator: int, data: int) -> Iterator[int]:
    """Whom to bounce: the coordinator, and who leads the records if that is another."""
    yield coordinator
    if data != coordinator:
        yield data


def lead_each(cluster: MixedCluster, leaders: dict[str, int]) -> None:
    for topic, leader in leaders.items():
        others = [broker for broker in cluster.brokers if broker != leader]
        cluster.lead(topic, [leader, *others])


@pytest.mark.parametrize("protocol", [pytest.param("2.6", marks=pytest.mark.slow), "3.9"])
def test_each_kind_in_each_role(protocol: str, make_cluster: MakeCluster) -> None:
    cluster = make_cluster(
        {1: OURS, 2: APACHE, 3: OURS},
        inter_broker_protocol_version=protocol,
        # Apache Kafka ends when its session does while it starts, which it does a dozen times here.
        zookeeper_session_timeout_ms=6000,
        offsets_topic_num_partitions=1,
        transaction_state_log_num_partitions=1,
        transaction_state_log_replication_factor=3,
        transaction_state_log_min_isr=2,
    )
    cluster.start()
    for topic in (SOURCE, TARGET, HELD):
        cluster.create_topic(topic, {0: [1, 2, 3]}, min_insync_replicas="2")
    servers = cluster.bootstrap_servers
    leave = [cluster.stop, cluster.kill]
    with Copying("confluent-kafka", servers) as copying:
        with Traffic(servers, SOURCE) as traffic:
            held = Held(servers)
            copying.get_on()
            for coordinator, data, offsets in ROLES:
                lead_each(cluster, {STATE: coordinator, TARGET: data, HELD: data, OFFSETS: offsets})
                copying.get_on()
                held.begin()
                for broker in bounces(coordinator, data):
                    leave[0](broker)
                    cluster.start(broker)
                    for topic in (STATE, OFFSETS, TARGET):
                        cluster.wait_for_isr(topic)
                held.commit()
                leave.reverse()
            copying.get_on()
        copying.check_each_once(traffic, PARTITIONS)
    assert traffic.count >= BOUNCED_RECORDS_MIN
    copied = read_all(servers, TARGET, PARTITIONS)
    assert [copied[place] for place in sorted(copied)] == traffic.numbers, "in order"
    found = read_all(servers, HELD, PARTITIONS)
    assert sorted(found.values()) == list(range(held.committed))
    for topic in (TARGET, HELD, STATE, OFFSETS):
        cluster.check_logs_are_equal(topic)


# One of each: broker 1 is ours, broker 2 is Apache Kafka's.
TWO = {1: OURS, 2: APACHE}
OF_TWO = {
    "offsets_topic_num_partitions": 1,
    "offsets_topic_replication_factor": 2,
    "transaction_state_log_num_partitions": 1,
    "transaction_state_log_replication_factor": 2,
    "transaction_state_log_min_isr": 1,
}


def test_each_kind_names_the_same_coordinators(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(TWO, transaction_state_log_replication_factor=1)
    cluster.start()
    rng = random.Random(7)
    ids = [
        "".join(rng.choices("abcXYZ019._- \u00e9\u4e2d\U0001f600", k=rng.randrange(1, 40)))
        for _ in range(1000)
    ]

    async def coordinators(broker: int) -> dict[str, int]:
        request = FindCoordinatorRequest(key_type=CoordinatorType.TRANSACTION, coordinator_keys=ids)
        host, port = cluster.address(broker).split(":")
        connection = await Connection.open(host, int(port), client_id="test", timeout=WAIT_S)
        await connection.request(request, 4)  # creates the topic
        await asyncio.to_thread(cluster.wait_for_topic, STATE)
        response = await connection.request(request, 4)
        connection.close()
        assert {each.error_code for each in response.coordinators} == {ErrorCode.NONE}
        return {each.key: each.node_id for each in response.coordinators}

    ours, theirs = (asyncio.run(coordinators(broker)) for broker in TWO)
    assert len(cluster.states(STATE)) == 50
    assert set(theirs.values()) == set(TWO)
    assert ours == theirs


def copy_some(servers: str, producer: Producer, records_max: int, *, is_commit: bool) -> int:
    """One transaction, from where the last that was committed has ended; how many it copied."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "copy",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    (begin,) = consumer.committed([TopicPartition(SOURCE, 0)], WAIT_S)
    begin.offset = max(begin.offset, 0)
    consumer.assign([begin])
    messages = consumer.consume(records_max, WAIT_S)
    producer.begin_transaction()
    for message in messages:
        assert message.error() is None, message.error()
        producer.produce(TARGET, message.value(), partition=0)
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), WAIT_S)
    if is_commit:
        producer.commit_transaction(WAIT_S)
    else:
        producer.abort_transaction(WAIT_S)
    consumer.close()
    return len(messages)


async def refused(servers: str) -> ErrorCode:
    """What the leader says to a batch in a transaction of which no coordinator knows."""
    async with Client(servers) as client, Unverified(client) as producer:
        producer.batch_attributes = TRANSACTIONAL_BIT
        await producer.send(TARGET, b"late", partition=0)
        with pytest.raises(KafkaError) as caught:
            await producer.flush()
        return caught.value.error


RECORDS = 500
AT_ONCE = 32


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "protocol"),
    [(KAFKA_3_9, "2.6"), (KAFKA_2_8, "2.8"), (KAFKA_3_5, "3.5")],
    ids=["3.9", "2.8", "3.5"],
)
def test_every_other_transaction_is_aborted_with_each_kind_in_each_role(
    version: Path, protocol: str, make_cluster: MakeCluster
) -> None:
    if not is_here(version):
        pytest.skip(f"{version.name} is not here: run `make peers`")
    cluster = make_cluster(TWO, kafka=version, inter_broker_protocol_version=protocol, **OF_TWO)
    cluster.start()
    for topic in (SOURCE, TARGET):
        cluster.create_topic(topic, {0: [1, 2]})
    servers = cluster.bootstrap_servers
    plain = Producer({"bootstrap.servers": servers})
    for number in range(RECORDS):
        plain.produce(SOURCE, str(number), partition=0)
    assert plain.flush(WAIT_S) == 0
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "copy"})
    producer.init_transactions(WAIT_S)
    # The topic of groups is created when the first looks for its coordinator.
    assert copy_some(servers, producer, AT_ONCE, is_commit=False) == AT_ONCE
    copied = 0
    for coordinator, data, offsets in ROLES:
        lead_each(cluster, {STATE: coordinator, TARGET: data, OFFSETS: offsets})
        for is_commit in (False, True, False, True):
            records = min(AT_ONCE, RECORDS - copied)
            assert copy_some(servers, producer, records, is_commit=is_commit) == records
            copied += records * is_commit
        if version is KAFKA_3_9:  # older ones neither ask a coordinator nor answer as one
            assert asyncio.run(refused(servers)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    found = read_all(servers, TARGET, PARTITIONS)
    assert [found[place] for place in sorted(found)] == list(range(RECORDS))
    for topic in (TARGET, STATE, OFFSETS):
        cluster.check_logs_are_equal(topic)


@pytest.mark.slow
def test_a_transaction_outlives_the_moves_of_its_coordinator(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(TWO, **OF_TWO)
    cluster.start()
    cluster.create_topic(HELD, {0: [1, 2]})
    servers = cluster.bootstrap_servers
    held = Held(servers)
    cluster.lead(STATE, [1, 2])
    for moves in ([[2, 1], [1, 2]], [[2, 1]], [[1, 2]]):
        held.begin()
        for order in moves:
            cluster.lead(STATE, order)
        held.commit()
    found = read_all(servers, HELD, PARTITIONS)
    assert sorted(found.values()) == [0, 1, 2]
    cluster.check_logs_are_equal(STATE)
