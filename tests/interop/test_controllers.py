"""Ours, Apache Kafka's and ours again is controller, while work is under way."""

import pytest
from confluent_kafka import Producer
from tests.interop.conftest import MakeCluster
from tests.interop.harness.members import wait_until
from tests.interop.harness.mixed import APACHE, OURS, PROTOCOLS, Kind, MixedCluster
from tests.interop.harness.traffic import Traffic, check_nothing_lost, read_all

from odradek.client import ConfigChange, ConfigOperation, Resource, ResourceType, check

MEMBERS = {1: OURS, 2: APACHE, 3: OURS, 4: APACHE}
SLOW_BYTES_PER_S = 20_000
PIECES, PIECE_BYTES = 40, 100_000
TARGET = {0: [3, 4], 1: [3, 1], 2: [4, 1]}


def throttle(cluster: MixedCluster, topic: str, bytes_per_s: int | None) -> None:
    """Hold back every move of replicas, or let them go."""

    def change(name: str, value: object) -> ConfigChange:
        if bytes_per_s is None:
            return ConfigChange(name, None, ConfigOperation.DELETE)
        return ConfigChange(name, str(value))

    sides = ("leader", "follower")
    changes = {
        Resource(ResourceType.TOPIC, topic): [
            change(f"{side}.replication.throttled.replicas", "*") for side in sides
        ]
    }
    for broker in cluster.running():
        changes[Resource(ResourceType.BROKER, str(broker))] = [
            change(f"{side}.replication.throttled.rate", bytes_per_s) for side in sides
        ]
    with cluster.admin() as client:
        check(client.run(client.admin.alter_configs(changes)))


def fill(cluster: MixedCluster, topic: str, partitions: int) -> None:
    """More than one fetch takes, so that a throttled move cannot end soon."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for number in range(PIECES):
        for partition in range(partitions):
            value = b"%d " % -(1 + number * partitions + partition)
            producer.produce(topic, value=value.ljust(PIECE_BYTES), partition=partition)
    assert producer.flush(60) == 0


def succeed(cluster: MixedCluster, dying: int, kind: Kind) -> None:
    """Kill the controller, and see to it that one of this kind is next."""
    assert cluster.controller() == dying
    cluster.kill(dying)
    wait_until(lambda: cluster.controller() not in (dying, None), "a new controller")
    # A standby of ours does not wait for that. One of Kafka's that is elected before takes the dead
    # broker for alive, and complains when it finds out in the middle of a deletion.
    wait_until(
        lambda: not cluster.exists(f"/brokers/ids/{dying}"), f"the session of {dying} to end"
    )
    heir = next(broker for broker in cluster.of_kind(kind) if broker in cluster.running())
    cluster.make_controller(heir)


def under_way(cluster: MixedCluster) -> bool:
    with cluster.admin() as client:
        moving = client.run(client.admin.list_reassignments())
    return len(moving) > 0 and cluster.exists("/admin/delete_topics/doomed")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_move_and_a_deletion_outlive_their_controllers(
    protocol: str, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster(MEMBERS, inter_broker_protocol_version=protocol)
    cluster.start()
    cluster.make_controller(1)
    cluster.create_topic("doomed", {0: [1, 2, 4], 1: [3, 4, 2]})
    cluster.create_topic("moving", {0: [2, 3], 1: [3, 2], 2: [2, 4]})
    fill(cluster, "moving", len(TARGET))
    throttle(cluster, "moving", SLOW_BYTES_PER_S)
    with Traffic(cluster.bootstrap_servers, "moving") as traffic:
        cluster.reassign("moving", TARGET)
        cluster.kill(4)  # the deletion has to wait for it, and so has the move
        wait_until(lambda: not cluster.exists("/brokers/ids/4"), "the session of broker 4 to end")
        with cluster.admin() as client:
            check(client.run(client.admin.delete_topics(["doomed"])))
        assert under_way(cluster)

        succeed(cluster, dying=1, kind=APACHE)
        assert under_way(cluster)
        cluster.start(1)
        assert under_way(cluster)

        succeed(cluster, dying=2, kind=OURS)
        assert under_way(cluster)
        cluster.start(2)
        assert under_way(cluster)

        cluster.start(4)
        wait_until(lambda: not cluster.exists("/admin/delete_topics/doomed"), "the deletion")
        throttle(cluster, "moving", None)
        cluster.wait_for_move("moving", TARGET)
    assert not cluster.exists("/brokers/topics/doomed")
    wait_until(
        lambda: not list(cluster.directory.glob("broker-*/doomed-[0-9]")), "directories to go"
    )
    check_nothing_lost(traffic, read_all(cluster.bootstrap_servers, "moving", len(TARGET)))
    assert cluster.check_logs_are_equal("moving") > len(TARGET) * PIECES * PIECE_BYTES
    wait_until(
        lambda: not list(cluster.directory_of(2).glob("moving-[0-9]")), "the old replicas to go"
    )
