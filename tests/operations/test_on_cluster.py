"""Snapshots and plans of a real cluster, through the blocking client, as docs/administration.md
shows it."""

from collections.abc import Iterator

import pytest

from odradek import Cluster
from odradek.client import Blocking, NewTopic, Producer, check
from odradek.operations import AT_START, assess, generate_plan, plan_reset, take_snapshot
from odradek.operations.health import lag_growing
from odradek.operations.snapshot import ClusterSnapshot
from odradek.wire.topics import TopicPartition

pytestmark = pytest.mark.process

TP = TopicPartition("t", 0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Blocking]:
    with Cluster(brokers=2) as running, Blocking(running.bootstrap_servers) as client:
        configs = {"min.insync.replicas": "2"}
        topic = NewTopic("t", assignment={0: [1, 2]}, configs=configs)
        check(client.run(client.admin.create_topics([topic])))
        yield client


def write(cluster: Blocking, count: int) -> None:
    async def send() -> None:
        async with Producer(cluster.client) as producer:
            for _ in range(count):
                await producer.send("t", b"x" * 100, partition=0)

    cluster.run(send())


def snapshot(cluster: Blocking) -> ClusterSnapshot:
    return cluster.run(take_snapshot(cluster.admin, cluster.groups))


def test_a_snapshot_has_what_the_rules_look_at(cluster: Blocking) -> None:
    write(cluster, 10)
    check(cluster.run(cluster.groups.alter_offsets("g", {TP: 4})))
    before = snapshot(cluster)
    assert sorted(before.brokers) == [1, 2]
    assert before.controller_id in before.brokers
    assert before.min_insync["t"] == 2
    assert before.group_lags["g"][TP].records == 6
    assert before.replica_bytes(TP, 1) > 1_000
    assert before.unanswered == ()
    assert before.needs_second
    assert "no-controller" not in {problem.kind for problem in assess(before)}
    write(cluster, 5)
    (problem,) = lag_growing(snapshot(cluster), before)
    assert problem.text.startswith("group g is 11 records behind, 5 more than")


def test_a_plan_and_a_reset_are_values_until_they_are_carried_out(cluster: Blocking) -> None:
    plan = cluster.run(generate_plan(cluster.admin, topics=["t"], replication_factor=1))
    (change,) = plan.replication_changes()
    assert (change.topic, change.before, change.after) == ("t", 2, 1)
    assert cluster.run(cluster.admin.list_reassignments()) == {}
    check(cluster.run(cluster.groups.alter_offsets("h", {TP: 3})))
    reset = cluster.run(plan_reset(cluster.groups, "h", to=AT_START))
    assert (reset.before, reset.after) == ({TP: 3}, {TP: 0})
    assert cluster.run(cluster.groups.offsets("h"))[TP].offset == 3
