"""A data directory goes from one program to the other: same id, same files, clean stop or kill -9.

A producer goes on all the while, so the heir must know its sequence numbers from the directory; a
consumer group's offsets and the offsets of timestamps must be found by the heir too.
"""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.interop.conftest import MakeCluster
from tests.interop.harness.members import wait_until
from tests.interop.harness.mixed import APACHE, OURS, Kind, MixedCluster
from tests.interop.harness.traffic import Traffic, check_nothing_lost, read_all

PARTITIONS = 2
ALONE = {"offsets_topic_replication_factor": 1, "offsets_topic_num_partitions": 1}


def some_more(traffic: Traffic, records: int = 1000) -> None:
    wanted = traffic.count + records
    wait_until(lambda: traffic.count >= wanted, f"{wanted} acknowledged records ({traffic.failed})")


def group_of(cluster: MixedCluster) -> Consumer:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "log_level": 2}
    return Consumer(settings)


def commit(cluster: MixedCluster, offsets: dict[int, int]) -> None:
    consumer = group_of(cluster)
    places = [TopicPartition("t", partition, offset) for partition, offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def committed(cluster: MixedCluster) -> dict[int, int]:
    consumer = group_of(cluster)
    asked = [TopicPartition("t", partition) for partition in range(PARTITIONS)]
    found = {place.partition: place.offset for place in consumer.committed(asked, timeout=60)}
    consumer.close()
    return found


def offsets_at(cluster: MixedCluster, timestamp_ms: int) -> dict[int, int]:
    consumer = group_of(cluster)
    asked = [TopicPartition("t", partition, timestamp_ms) for partition in range(PARTITIONS)]
    found = {place.partition: place.offset for place in consumer.offsets_for_times(asked, 60)}
    consumer.close()
    return found


# What is in a directory changed with topic ids.
@pytest.mark.parametrize("protocol", ["2.6", "2.8", "3.9"])
@pytest.mark.parametrize("leave", ["stop", "kill"])
@pytest.mark.parametrize("kind", [APACHE, OURS], ids=["Apache first", "ours first"])
def test_one_directory_two_programs(
    kind: Kind, leave: str, protocol: str, make_cluster: MakeCluster, tmp_path: Path
) -> None:
    cluster = make_cluster({1: kind}, inter_broker_protocol_version=protocol, **ALONE)
    cluster.start()
    cluster.create_topic("t", {0: [1], 1: [1]}, segment_bytes="50000", index_interval_bytes="500")
    with Traffic(cluster.bootstrap_servers, "t") as traffic:
        some_more(traffic)
        offsets = {partition: 100 + partition for partition in range(PARTITIONS)}
        commit(cluster, offsets)
        middle = traffic.times[max(traffic.acknowledged) // 2]
        places = offsets_at(cluster, middle)
        for heir in (OURS, APACHE) if kind is APACHE else (APACHE, OURS):
            some_more(traffic)
            getattr(cluster, leave)(1)
            before = [cluster.log_bytes(1, "t", number) for number in range(PARTITIONS)]
            cluster.become(1, heir)
            cluster.start(1)
            cluster.wait_for_isr("t")
            some_more(traffic)
            after = [cluster.log_bytes(1, "t", number) for number in range(PARTITIONS)]
            for old, new in zip(before, after, strict=True):
                assert new.startswith(old), "the heir changed what was written before it"
            assert committed(cluster) == offsets
            assert offsets_at(cluster, middle) == places
    check_nothing_lost(traffic, read_all(cluster.bootstrap_servers, "t", PARTITIONS))
    if leave == "stop":
        (log,) = tmp_path.rglob("*.odradek.log")
        assert "unclean" not in log.read_text(), "Apache Kafka's clean shutdown is one"
