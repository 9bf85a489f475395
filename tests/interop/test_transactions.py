"""Transactions in a mixed cluster: each kind of broker is coordinator, leads the records, leads the
group's offsets, and is stopped and killed in the middle. docs/spec/transactions.md, section 6.
"""

from collections.abc import Iterator
from itertools import product

import pytest
from confluent_kafka import Producer
from tests.interop.conftest import MakeCluster
from tests.interop.harness.copying import SOURCE, TARGET, Copying
from tests.interop.harness.mixed import APACHE, OURS, MixedCluster
from tests.interop.harness.traffic import Traffic, read_all

STATE, OFFSETS, HELD = "__transaction_state", "__consumer_offsets", "held"
# Broker 1 is ours, broker 2 is Apache Kafka's; broker 3 has a replica, too.
ROLES = tuple(product((1, 2), repeat=3))
PARTITIONS = 1
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
    found = read_all(servers, HELD, PARTITIONS)
    assert sorted(found.values()) == list(range(held.committed))
    for topic in (TARGET, HELD, STATE, OFFSETS):
        cluster.check_logs_are_equal(topic)
