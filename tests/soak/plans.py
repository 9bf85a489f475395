"""Plans by load on real brokers, from telemetry to the last copy: `make plans-test`.

Too heavy for every test run. The parts that these scenarios are made of have tests of their own.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.cli.conftest import CommandLine, watching
from tests.cli.test_rebalance_run import plan_file
from tests.interop.harness.traffic import Traffic, check_nothing_lost, read_all

from odradek import Cluster

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(900)]

HOT = "hot"
PARTITIONS = 6
# What a plan is measured with: partitions that move, their bytes, and what may be copied a second.
COLD, COLD_BYTES, VALUE_BYTES, THROTTLE = 4, 10_000_000, 100_000, 2_000_000
# Records between two looks, the time between two of them, and looks at a quiet cluster.
PROBES, PROBE_S, QUIET_ROUNDS = 20, 0.01, 40
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

        with watching(odradek, "--broker-after", "10min", *quick) as (_, said):
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
        with watching(odradek, "--broker-after", "2s", *quick) as (_, said):
            cluster.wait_until(is_watched, "the watcher is there", timeout_s=120)
            cluster.kill(doomed)
            others = {1, 2, 3, 4, 5} - {doomed}
            cluster.wait_until(
                lambda: is_whole(cluster, "kept", others), "three replicas each", timeout_s=300
            )
        assert f"broker {doomed}: broker gone" in said
        assert sorted(odradek("consume", "kept").split()) == ["a", "b", "c"]


class Probe:
    """Sends a record every few milliseconds and keeps how long each took to be acknowledged."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        settings = {"bootstrap.servers": bootstrap_servers, "acks": "all", "linger.ms": 0}
        self._producer = Producer(settings)
        self._topic = topic

    def latencies_ms(self, goes_on: Callable[[], bool]) -> list[float]:
        """Of all records that were sent while something was so."""
        taken: list[float] = []

        def settle(sent_s: float) -> Callable[[object, object], None]:
            def delivered(error: object, message: object) -> None:
                assert error is None, error
                taken.append((time.monotonic() - sent_s) * 1000)

            return delivered

        while goes_on():
            for _ in range(PROBES):
                self._producer.produce(
                    self._topic, b"x" * 200, on_delivery=settle(time.monotonic())
                )
                self._producer.poll(PROBE_S)
            # A delivery is noticed by a poll: none may wait while something else is looked at.
            self._producer.flush()
        return taken


def p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]


def test_what_a_plan_costs_producers_and_how_its_throttle_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Measured and printed: on a machine that does other work, too, the clock proves nothing. The
    quiet value is taken before and after the plan, the throttle from the bytes that arrived."""
    with Cluster(brokers=3) as cluster:
        odradek = CommandLine(cluster.bootstrap_servers)
        odradek("topics", "create", HOT, "--replicas", "1:2,2:1,1:2,2:1")
        odradek("topics", "create", "cold", "--replicas", ",".join(["1"] * COLD))
        filler = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "compression.type": "none"}
        )
        for number in range(COLD * COLD_BYTES // VALUE_BYTES):
            filler.produce("cold", os.urandom(VALUE_BYTES), partition=number % COLD)
            filler.poll(0)
        filler.flush()
        moves = [("cold", n, [1], [3]) for n in range(COLD)]
        file = plan_file(tmp_path, "20261118-1", moves, COLD_BYTES)
        probe = Probe(cluster.bootstrap_servers, HOT)

        arrived: list[tuple[float, int]] = []

        def is_arriving() -> bool:
            """Looks at the files: to ask the cluster would be work of its own. While nothing moves
            this is done as often, for the same reason."""
            copies = cluster.directory_of(3).glob("cold-*/*.log")
            size = sum(each.stat().st_size for each in copies)
            if size and (not arrived or size > arrived[-1][1]):
                arrived.append((time.monotonic(), size))
            return size < COLD * COLD_BYTES

        def is_quiet(rounds: Iterator[int]) -> bool:
            is_arriving()
            return next(rounds, None) is not None

        before, after = iter(range(QUIET_ROUNDS)), iter(range(QUIET_ROUNDS))
        quiet = probe.latencies_ms(lambda: is_quiet(before))
        odradek("rebalance", "apply", file, "--throttle", str(THROTTLE))
        cluster.wait_until(lambda: is_arriving() and bool(arrived), "bytes arrive")
        during = probe.latencies_ms(is_arriving)
        cluster.wait_until(
            lambda: odradek.json("rebalance", "status")["state"] == "done", "the plan is done"
        )
        quiet += probe.latencies_ms(lambda: is_quiet(after))
        assert where(cluster, "cold") == {n: [3] for n in range(COLD)}
        (begin_s, begun), (end_s, ended) = arrived[0], arrived[-1]
        rate = (ended - begun) / (end_s - begin_s)
        assert rate <= 1.1 * THROTTLE
    with capsys.disabled():
        print(
            f"\nproduce p99: {p99(quiet):.1f} ms quiet, {p99(during):.1f} ms while "
            f"{COLD * COLD_BYTES / 1e6:.0f} MB moved ({p99(during) / p99(quiet):.2f} x, "
            f"{len(during)} records); copied at {rate / 1e6:.2f} MB/s of {THROTTLE / 1e6:.0f}"
        )
