"""Apache Kafka's brokers and ours as one cluster: each leads, each is killed, nothing is lost."""

import subprocess
import sys
from functools import partial

import pytest
from confluent_kafka import Producer
from tests.interop.conftest import MakeCluster
from tests.interop.harness.members import wait_until
from tests.interop.harness.mixed import APACHE, OURS, PROTOCOLS, Kind, MixedCluster
from tests.interop.harness.toolbox import Toolbox
from tests.interop.harness.traffic import Traffic, check_nothing_lost, read_all

PARTITIONS = 3
MIXTURES = {
    "two Apache and one of ours": {1: APACHE, 2: APACHE, 3: OURS},
    "two of ours and one Apache": {1: OURS, 2: OURS, 3: APACHE},
}


def some_more(traffic: Traffic, records: int = 200) -> None:
    """The producer got on: that many more were acknowledged."""
    start = traffic.count
    wait_until(
        lambda: traffic.count >= start + records,
        f"more than {start} acknowledged records ({traffic.failed})",
    )


def create_with_either_side(cluster: MixedCluster, tools: Toolbox) -> None:
    tools.run(
        "kafka-topics",
        *("--bootstrap-server", cluster.bootstrap_servers, "--create", "--topic", "theirs"),
        *("--partitions", str(PARTITIONS), "--replication-factor", "3"),
        *("--config", "min.insync.replicas=2", "--config", "segment.bytes=100000"),
    )
    subprocess.run(
        [
            *(sys.executable, "-m", "odradek", "topics", "create", "ours"),
            *("--bootstrap-server", cluster.bootstrap_servers),
            *("--partitions", str(PARTITIONS), "--replication-factor", "3"),
            *("--config", "min.insync.replicas=2", "--config", "segment.bytes=100000"),
        ],
        check=True,
    )
    for topic in ("theirs", "ours"):
        cluster.wait_for_topic(topic)
        assert len(cluster.states(topic)) == PARTITIONS


def leaders(cluster: MixedCluster, topic: str) -> set[int]:
    """Who leads the topic's partitions, according to ZooKeeper."""
    return {state["leader"] for _, state in cluster.states(topic).values()}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("members", MIXTURES.values(), ids=MIXTURES.keys())
def test_each_leads_and_each_is_killed(
    members: dict[int, Kind], protocol: str, make_cluster: MakeCluster, tools: Toolbox
) -> None:
    cluster = make_cluster(members, inter_broker_protocol_version=protocol)
    cluster.start()
    create_with_either_side(cluster, tools)
    both = [Traffic(cluster.bootstrap_servers, topic) for topic in ("theirs", "ours")]
    with both[0], both[1]:
        for broker, heir, last in ((1, 2, 3), (2, 3, 1), (3, 1, 2)):
            for leave in (cluster.stop, cluster.kill):
                for traffic in both:
                    cluster.lead(traffic.topic, [broker, heir, last])
                    assert leaders(cluster, traffic.topic) == {broker}
                for traffic in both:
                    some_more(traffic)
                leave(broker)
                if leave == cluster.stop:  # it was not gone before its leaderships were
                    for traffic in both:
                        assert leaders(cluster, traffic.topic) == {heir}
                for traffic in both:
                    some_more(traffic)
                cluster.start(broker)
                for traffic in both:
                    cluster.wait_for_isr(traffic.topic)
    for traffic in both:
        assert cluster.check_logs_are_equal(traffic.topic) > 0
        for broker in cluster.brokers:
            cluster.lead(traffic.topic, [broker, *(set(cluster.brokers) - {broker})])
            found = read_all(cluster.address(broker), traffic.topic, PARTITIONS)
            check_nothing_lost(traffic, found)
        cluster.check_logs_are_equal(traffic.topic)


def is_led_by(cluster: MixedCluster, broker: int) -> bool:
    return leaders(cluster, "t") == {broker}


def write_unreplicated(cluster: MixedCluster, leader: int, *values: int) -> None:
    """Each in a batch of its own, acknowledged by the leader alone."""
    producer = Producer({"bootstrap.servers": cluster.address(leader), "acks": "1", "log_level": 2})
    for value in values:
        producer.produce("t", value=b"%d" % value, partition=0)
        assert producer.flush(60) == 0


def test_a_tail_that_only_a_dead_leader_had_is_given_up(make_cluster: MakeCluster) -> None:
    """Each kind has such a tail once, and finds by its first fetches where the other's differs."""
    cluster = make_cluster(
        {1: APACHE, 2: OURS},
        inter_broker_protocol_version=PROTOCOLS[-1],
        zookeeper_session_timeout_ms=9000,
        offsets_topic_replication_factor=1,
    )
    cluster.start()
    cluster.create_topic("t", {0: [1, 2]})
    kept: list[int] = []
    for number, (dying, heir) in enumerate([(1, 2), (2, 1)], start=1):
        cluster.lead("t", [dying, heir])
        tail = list(range(100 * number, 100 * number + 20))
        truth = 100 * number + 50
        cluster.brokers[heir].pause()  # for less than its session
        try:
            # The one fetch that was under way may get the first batches, and none is behind it.
            write_unreplicated(cluster, dying, *tail)
            cluster.kill(dying)
        finally:
            cluster.brokers[heir].resume()
        wait_until(partial(is_led_by, cluster, heir), f"broker {heir} to lead")
        write_unreplicated(cluster, heir, truth)
        one, other = (cluster.log_bytes(broker, "t", 0) for broker in (dying, heir))
        assert not one.startswith(other) and not other.startswith(one), "the tails differ"
        cluster.start(dying)
        assert cluster.check_logs_are_equal("t") > 0
        found = list(read_all(cluster.address(heir), "t", 1).values())
        assert found[: len(kept)] == kept
        *copied, last = found[len(kept) :]
        assert (copied, last) == (tail[: len(copied)], truth)
        kept = found
