"""`odradek rebalance apply|status|stop|rollback|pause|resume` on three brokers."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import CommandLine, watching

from odradek import Cluster

pytestmark = pytest.mark.process

BROKERS = 3
BYTES = 300_000


def plan_file(
    path: Path,
    id: str,
    moves: Sequence[tuple[str, int, list[int], list[int]]],
    bytes_each: int = BYTES,
) -> str:
    """A plan by hand: no optimiser is needed to carry one out."""
    rows = [
        {
            "topic": topic,
            "partition": partition,
            "from": before,
            "to": after,
            "kind": "copy",
            "rule": "in",
            "gain": "",
            "bytes": bytes_each,
            "seconds": 1.0,
            "because_of": None,
        }
        for topic, partition, before, after in moves
    ]
    cost = {
        "bytes": bytes_each * len(rows),
        "copies": len(rows),
        "leaderships": 0,
        "seconds": 1.0,
        "rate": 1_000_000,
        "busiest": None,
        "busiest_bytes": 0,
    }
    plan = {
        "id": id,
        "created_ms": 1,
        "load_as_of_ms": 1,
        "moves": rows,
        "rules": [],
        "brokers": [],
        "cost": cost,
        "bound": 0,
        "coverage": 1.0,
        "evaluations": 0,
    }
    file = path / f"{id}.json"
    file.write_text(json.dumps(plan))
    return str(file)


def make(odradek: CommandLine, topic: str, replicas: str) -> None:
    odradek("topics", "create", topic, "--replicas", replicas)
    for partition in range(len(replicas.split(","))):
        lines = ("x" * 1000 + "\n") * (BYTES // 1000)
        odradek("produce", topic, "-p", str(partition), input=lines)


def where(cluster: Cluster, topic: str) -> list[list[int]]:
    found = cluster.topic(topic)
    assert found is not None
    parts = sorted(found.partitions, key=lambda part: part.partition_index)
    return [list(part.replica_nodes) for part in parts]


def rates(odradek: CommandLine, broker: int) -> dict[str, str]:
    settings = odradek.json("configs", "get", "--broker", str(broker))
    return {item["name"]: item["value"] for item in settings if "throttled" in item["name"]}


def test_a_plan_outlives_the_terminal_and_the_controller(
    cluster: Cluster, odradek: CommandLine, tmp_path: Path
) -> None:
    controller = cluster.controller_id()
    assert controller is not None
    here, there = [broker for broker in (1, 2, 3) if broker != controller]
    make(odradek, "loaded", f"{here},{here},{here},{here}")
    odradek("configs", "set", "--all-brokers", "odradek.moves.per.broker=1")
    odradek("configs", "set", "--all-brokers", "odradek.moves.per.broker.max=1")
    before = rates(odradek, here)
    file = plan_file(tmp_path, "20261117-1", [("loaded", n, [here], [there]) for n in range(4)])
    # The terminal is killed while it shows the progress.
    command = [sys.executable, "-m", "odradek", "rebalance", "apply", file]
    shown = subprocess.Popen(
        [*command, "--throttle", "300kB", "--wait"], env={**os.environ, **odradek.environment}
    )

    def progress() -> dict[str, Any]:
        found: dict[str, Any] = odradek.json("rebalance", "status")
        return found

    try:
        cluster.wait_until(lambda: there in where(cluster, "loaded")[0], "a move has begun")
    finally:
        shown.send_signal(signal.SIGKILL)
        shown.wait()
    middle = progress()
    assert middle["state"] == "running"
    assert middle["waiting"] + middle["moving"] > 0
    assert middle["moving"] <= 1, "the limit of a broker"
    assert rates(odradek, here) != before
    rival = plan_file(tmp_path, "20261117-2", [("loaded", 3, [here], [controller])])
    refused = odradek.refused("rebalance", "apply", rival)
    assert "stop it with `odradek rebalance stop 20261117-1`" in refused
    cluster.kill(controller)
    cluster.wait_until(
        lambda: where(cluster, "loaded") == [[there]] * 4, "the next controller finished it"
    )
    cluster.wait_until(
        lambda: rates(odradek, here) == before, "the throttle is gone, and no client removed it"
    )
    cluster.wait_until(lambda: progress()["state"] == "done", "the end is known")
    assert progress()["percent"] == 100
    cluster.start(controller)
    cluster.wait_until(lambda: rates(odradek, controller) == {}, "of one that was away, too")
    assert "plan 20261117-1: done, 4 of 4 moves done" in odradek("rebalance", "status")
    assert "1.2" not in odradek.refused("rebalance", "status", "nothing")


def test_stop_rollback_and_stale_plans(
    cluster: Cluster, odradek: CommandLine, tmp_path: Path
) -> None:
    make(odradek, "there", "1,1")
    odradek("configs", "set", "--broker", "2", "follower.replication.throttled.rate=7000000")
    moves = [("there", n, [1], [2]) for n in range(2)]
    file = plan_file(tmp_path, "20261117-5", moves)
    done = odradek("rebalance", "apply", file, "--wait", "--throttle", "20MB")
    assert "2 of 2 moves done" in done
    assert where(cluster, "there") == [[2], [2]]
    own = {"follower.replication.throttled.rate": "7000000"}
    cluster.wait_until(lambda: rates(odradek, 2) == own, "the throttle is what it was")

    stale = plan_file(tmp_path, "20261116-6", [("there", 0, [1], [3]), ("gone", 0, [1], [2])])
    assert "is stale: 2 of 2 partitions" in odradek.refused("rebalance", "apply", stale)
    assert odradek.json("rebalance", "apply", file)["accepted"] == 0, "nothing is left to do"

    # Another operator moves one on; it is left alone.
    other = tmp_path / "other.json"
    other.write_text(
        json.dumps(
            {"version": 1, "partitions": [{"topic": "there", "partition": 1, "replicas": [3]}]}
        )
    )
    odradek("reassign", "execute", str(other))
    back = odradek.json("rebalance", "rollback", "20261117-5", "--wait", "--throttle", "none")
    assert back["left_alone"] == ["there-1"]
    assert where(cluster, "there") == [[1], [3]]
    assert back["status"]["rollback_of"] == "20261117-5"
    stopped = odradek.json("rebalance", "stop", back["id"])
    assert (stopped["state"], stopped["moving"], stopped["waiting"]) == ("done", 0, 0)
    ids = [row["id"] for row in odradek.json("rebalance", "status", "--all")]
    assert {"20261117-5", back["id"]} <= set(ids)
    assert "20261116-6" not in ids, "a plan that was refused is not kept"


def test_a_pause_is_shown_until_it_is_over(odradek: CommandLine) -> None:
    paused = odradek.json("rebalance", "pause", "--for", "2h", "--because", "new switches")
    assert paused["until_ms"] - paused["at_ms"] == 7_200_000
    assert "new switches" in odradek.run("rebalance", "status", "--all").stderr
    assert odradek.json("rebalance", "resume") == {"pause": None}
    assert odradek.run("rebalance", "status", "--all").stderr == ""
    odradek.refused("rebalance", "pause", "--for", "soon", "--because", "x", code=2)


SETTINGS = """
[pace]
throttle = "300kB"
per-broker = 1
per-broker-max = 1
[heal]
replication-factor = 2
replication-after = "0s"
controller-after = "0s"
interval = "1s"
[topics]
excluded = ["(?!thin$).*"]
"""


def test_a_watcher_is_killed_while_it_raises_a_replication_factor(
    cluster: Cluster, odradek: CommandLine, tmp_path: Path
) -> None:
    """What it has begun goes on without it, and the next watcher begins nothing again. A topic
    that is created meanwhile is not touched, and the plan is not hindered by it."""
    make(odradek, "thin", "1,1,1")
    settings = tmp_path / "rebalance.toml"
    settings.write_text(SETTINGS)

    def plans() -> list[dict[str, Any]]:
        rows = odradek.json("rebalance", "status", "--all")
        return [row for row in rows if row["by"] == "watch: topic thin: too few replicas"]

    with watching(odradek, "--settings", str(settings)) as (watcher, _):
        cluster.wait_until(plans, "the watcher has made a plan")
        watcher.kill()
    odradek("topics", "create", "meanwhile", "--replicas", "1:2")
    odradek("produce", "meanwhile", input="kept\n")

    def is_raised() -> bool:
        found = cluster.topic("thin")
        assert found is not None
        return all(len(part.isr_nodes) == len(part.replica_nodes) == 2 for part in found.partitions)

    with watching(odradek, "--settings", str(settings)) as (_, said):
        cluster.wait_until(is_raised, "two replicas of each partition are in sync", timeout_s=60)
        cluster.wait_until(
            lambda: {row["state"] for row in plans()} <= {"done", "stopped"}, "it has ended"
        )
    assert all(replicas[0] == 1 for replicas in where(cluster, "thin")), "none has left"
    assert where(cluster, "meanwhile") == [[1, 2]]
    assert odradek("consume", "meanwhile") == "kept\n"
    assert not [text for text in said if text.startswith("could not look")]
    limits = odradek.json("configs", "get", "--all-brokers")
    assert {item["value"] for item in limits if item["name"] == "odradek.moves.per.broker"} == {"1"}


def test_the_watcher_replaces_a_broker_that_stays_away(
    cluster: Cluster, odradek: CommandLine
) -> None:
    controller = cluster.controller_id()
    assert controller is not None
    doomed, other = [broker for broker in (1, 2, 3) if broker != controller]
    odradek("topics", "create", "healed", "--replicas", f"{doomed}:{controller}")
    odradek("produce", "healed", input="kept\n")
    # Telemetry is gone with the broker, and healing does not wait for it.
    odradek("topics", "create", "__odradek_telemetry", "--replicas", str(doomed))
    waits = ["--broker-after", "1s", "--controller-after", "0s", "--interval", "1s"]
    with watching(odradek, *waits) as (_, texts):
        cluster.wait_until(
            lambda: "__odradek_watch" in odradek("groups", "list"), "the watcher is there"
        )
        cluster.kill(doomed)

        def is_whole() -> bool:
            found = cluster.topic("healed")
            assert found is not None
            (part,) = found.partitions
            return set(part.replica_nodes) == set(part.isr_nodes) == {controller, other}

        cluster.wait_until(is_whole, "both replicas are on brokers that are there")
    assert f"broker {doomed}: broker gone" in texts
    assert any(text.startswith(f"broker {doomed}: broker gone: plan ") for text in texts), texts
    cluster.start(doomed)
    assert odradek("consume", "healed") == "kept\n"
    plans = odradek.json("rebalance", "status", "--all")
    assert f"watch: broker {doomed}: broker gone" in {row["by"] for row in plans}
