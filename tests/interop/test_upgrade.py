"""A mixed cluster is upgraded broker by broker from the oldest protocol to the latest, under load.

docs/spec/protocol-ladder.md section 6; acceptance behaviours 3, 5, 6 and 9.
"""

import pytest
from tests.interop.conftest import MakeCluster
from tests.interop.harness.members import wait_until
from tests.interop.harness.mixed import APACHE, OURS, PROTOCOLS
from tests.interop.harness.traffic import Traffic, check_nothing_lost, read_all
from tests.interop.test_one_cluster import some_more

PARTITIONS = 3


@pytest.mark.parametrize(
    "order", [(2, 3, 1), (1, 3, 2)], ids=["Apache Kafka first", "Apache Kafka last"]
)
def test_a_rolling_upgrade_loses_nothing(order: tuple[int, ...], make_cluster: MakeCluster) -> None:
    cluster = make_cluster({1: OURS, 2: APACHE, 3: OURS}, offsets_topic_replication_factor=3)
    cluster.start()
    replicas = {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}
    cluster.create_topic("t", replicas, min_insync_replicas="2")
    assert cluster.topic_id("t") is None, "not at the oldest protocol"
    with Traffic(cluster.bootstrap_servers, "t") as traffic:
        for broker in order:
            some_more(traffic)
            cluster.stop(broker)
            cluster.upgrade(broker, PROTOCOLS[-1])
            cluster.start(broker)
            cluster.wait_for_isr("t")
        some_more(traffic)
        given = cluster.topic_id("t")
        assert given is not None
        # Each kind is controller once more: no topic gets another id.
        for broker in (2, 1):
            cluster.make_controller(broker)
            some_more(traffic)
        assert cluster.topic_id("t") == given
    check_nothing_lost(traffic, read_all(cluster.bootstrap_servers, "t", PARTITIONS))
    assert cluster.check_logs_are_equal("t") > 0
    files = [
        cluster.directory_of(broker) / f"t-{partition}" / "partition.metadata"
        for broker in cluster.brokers
        for partition in range(PARTITIONS)
    ]
    wait_until(lambda: all(file.exists() for file in files), "every replica to have its id")
    assert {file.read_bytes() for file in files} == {f"version: 0\ntopic_id: {given}".encode()}
