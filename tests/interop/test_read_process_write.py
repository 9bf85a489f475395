"""Exactly once with unmodified clients: they copy a topic in transactions while brokers die."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from tests.interop.harness.copying import CLIENTS, SOURCE, STREAMS, TARGET, Copying
from tests.interop.harness.traffic import READ_WAIT_S, VALUE_BYTES, Traffic

from odradek import Cluster
from odradek.client import Blocking, NewTopic

PARTITIONS = 3
# One partition each: their leader is killed as surely as that of the records.
SETTINGS = {
    "transaction.state.log.num.partitions": 1,
    "offsets.topic.num.partitions": 1,
    "min.insync.replicas": 2,
    "group.min.session.timeout.ms": 1000,
}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, config=SETTINGS) as running:
        create(running, SOURCE, TARGET)
        yield running


def create(cluster: Cluster, *topics: str) -> None:
    new = [NewTopic(topic, partitions=PARTITIONS, replication_factor=3) for topic in topics]
    with Blocking(cluster.bootstrap_servers, timeout_s=60) as client:
        client.run(client.admin.create_topics(new))  # on a slow machine twice, and refused then
    for topic in topics:
        wait_for_isr(cluster, topic)


def wait_for_isr(cluster: Cluster, topic: str) -> None:
    def in_sync() -> bool:
        known = cluster.topic(topic)
        return known is not None and all(len(part.isr_nodes) == 3 for part in known.partitions)

    cluster.wait_until(in_sync, f"all replicas of {topic} in sync")


def kill_each(cluster: Cluster, copying: Copying) -> None:
    """kill -9 of one broker after the other; the copier goes on without it."""
    for broker in cluster.ids:
        copying.get_on()
        cluster.kill(broker)
        copying.get_on()
        cluster.start(broker)
        for topic in (SOURCE, TARGET, "__transaction_state", "__consumer_offsets"):
            wait_for_isr(cluster, topic)


# The others run the same code of ours; `make peers-test QUICK=1` leaves them out.
QUICK = ("confluent-kafka", "Java 4.x", "franz-go")
EACH_CLIENT = [
    pytest.param(client, marks=() if client in QUICK else pytest.mark.slow) for client in CLIENTS
]


@pytest.mark.parametrize("client", EACH_CLIENT)
def test_each_record_is_copied_once_while_brokers_are_killed(client: str, cluster: Cluster) -> None:
    servers = cluster.bootstrap_servers
    with Copying(client, servers) as copying:
        with Traffic(servers, SOURCE) as traffic:
            kill_each(cluster, copying)
        copying.check_each_once(traffic, PARTITIONS)


def read_counts(servers: str) -> dict[bytes, list[int]]:
    """Of each word, all counts in the order in which they were written."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "counts",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(TARGET, number, 0) for number in range(PARTITIONS)])
    counts: dict[bytes, list[int]] = defaultdict(list)
    ends = 0
    while ends < PARTITIONS:
        for message in consumer.consume(5000, timeout=READ_WAIT_S):
            error = message.error()
            if error is None:
                counts[message.key() or b""].append(int(message.value() or b""))
            elif error.code() == KafkaError._PARTITION_EOF:
                ends += 1
    consumer.close()
    return counts


def test_kafka_streams_counts_words_exactly_while_brokers_and_it_are_killed(
    cluster: Cluster, tmp_path: Path
) -> None:
    servers = cluster.bootstrap_servers
    with Traffic(servers, SOURCE) as traffic:
        with Copying(STREAMS, servers, str(tmp_path)) as counting:
            kill_each(cluster, counting)
        # It was killed, too: its next life finds an open transaction and a state to restore.
        with Copying(STREAMS, servers, str(tmp_path)) as counting:
            counting.get_on()
    assert not traffic.failed
    lines = [f"{number} ".ljust(VALUE_BYTES, ".") for number in traffic.numbers]
    words = Counter(word.encode() for line in lines for word in line.split())
    with Copying(STREAMS, servers, str(tmp_path)) as counting:
        counting.wait_until(
            lambda: sum(map(len, read_counts(servers).values())) >= words.total(),
            f"{words.total()} counts",
        )
    counted = read_counts(servers)
    assert counted == {word: list(range(1, count + 1)) for word, count in words.items()}
