"""One cluster with brokers of older Apache Kafka: each is killed, nothing is lost."""

from pathlib import Path

import pytest
from tests.interop.conftest import MakeCluster
from tests.interop.harness.kafka import KAFKA_2_8, KAFKA_3_5, is_here
from tests.interop.harness.mixed import APACHE, OURS
from tests.interop.harness.traffic import Traffic, check_nothing_lost, read_all
from tests.interop.test_one_cluster import some_more

PARTITIONS = 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "protocol"), [(KAFKA_2_8, "2.8"), (KAFKA_3_5, "3.5")], ids=["2.8", "3.5"]
)
def test_each_is_killed(version: Path, protocol: str, make_cluster: MakeCluster) -> None:
    if not is_here(version):
        pytest.skip(f"Apache Kafka {protocol} is not here: run `make peers`")
    cluster = make_cluster(
        {1: OURS, 2: APACHE, 3: OURS},
        kafka=version,
        inter_broker_protocol_version=protocol,
    )
    cluster.start()
    replicas = {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}
    cluster.create_topic("t", replicas, min_insync_replicas="2")
    with Traffic(cluster.bootstrap_servers, "t") as traffic:
        for broker in (2, 1):
            cluster.make_controller(broker)
            some_more(traffic)
            cluster.kill(broker)
            some_more(traffic)
            cluster.start(broker)
            cluster.wait_for_isr("t")
    check_nothing_lost(traffic, read_all(cluster.bootstrap_servers, "t", PARTITIONS))
    assert cluster.check_logs_are_equal("t") > 0
