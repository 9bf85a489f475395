"""MirrorMaker 2 between Apache Kafka and our brokers, which are killed meanwhile."""

from pathlib import Path

import pytest
from tests.interop.harness.connect import MIRROR_MAKER, JavaProgram
from tests.interop.harness.kafka import KafkaCluster
from tests.interop.harness.members import wait_until
from tests.interop.harness.traffic import Traffic, read_all
from tests.interop.test_connect import cluster, create  # noqa: F401  # a fixture
from tests.interop.test_one_cluster import some_more

from odradek import Cluster
from odradek.client import Blocking


@pytest.mark.slow
def test_each_mirrors_the_other(cluster: Cluster, tmp_path: Path) -> None:  # noqa: F811
    """A topic of Apache Kafka's is mirrored to ours and one of ours to Apache Kafka."""
    with KafkaCluster(brokers=1) as kafka:
        theirs, ours = kafka.bootstrap_servers, cluster.bootstrap_servers
        create(theirs, "a", 1)
        create(ours, "b", 3)
        settings = {
            "clusters": "theirs, ours",
            "theirs.bootstrap.servers": theirs,
            "ours.bootstrap.servers": ours,
            "theirs->ours.enabled": "true",
            "theirs->ours.topics": "a",
            "ours->theirs.enabled": "true",
            "ours->theirs.topics": "b",
            # A flow makes offset-syncs topics where it reads, the others where it writes.
            "theirs->ours.replication.factor": 3,
            "ours->theirs.replication.factor": 1,
            "theirs->ours.offset-syncs.topic.replication.factor": 1,
            "ours->theirs.offset-syncs.topic.replication.factor": 3,
            **{
                f"{place}.{kind}.replication.factor": copies
                for place, copies in (
                    *(("theirs->ours", 3), ("ours->theirs", 1)),
                    *(("theirs", 1), ("ours", 3)),
                )
                for kind in (
                    *("checkpoints.topic", "heartbeats.topic"),
                    *("offset.storage", "status.storage", "config.storage"),
                )
            },
            "plugin.discovery": "service_load",
            "refresh.topics.interval.seconds": 2,
            "sync.topic.acls.enabled": "false",
            "dedicated.mode.enable.internal.rest": "false",
            "offset.flush.interval.ms": 500,
            "metadata.max.age.ms": 2000,
        }
        there = Traffic(theirs, "a", pause_s=0.05)
        here = Traffic(ours, "b", pause_s=0.05)
        with JavaProgram(MIRROR_MAKER, tmp_path, settings) as mirror:
            mirrored = [(ours, "theirs.a", there), (theirs, "ours.b", here)]
            with there, here:
                for traffic in (there, here):
                    some_more(traffic)
                for servers, topic, _ in mirrored:
                    wait_for(mirror, servers, topic, {0})
                for broker in cluster.ids:
                    cluster.kill(broker)
                    for traffic in (there, here):
                        some_more(traffic)
                    cluster.start(broker)
            for servers, topic, traffic in mirrored:
                wanted = set(traffic.numbers)
                assert not traffic.failed
                assert wait_for(mirror, servers, topic, wanted) == wanted


def wait_for(mirror: JavaProgram, servers: str, topic: str, wanted: set[int]) -> set[int]:
    """Until a mirrored topic has at least these numbers; all that it has."""
    found: set[int] = set()

    def arrived() -> bool:
        mirror.check_runs()
        with Blocking(servers, timeout_s=60) as client:
            if topic in client.run(client.admin.list_topics()):
                found.update(read_all(servers, topic, 1).values())
        return found >= wanted

    wait_until(arrived, f"{len(wanted)} records of {topic}")
    return found
