"""ISR changes and producer ids through the controller, ours or Apache Kafka's, for leaders of the
other kind. docs/spec/protocol-ladder.md sections 3 and 4; acceptance behaviours 19, 26, 27, 29.
"""

import asyncio

import pytest
from tests.interop.conftest import MakeCluster
from tests.interop.harness.members import wait_until
from tests.interop.harness.mixed import APACHE, OURS, Kind, MixedCluster
from tests.interop.harness.traffic import Traffic, check_nothing_lost, read_all
from tests.interop.test_one_cluster import some_more

from odradek.wire.connection import Connection
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.init_producer_id import InitProducerIdRequest

NOTIFICATIONS = "/isr_change_notification"
PROTOCOL = "3.9"
PARTITIONS = 4


def isrs(cluster: MixedCluster, topic: str) -> list[set[int]]:
    return [set(state["isr"]) for _, state in cluster.states(topic).values()]


def producer_id(address: str) -> int | None:
    """An id from this broker, if it has one yet."""

    async def ask() -> int | None:
        host, port = address.split(":")
        connection = await Connection.open(host, int(port), timeout=20)
        try:
            response = await connection.request(InitProducerIdRequest(transactional_id=None), 4)
        finally:
            connection.close()
        if response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return None
        assert response.error_code == ErrorCode.NONE, response
        found: int = response.producer_id
        return found

    return asyncio.run(ask())


def take_producer_ids(cluster: MixedCluster) -> list[int]:
    """One from each broker that runs."""
    taken: list[int] = []
    for broker in cluster.running():

        def take(address: str = cluster.address(broker)) -> bool:
            found = producer_id(address)
            taken.extend([] if found is None else [found])
            return found is not None

        wait_until(take, f"a producer id of broker {broker}")
    return taken


@pytest.mark.parametrize("controls", [APACHE, OURS], ids=lambda kind: kind.value)
def test_a_leader_changes_the_isr_through_a_controller_of_the_other_kind(
    controls: Kind, make_cluster: MakeCluster
) -> None:
    leads = OURS if controls is APACHE else APACHE
    cluster = make_cluster(
        {1: controls, 2: leads, 3: leads},
        inter_broker_protocol_version=PROTOCOL,
        replica_lag_time_max_ms=2000,
        zookeeper_session_timeout_ms=9000,
    )
    cluster.start()
    cluster.make_controller(1)
    cluster.create_topic(
        "t", {number: [2, 3, 1] for number in range(PARTITIONS)}, min_insync_replicas="1"
    )
    cluster.create_topic("moving", {0: [2, 3]})
    ids = take_producer_ids(cluster)
    with Traffic(cluster.bootstrap_servers, "t") as traffic:
        some_more(traffic)
        follower = cluster.brokers[3]
        follower.pause()  # for less than its session
        try:
            wait_until(lambda: all(3 not in isr for isr in isrs(cluster, "t")), "a shrink")
        finally:
            follower.resume()
        cluster.wait_for_isr("t")
        some_more(traffic)
        cluster.reassign("moving", {0: [2, 1]})
        cluster.wait_for_move("moving", {0: [2, 1]})
        ids += take_producer_ids(cluster)
        # The controller dies while a follower is away: the leader finds the next one.
        cluster.stop(3)
        cluster.kill(1)
        cluster.start(3)
        cluster.wait_for_isr("t")
        cluster.start(1)
        cluster.wait_for_isr("t")
        some_more(traffic)
        ids += take_producer_ids(cluster)
    check_nothing_lost(traffic, read_all(cluster.bootstrap_servers, "t", PARTITIONS))
    assert cluster.check_logs_are_equal("t") > 0
    assert len(set(ids)) == len(ids)
    assert cluster.child_changes(NOTIFICATIONS) == 0, "no leader has written its state itself"
