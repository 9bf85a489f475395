"""`odradek status` on real brokers: each thing that can be wrong, since when, and why."""

import json
import shutil
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from tests.cli.conftest import CommandLine

from odradek import Cluster
from odradek.cli.output import moment
from odradek.client import Blocking, check
from odradek.wire.topics import TopicPartition

pytestmark = pytest.mark.process

BROKERS = 3
LARGE = "x" * 900_000 + "\n"


def problems(odradek: CommandLine, *options: str) -> dict[str, Mapping[str, Any]]:
    """By kind; the exit code says whether there is more than a notice."""
    result = odradek.run("status", "--json", *options)
    found = json.loads(result.stdout)
    is_wrong = any(row["severity"] != "notice" for row in found["problems"])
    assert result.exit_code == int(is_wrong) and found["healthy"] is not is_wrong
    return {row["kind"]: row for row in found["problems"]}


def began_between(row: Mapping[str, Any], first_s: float, last_s: float) -> bool:
    return moment(int(first_s * 1000)) <= str(row["since"]) <= moment(int(last_s * 1000))


def test_a_dead_controller_and_what_follows_from_it(
    odradek: CommandLine, cluster: Cluster, tmp_path: Path
) -> None:
    """Broker down, offline, under min ISR, under-replicated, controller changed, move stalled."""
    assert problems(odradek) == {}
    assert odradek("status").startswith("healthy: 3 brokers")
    victim = cluster.controller_id()
    assert victim is not None
    one, two = (id for id in cluster.ids if id != victim)
    odradek("topics", "create", "alone", "--replicas", str(victim))
    odradek(
        "topics", "create", "strict", "--replicas", f"{one}:{victim}", "-c", "min.insync.replicas=2"
    )
    odradek("topics", "create", "wide", "--replicas", f"{one}:{two}:{victim}")
    odradek("topics", "create", "moved", "--replicas", f"{one}:{two}")
    odradek("produce", "moved", input=LARGE * 3)
    plan = tmp_path / "plan.json"
    move = {"topic": "moved", "partition": 0, "replicas": [one, victim]}
    plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
    odradek("reassign", "execute", str(plan), "--no-wait", "--throttle", "1")
    killed_s = time.time() - 1  # times are shown in whole seconds
    cluster.kill(victim)
    cluster.wait_until(lambda: "broker-down" in problems(odradek, "--interval", "0"), "the news")
    found = problems(odradek, "--interval", "0.2")
    assert found["broker-down"]["subject"] == f"broker {victim}"
    assert found["offline-partition"]["subject"] == "alone-0"
    assert found["under-min-isr"]["subject"] == "strict-0"
    assert found["move-stalled"]["reason"] == f"broker {victim} is down"
    assert found["controller-changed"]["severity"] == "notice"
    for kind in ("offline-partition", "under-min-isr", "under-replicated"):
        assert f"broker {victim} is down" in found[kind]["reason"], kind
    for kind, row in found.items():
        assert began_between(row, killed_s, time.time()), (kind, row)
        assert row["cause"] and row["advice"], kind
    assert "elected controller" in found["broker-down"]["cause"]
    assert f"{victim}" in found["controller-changed"]["reason"]
    printed = odradek.run("status", "--interval", "0").stdout
    assert "SINCE" in printed and "CAUSE" in printed and "5 problems: 2 brokers" in printed
    cluster.start(victim)
    odradek("reassign", "cancel", "--all")
    cluster.wait_until(
        lambda: odradek.run("status", "--interval", "0").exit_code == 0, "a healthy cluster"
    )
    assert "controller-changed" in problems(odradek), "for a while, and nothing is wrong"


def test_a_broker_that_is_killed_later_is_named_by_the_journal(
    odradek: CommandLine, cluster: Cluster
) -> None:
    victim = next(id for id in cluster.ids if id != cluster.controller_id())
    odradek("topics", "create", "watched", "--replicas", ":".join(map(str, cluster.ids)))
    killed_s = time.time() - 1
    cluster.kill(victim)
    cluster.wait_until(lambda: "broker-down" in problems(odradek, "--interval", "0"), "the news")
    row = problems(odradek, "--interval", "0")["broker-down"]
    assert f"dead=[{victim}]" in row["cause"] and began_between(row, killed_s, time.time())
    cluster.start(victim)
    cluster.wait_until(
        lambda: odradek.run("status", "--interval", "0").exit_code == 0, "a healthy cluster"
    )


def test_a_broker_that_is_listed_and_does_not_answer_is_left_out(
    odradek: CommandLine, cluster: Cluster
) -> None:
    """As one does that has just died; a paused one stays listed until its session ends."""
    silent = next(id for id in cluster.ids if id != cluster.controller_id())
    cluster.pause(silent)
    try:
        row = problems(odradek, "--interval", "0", "--timeout", "1")["unanswered"]
    finally:
        cluster.resume(silent)
    assert row["severity"] == "warning" and f"broker {silent}" in row["subject"], row
    cluster.wait_until(
        lambda: odradek.run("status", "--interval", "0").exit_code == 0, "a healthy cluster"
    )


def test_a_group_that_falls_behind(odradek: CommandLine, cluster: Cluster) -> None:
    odradek("topics", "create", "read")
    odradek("produce", "read", input="one\ntwo\n")
    with Blocking(cluster.bootstrap_servers) as client:
        check(client.run(client.groups.alter_offsets("slow", {TopicPartition("read", 0): 2})))
    written_s = time.time() - 1
    odradek("produce", "read", input="three\n")
    unread_s = time.time()
    first = json.loads(odradek.run("status", "--json", "--interval", "0").stdout)
    assert "lag-growing" not in {row["kind"] for row in first["problems"]}, "one sample"
    with Writer(cluster.bootstrap_servers, "read"):
        row = problems(odradek, "--interval", "0.5")["lag-growing"]
    assert row["subject"] == "group slow" and row["reason"] == "it commits nothing"
    assert began_between(row, written_s, unread_s), "when the first unread record was written"


class Writer:
    """Goes on writing until it is left."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
        self._topic = topic
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._producer.flush()

    def _run(self) -> None:
        while not self._stopped.wait(0.02):
            self._producer.produce(self._topic, b"more")
            self._producer.poll(0)


def test_a_directory_that_fails_and_a_disk_that_is_full(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    started_s = time.time() - 1
    with Cluster(brokers=1, config={"log.dirs": f"{first},{second}"}) as cluster:
        odradek = CommandLine(cluster.bootstrap_servers)
        full = problems(odradek, "--disk", "0")["disk-nearly-full"]
        assert "are left" in full["reason"] and began_between(full, started_s, time.time())
        odradek("topics", "create", "t", "--partitions", "4", "--replication-factor", "1")
        failed_s = time.time() - 1
        shutil.rmtree(second)
        second.write_text("no directory any more")
        odradek("topics", "create", "u", "--partitions", "4", "--replication-factor", "1")
        cluster.wait_until(
            lambda: "LogDirEventNotification" in str(problems(odradek).get("log-directory-failed")),
            "the failed directory",
        )
        row = problems(odradek)["log-directory-failed"]
        assert row["subject"] == f"{second} on broker 1"
        assert "KAFKA_STORAGE_ERROR" in row["reason"]
        assert began_between(row, failed_s, time.time())
