"""kafka-reassign-partitions from Apache's brokers to ours and back, under either controller."""

import json
from pathlib import Path

import pytest
from tests.interop.conftest import MakeCluster
from tests.interop.harness.members import wait_until
from tests.interop.harness.mixed import APACHE, OURS, MixedCluster
from tests.interop.harness.toolbox import Toolbox
from tests.interop.harness.traffic import Traffic, check_nothing_lost, read_all
from tests.interop.test_controllers import fill

MEMBERS = {1: APACHE, 2: APACHE, 3: OURS, 4: OURS}
PARTITIONS = 3
SLOW_BYTES_PER_S = 20_000


class Reassigner:
    """The tool with a topic's files."""

    def __init__(self, tools: Toolbox, cluster: MixedCluster, home: Path) -> None:
        self._tools = tools
        self._cluster = cluster
        self._plan = home / "plan.json"
        self._topics = home / "topics.json"
        self._topics.write_text('{"topics": [{"topic": "t"}], "version": 1}')

    def run(self, *arguments: str) -> str:
        servers = ("--bootstrap-server", self._cluster.bootstrap_servers)
        return self._tools.run("kafka-reassign-partitions", *servers, *arguments)

    def with_plan(self, *arguments: str) -> str:
        return self.run("--reassignment-json-file", str(self._plan), *arguments)

    def generate(self, brokers: list[int]) -> dict[int, list[int]]:
        """Plan a move to these brokers, as the tool proposes it."""
        listed = ",".join(map(str, brokers))
        files = ("--topics-to-move-json-file", str(self._topics), "--broker-list", listed)
        printed = self.run("--generate", *files)
        proposal = printed.strip().splitlines()[-1]
        self._plan.write_text(proposal)
        return {part["partition"]: part["replicas"] for part in json.loads(proposal)["partitions"]}


@pytest.mark.parametrize("controller", [1, 3], ids=["Apache's controller", "our controller"])
def test_there_and_back(
    controller: int, make_cluster: MakeCluster, tools: Toolbox, tmp_path: Path
) -> None:
    cluster = make_cluster(MEMBERS)
    cluster.start()
    cluster.make_controller(controller)
    cluster.create_topic("t", {0: [1, 2], 1: [2, 1], 2: [1, 2]})
    fill(cluster, "t", PARTITIONS)
    tool = Reassigner(tools, cluster, tmp_path)
    with Traffic(cluster.bootstrap_servers, "t") as traffic:
        before = {number: replicas for number, (replicas, _) in cluster.states("t").items()}

        # Begun under a throttle, listed, looked at, given up.
        target = tool.generate([3, 4])
        assert all(sorted(replicas) == [3, 4] for replicas in target.values())
        started = tool.with_plan("--execute", "--throttle", str(SLOW_BYTES_PER_S))
        assert "Successfully started partition reassignments for t-0,t-1,t-2" in started
        assert f"The inter-broker throttle limit was set to {SLOW_BYTES_PER_S} B/s" in started
        listed = tool.run("--list")
        for number in target:
            assert f"t-{number}: replicas: " in listed, listed
        assert "is still in progress" in tool.with_plan("--verify")
        cancelled = tool.with_plan("--cancel")
        assert "Successfully cancelled partition reassignments for: t-0,t-1,t-2" in cancelled
        cluster.wait_for_move("t", before)
        assert "No partition reassignments found." in tool.run("--list")

        for brokers in ([3, 4], [1, 2]):
            target = tool.generate(brokers)
            tool.with_plan("--execute", "--throttle", "100000000")
            cluster.wait_for_move("t", target)
            verified = tool.with_plan("--verify")
            assert verified.count("is completed.") == PARTITIONS, verified
            assert "Clearing broker-level throttles on brokers 1,2,3,4" in verified
            assert "Clearing topic-level throttles on topic t" in verified
            check_directories(cluster, brokers)
    check_nothing_lost(traffic, read_all(cluster.bootstrap_servers, "t", PARTITIONS))
    assert cluster.check_logs_are_equal("t") > 0


def check_directories(cluster: MixedCluster, holders: list[int]) -> None:
    """Only the brokers that hold the topic have directories of it."""

    def who() -> set[int]:
        return {
            broker
            for broker in cluster.brokers
            if list(cluster.directory_of(broker).glob("t-[0-9]"))
        }

    wait_until(lambda: who() == set(holders), f"replicas on {holders} only")
