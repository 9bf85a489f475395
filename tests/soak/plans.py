"""Plans by load on real brokers, from telemetry to the last copy: `make plans-test`.

Too heavy for every test run. The parts that these scenarios are made of have tests of their own.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.cli.conftest import CommandLine
from tests.interop.harness.traffic import Traffic, check_nothing_lost, read_all

from odradek import Cluster

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(900)]

HOT = "hot"
PARTITIONS = 6
TELEMETRY = {"odradek.telemetry.interval.ms": "1000"}


def where(cluster: Cluster, topic: str) -> dict[int, list[int]]:
    found = cluster.topic(topic)
    assert found is not None
    return {part.partition_index: list(part.replica_nodes) for part in found.partitions}


def is_whole(cluster: Cluster, topic: str, brokers: set[int]) -> bool:
    """Every replica is in sync and on one of these brokers."""
    found = cluster.topic(topic)
    assert found is not None
    return all(
        set(part.replica_nodes) == set(part.isr_nodes) <= brokers and part.leader_id >= 0
        for part in found.partitions
    )


def test_a_hot_topic_is_levelled_under_load_while_the_controller_dies() -> None:
    """Three brokers, all load on two of them. The plan is made from what was measured, and carried
    out although the controller is killed in the middle; no acknowledged record is lost."""
    with Cluster(brokers=3, config=TELEMETRY) as cluster:
        odradek = CommandLine(cluster.bootstrap_servers)
        odradek("topics", "create", HOT, "--replicas", ",".join(["1:2"] * PARTITIONS))
        odradek("configs", "set", "--all-brokers", "odradek.moves.per.broker=1")
        odradek("configs", "set", "--all-brokers", "odradek.moves.per.broker.max=1")
        with Traffic(cluster.bootstrap_servers, HOT, pause_s=0.002) as traffic:

            def measured() -> bool:
                rows = odradek.json("load", "--topic", HOT)["partitions"]
                return len(rows) == PARTITIONS and all(row["in"] > 0 for row in rows)

            cluster.wait_until(measured, "the load of every partition is measured", timeout_s=300)
            plan = odradek.json("rebalance", "plan")
            moves = [move for move in plan["moves"] if move["topic"] == HOT]
            assert plan["coverage"] > 0.5
            assert any(3 in move["to"] for move in moves)
            assert all(move["rule"] and move["gain"] for move in moves), "each says why"
            odradek("rebalance", "apply", plan["id"], "--throttle", "2MB")
            cluster.wait_until(
                lambda: odradek.json("rebalance", "status")["done"] >= 1, "a move is done"
            )
            controller = cluster.controller_id()
            assert controller is not None
            cluster.kill(controller)
            cluster.wait_until(
                lambda: cluster.controller_id() not in (controller, None), "the next"
            )
            cluster.start(controller)
            cluster.wait_until(
                lambda: odradek.json("rebalance", "status")["state"] == "done",
                "the next controller finished the plan",
                timeout_s=300,
            )
        planned = {move["partition"]: move["to"] for move in moves}
        after = where(cluster, HOT)
        assert {number: after[number] for number in planned} == planned
        load = [sum(broker in replicas for replicas in after.values()) for broker in (1, 2, 3)]
        assert load[2] >= 2, f"{load}, were [6, 6, 0]: replicas of other topics count, too"
        check_nothing_lost(traffic, read_all(cluster.bootstrap_servers, HOT, PARTITIONS))
        assert traffic.count > 100


@contextmanager
def watching(odradek: CommandLine, *options: str) -> Iterator[list[str]]:
    """A watcher, and all that it has said, when it has ended."""
    command = [sys.executable, "-m", "odradek", "rebalance", "watch", "--json", *options]
    watcher = subprocess.Popen(
        command, env={**os.environ, **odradek.environment}, stdout=subprocess.PIPE, text=True
    )
    said: list[str] = []
    try:
        yield said
    finally:
        watcher.terminate()
        printed, _ = watcher.communicate()
        said += [json.loads(line)["text"] for line in printed.splitlines()]


def test_of_five_brokers_one_stays_away_and_one_comes_back_in_time() -> None:
    """The watcher restores full replication by itself, and moves nothing for the one that is back
    before the wait is over."""
    with Cluster(brokers=5, config=TELEMETRY) as cluster:
        odradek = CommandLine(cluster.bootstrap_servers)
        placed = ",".join(f"{n % 5 + 1}:{(n + 1) % 5 + 1}:{(n + 2) % 5 + 1}" for n in range(10))
        odradek("topics", "create", "kept", "--replicas", placed)
        odradek("produce", "kept", input="a\nb\nc\n")
        before = where(cluster, "kept")
        quick = ("--controller-after", "0s", "--interval", "1s")

        def is_watched() -> bool:
            groups = odradek.json("groups", "list")
            return any(row["id"] == "__odradek_watch" for row in groups)

        with watching(odradek, "--broker-after", "10min", *quick) as said:
            cluster.wait_until(is_watched, "the watcher is there", timeout_s=120)
            cluster.kill(5)
            cluster.wait_until(lambda: not is_whole(cluster, "kept", {1, 2, 3, 4, 5}), "5 is away")
            cluster.start(5)
            cluster.wait_until(lambda: is_whole(cluster, "kept", {1, 2, 3, 4, 5}), "5 is back")
        assert where(cluster, "kept") == before
        assert odradek.json("rebalance", "status", "--all") == []
        assert not [text for text in said if "plan" in text]

        controller = cluster.controller_id()
        assert controller is not None
        doomed = next(broker for broker in (5, 4) if broker != controller)
        with watching(odradek, "--broker-after", "2s", *quick) as said:
            cluster.wait_until(is_watched, "the watcher is there", timeout_s=120)
            cluster.kill(doomed)
            others = {1, 2, 3, 4, 5} - {doomed}
            cluster.wait_until(
                lambda: is_whole(cluster, "kept", others), "three replicas each", timeout_s=300
            )
        assert f"broker {doomed}: broker gone" in said
        assert sorted(odradek("consume", "kept").split()) == ["a", "b", "c"]
