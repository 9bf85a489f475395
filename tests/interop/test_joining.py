"""A broker of ours in a running cluster of Apache Kafka: it joins, controls, leads and leaves, and
Apache Kafka goes on with its directory."""

import pytest
from tests.interop.conftest import MakeCluster
from tests.interop.harness.mixed import APACHE, OURS
from tests.interop.harness.traffic import Traffic, check_nothing_lost, read_all
from tests.interop.test_one_cluster import leaders, some_more

PARTITIONS = 2
RELEASES = ("2.8", "3.0", "3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "3.8", "3.9")


@pytest.mark.slow
@pytest.mark.parametrize("protocol", RELEASES)
def test_ours_joins_controls_leads_and_leaves(protocol: str, make_cluster: MakeCluster) -> None:
    cluster = make_cluster(
        {1: APACHE, 2: APACHE, 3: OURS},
        inter_broker_protocol_version=protocol,
        offsets_topic_replication_factor=2,
        zookeeper_session_timeout_ms=9000,
    )
    cluster.start(1, 2)
    cluster.create_topic("t", {0: [1, 2], 1: [2, 1]}, min_insync_replicas="2")
    given = cluster.topic_id("t")
    assert given is not None
    with Traffic(cluster.bootstrap_servers, "t") as before:
        some_more(before)
        cluster.start(3)
        cluster.make_controller(3)
        everywhere = {number: [3, 1, 2] for number in range(PARTITIONS)}
        cluster.reassign("t", everywhere)
        cluster.wait_for_move("t", everywhere)
        cluster.lead("t", [3, 1, 2])
        assert leaders(cluster, "t") == {3}
        some_more(before)
    cluster.create_topic("u", {0: [1, 3], 1: [3, 1]})
    assert cluster.controller() == 3
    with Traffic(cluster.bootstrap_servers, "u") as meanwhile:
        some_more(meanwhile)
        cluster.stop(3)
        some_more(meanwhile)
        written = [cluster.log_bytes(3, "t", number) for number in range(PARTITIONS)]
        cluster.become(3, APACHE)
        cluster.start(3)
        for topic in ("t", "u"):
            cluster.wait_for_isr(topic)
            cluster.lead(topic, [3, 1, 2] if topic == "t" else [3, 1])
            assert leaders(cluster, topic) == {3}
        some_more(meanwhile)
    for traffic in (before, meanwhile):
        check_nothing_lost(traffic, read_all(cluster.address(3), traffic.topic, PARTITIONS))
        assert cluster.check_logs_are_equal(traffic.topic) > 0
    for number in range(PARTITIONS):
        # Nobody wrote to this topic meanwhile.
        assert cluster.log_bytes(3, "t", number) == written[number] != b""
        content = (cluster.directory_of(3) / f"t-{number}" / "partition.metadata").read_bytes()
        assert content == f"version: 0\ntopic_id: {given}".encode()
    assert cluster.topic_id("t") == given
