"""`odradek reassign` on three brokers: plan, cost, execute with a throttle, verify, cancel."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import CommandLine, isr_of

from odradek import Cluster

pytestmark = pytest.mark.process

BROKERS = 3


def replicas(odradek: CommandLine, topic: str) -> list[list[int]]:
    (described,) = odradek.json("topics", "describe", topic)
    return [part["replicas"] for part in described["partitions"]]


def rates(odradek: CommandLine, broker: int) -> list[str]:
    return [
        item["name"]
        for item in odradek.json("configs", "get", "--broker", str(broker))
        if "throttled.rate" in item["name"]
    ]


def test_plan_cost_execute_verify(odradek: CommandLine, tmp_path: Path) -> None:
    odradek("topics", "create", "moving", "--replicas", "1,1,1,1")
    odradek("produce", "moving", "-p", "0", input="x" * 1000 + "\n")
    plan, back = tmp_path / "plan.json", tmp_path / "back.json"
    asked = ["reassign", "generate", "-t", "moving", "-B", "1,2"]
    shown = odradek.json(*asked)
    assert len(shown["proposed"]["partitions"]) == 2, "half of them, and no more"
    (gains,) = [row for row in shown["cost"] if row["broker"] == 2]
    assert gains["gains"] == 2
    table = odradek(*asked, "--output", str(plan))
    assert "2 replicas to copy" in table

    assert odradek.run("reassign", "verify", str(plan)).exit_code == 1
    done = odradek("reassign", "execute", str(plan), "--throttle", "10MB", "--rollback", str(back))
    assert "2 partitions moved" in done
    assert "throttled to 10.0 MB/s" in done
    assert sorted(map(tuple, replicas(odradek, "moving"))) == [(1,), (1,), (2,), (2,)]
    verified = odradek.json("reassign", "verify", str(plan))
    assert verified["completed"]
    assert verified["throttles_cleared"]
    assert [rates(odradek, broker) for broker in (1, 2)] == [[], []]
    assert odradek("reassign", "list") == "nothing is being moved\n"

    odradek("reassign", "execute", str(back))
    assert replicas(odradek, "moving") == [[1], [1], [1], [1]]
    assert odradek("consume", "moving") == "x" * 1000 + "\n"


def test_a_plan_from_scratch_with_another_number_of_replicas(odradek: CommandLine) -> None:
    odradek("topics", "create", "scratch", "--replicas", "1,1")
    shown = odradek.json("reassign", "generate", "-t", "scratch", "--from-scratch", "-r", "2")
    assert [len(part["replicas"]) for part in shown["proposed"]["partitions"]] == [2, 2]


def test_a_move_that_cannot_finish_is_listed_and_cancelled(
    odradek: CommandLine, tmp_path: Path
) -> None:
    odradek("topics", "create", "stuck", "--replicas", "1:2")
    odradek("produce", "stuck", input="x" * 500_000 + "\n" + "x" * 500_000 + "\n")
    plan = tmp_path / "plan.json"
    move = {"topic": "stuck", "partition": 0, "replicas": [1, 3]}
    plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
    odradek("reassign", "execute", str(plan), "--no-wait", "--throttle", "1")
    (listed,) = odradek.json("reassign", "list")
    assert listed["adding"] == [3]
    verified = odradek.run("reassign", "verify", str(plan), "--json")
    assert verified.exit_code == 1
    assert json.loads(verified.stdout)["partitions"] == {"stuck-0": "in progress"}
    assert rates(odradek, 3), "nothing is cleared while something moves"
    assert "--additional" in odradek.refused("reassign", "execute", str(plan))
    assert "stuck-0 goes back to 1,2" in odradek("reassign", "cancel", str(plan))
    assert odradek.json("reassign", "list") == []
    assert replicas(odradek, "stuck") == [[1, 2]]
    assert not rates(odradek, 3)
    assert odradek("reassign", "cancel", "--all") == "nothing is being moved\n"


def test_a_move_that_is_cancelled_meanwhile_is_not_reported_as_done(
    odradek: CommandLine, tmp_path: Path
) -> None:
    odradek("topics", "create", "undone", "--replicas", "1,1")
    odradek("produce", "undone", "-p", "0", input="x" * 900_000 + "\n" + "x" * 900_000 + "\n")
    plan = tmp_path / "plan.json"
    moves = [{"topic": "undone", "partition": index, "replicas": [2]} for index in (0, 1)]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    command = [sys.executable, "-m", "odradek", "reassign", "execute", str(plan)]
    with subprocess.Popen(
        [*command, "--throttle", "1"],
        env={**os.environ, **odradek.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as executing:
        try:
            while [item["partition"] for item in odradek.json("reassign", "list")] != [0]:
                assert executing.poll() is None
            odradek("reassign", "cancel", str(plan))
            output, errors = executing.communicate(timeout=60)
        finally:
            executing.kill()
    assert executing.returncode == 1, output
    assert "1 partition moved" in output
    assert "undone-0: not moved: its replicas are 1" in errors
    assert errors.splitlines()[-1].startswith("Error: 1 partition of 2 not moved as planned")
    assert replicas(odradek, "undone") == [[1], [2]]


def test_a_plan_that_changes_the_replication_factor_is_pointed_out(
    odradek: CommandLine, tmp_path: Path
) -> None:
    odradek("topics", "create", "fewer", "--replicas", "1:2:3")
    plan = tmp_path / "plan.json"
    move = {"topic": "fewer", "partition": 0, "replicas": [1]}
    plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
    done = odradek("reassign", "execute", str(plan))
    assert "note: the replication factor of fewer changes from 3 to 1 in 1 partition" in done
    shown = odradek.json("reassign", "generate", "-t", "fewer", "-r", "2")
    assert shown["replication_changes"] == [
        {"topic": "fewer", "before": 1, "after": 2, "partitions": 1}
    ]


def test_a_plan_onto_brokers_that_are_not_there_is_refused(odradek: CommandLine) -> None:
    refused = odradek.refused("reassign", "generate", "--brokers", "1,77,78")
    assert "brokers 77, 78 are not alive; 1, 2, 3 are" in refused


def test_plans_that_cannot_be(odradek: CommandLine, tmp_path: Path) -> None:
    odradek("topics", "create", "still", "--replicas", "1")
    plan = tmp_path / "plan.json"

    def written(**move: object) -> str:
        plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
        return str(plan)

    unknown = written(topic="still", partition=0, replicas=[1, 9])
    assert "broker 9, which is not alive" in odradek.refused("reassign", "execute", unknown)
    missing = written(topic="still", partition=7, replicas=[1])
    assert "still-7 does not exist" in odradek.refused("reassign", "execute", missing)
    twice = written(topic="still", partition=0, replicas=[1, 1])
    assert "more than once" in odradek.refused("reassign", "execute", twice)
    plan.write_text("{")
    assert "not valid JSON" in odradek.refused("reassign", "execute", str(plan))
    plan.write_bytes(b"\xff")
    for verb in ("execute", "verify", "cancel"):
        assert "JSON is UTF-8, and this" in odradek.refused("reassign", verb, str(plan))
    assert "10MB" in odradek.refused("reassign", "execute", str(plan), "--throttle", "fast", code=2)
    assert "--all" in odradek.refused("reassign", "cancel", code=2)
    assert "nothing has to move" in odradek("reassign", "generate", "-t", "still", "-B", "1")


def test_preferred_leaders_come_back(odradek: CommandLine, cluster: Cluster) -> None:
    odradek("topics", "create", "led", "--replicas", "2:3")
    cluster.stop(2)
    cluster.wait_until(lambda: cluster.leader("led") == 3, "broker 3 to lead")
    cluster.start(2)
    cluster.wait_until(lambda: isr_of(cluster, "led") == {2, 3}, "a full ISR")
    assert "led-0 has a new leader" in odradek("elect", "--preferred", "--topic", "led")
    cluster.wait_until(lambda: cluster.leader("led") == 2, "broker 2 to lead")


def test_status_reports_a_broker_that_is_down_and_a_move_that_stalls(
    odradek: CommandLine, cluster: Cluster, tmp_path: Path
) -> None:
    odradek("topics", "create", "watched", "--replicas", "1:2", "-c", "min.insync.replicas=2")
    odradek("produce", "watched", input="x" * 900_000 + "\n" + "x" * 900_000 + "\n")
    assert "healthy: 3 brokers" in odradek("status")
    # The controller has changed if it was the broker that an earlier test stopped.
    assert {each["severity"] for each in odradek.json("status")["problems"]} <= {"notice"}
    plan = tmp_path / "plan.json"
    move = {"topic": "watched", "partition": 0, "replicas": [1, 3]}
    plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
    odradek("reassign", "execute", str(plan), "--no-wait", "--throttle", "1")
    cluster.kill(3)
    cluster.wait_until(lambda: "broker 3 is down" in odradek.run("status").stdout, "the news")
    result = odradek.run("status", "--json", "--interval", "0.1")
    assert result.exit_code == 1
    found = {item["kind"]: item for item in json.loads(result.stdout)["problems"]}
    assert found["broker-down"]["subject"] == "broker 3"
    assert found["move-stalled"]["reason"] == "broker 3 is down"
    cluster.start(3)
    odradek("reassign", "cancel", "--all")
    cluster.wait_until(lambda: odradek.run("status").exit_code == 0, "a healthy cluster")
