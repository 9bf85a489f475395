"""Plans by load in a mixed cluster: an Apache broker among ours, and Apache Kafka's controller.

Apache's broker publishes nothing, so its load is estimated by polling and marked so. Apache's
controller knows no plans: `apply` hands it the moves by the public API, throttled as on ours.
"""

from pathlib import Path

from tests.cli.conftest import CommandLine
from tests.cli.test_rebalance_run import plan_file
from tests.interop.conftest import MakeCluster
from tests.interop.harness.members import wait_until
from tests.interop.harness.mixed import APACHE, OURS, MixedCluster
from tests.interop.harness.traffic import Traffic, check_nothing_lost, read_all
from tests.interop.test_controllers import fill

from odradek.client import Blocking
from odradek.wire.errors import ErrorCode
from odradek.wire.topics import TopicPartition

MEMBERS = {1: APACHE, 2: OURS, 3: OURS}
HOMES = {0: [1, 2], 1: [2, 1], 2: [1, 3]}
AWAY = {0: [3, 2], 1: [3, 1], 2: [2, 3]}


def throttle(cluster: MixedCluster, odradek: CommandLine) -> list[str]:
    """What of a throttle is set on the topic and the brokers."""
    owners = [("--topic", "t"), *(("--broker", str(id)) for id in MEMBERS)]
    settings = [item for of in owners for item in odradek.json("configs", "get", *of)]
    return [item["name"] for item in settings if "throttled" in item["name"] and item["value"]]


def known_controller(cluster: MixedCluster, broker: int) -> int:
    """The controller, as one broker has heard of it."""
    with Blocking([cluster.address(broker)], timeout_s=30) as client:
        return client.run(client.admin.describe_cluster()).controller_id


def forced(cluster: MixedCluster) -> set[ErrorCode | None]:
    """A plan's moves, sent to a controller that knows no plans: it must not start them at once."""
    with cluster.admin() as client:
        targets = {TopicPartition("t", 0): HOMES[0], TopicPartition("t", 1): None}
        outcomes = client.run(client.admin.move_for_plan("20261117-9", targets, {}))
    return {None if outcome is None else outcome.error for outcome in outcomes.values()}


def test_plans_beside_apache_kafka(make_cluster: MakeCluster, tmp_path: Path) -> None:
    cluster = make_cluster(MEMBERS, odradek_telemetry_interval_ms=500)
    cluster.start()
    cluster.make_controller(2)
    cluster.create_topic("t", HOMES)
    fill(cluster, "t", len(HOMES))
    odradek = CommandLine(cluster.bootstrap_servers)
    with Traffic(cluster.bootstrap_servers, "t") as traffic:
        wait_until(
            lambda: cluster.exists("/brokers/topics/__odradek_telemetry"), "our brokers publish"
        )
        odradek("load", "poll", "--brokers", "1", "--interval", "1", "--count", "2")
        load = odradek.json("load")
        sources = {row["broker"]: row["source"] for row in load["brokers"]}
        assert sources == {1: "estimated", 2: "measured", 3: "measured"}

        there = [("t", number, HOMES[number], AWAY[number]) for number in HOMES]
        back = [("t", number, AWAY[number], HOMES[number]) for number in HOMES]
        file = plan_file(tmp_path, "20261117-1", there)
        assert "3 moves handed to the controller" in odradek("rebalance", "apply", file, "--wait")
        cluster.wait_for_move("t", AWAY)
        wait_until(lambda: not throttle(cluster, odradek), "the controller took its throttle back")

        cluster.make_controller(1)
        wait_until(lambda: {known_controller(cluster, id) for id in MEMBERS} == {1}, "all know it")
        refused = forced(cluster)
        assert refused == {ErrorCode.INVALID_REPLICA_ASSIGNMENT}, "no move, and no cancellation"
        file = plan_file(tmp_path, "20261117-2", back)
        done = odradek.run("rebalance", "apply", file, "--throttle", "20MB")
        assert done.exit_code == 0, done.output
        assert "the active controller is Apache Kafka's" in done.stderr, done.output
        assert "plan 20261117-2: done, 3 of 3 moves done" in done.stdout
        cluster.wait_for_move("t", HOMES)
        assert throttle(cluster, odradek) == []
        states = {row["id"]: row["state"] for row in odradek.json("rebalance", "status", "--all")}
        assert states == {"20261117-1": "done", "20261117-2": "done"}
    check_nothing_lost(traffic, read_all(cluster.bootstrap_servers, "t", len(HOMES)))
    assert cluster.check_logs_are_equal("t") > 0
