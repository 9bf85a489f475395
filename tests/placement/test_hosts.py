"""Several brokers on each host, the host being their rack: no two replicas of a partition share a
host, whatever is done to it."""

from collections.abc import Mapping, Sequence
from random import Random

import pytest

from odradek.placement import Broker, assign_replicas
from odradek.placement.minimal import plan_minimal
from odradek.placement.plans import generate
from odradek.placement.validation import new_partitions
from odradek.wire.topics import TopicPartition

HOSTS = 4
PER_HOST = 3
FACTOR = 3
PARTITIONS = 30
Assignment = Mapping[TopicPartition, Sequence[int]]


def host_of(broker: int) -> str:
    return f"host-{broker % HOSTS}"


def brokers(*without: int) -> list[Broker]:
    return [Broker(id, host_of(id)) for id in range(HOSTS * PER_HOST) if id not in without]


def created(rng: Random) -> dict[TopicPartition, list[int]]:
    return {
        TopicPartition(topic, index): replicas
        for topic in ("orders", "payments")
        for index, replicas in assign_replicas(brokers(), PARTITIONS, FACTOR, rng=rng).items()
    }


def assert_apart(assignment: Assignment, *without: int) -> None:
    assert assignment
    for tp, replicas in assignment.items():
        assert len(replicas) == FACTOR, tp
        assert len({host_of(broker) for broker in replicas}) == FACTOR, (tp, replicas)
        assert not set(replicas) & set(without), (tp, replicas)


@pytest.mark.parametrize("seed", range(5))
def test_through_creation_growth_and_reassignment(seed: int) -> None:
    rng = Random(seed)
    current = created(rng)
    assert_apart(current)
    grown = new_partitions(
        "orders",
        {tp.partition: list(replicas) for tp, replicas in current.items() if tp.topic == "orders"},
        brokers(),
        PARTITIONS + 20,
    )
    assert_apart({TopicPartition("orders", index): replicas for index, replicas in grown.items()})
    assert_apart(generate(current, brokers(), rng=rng))
    # A broker is lost, then two of different hosts, then all of one host.
    for gone in ([5], [2, 7], [1, 5, 9]):
        moved = plan_minimal(current, brokers(*gone)).proposed
        assert_apart(moved, *gone)
        # They come back, and all is spread again.
        assert_apart(plan_minimal(moved, brokers()).proposed)


@pytest.mark.parametrize("gone", [[5], [2, 7], [1, 5, 9]], ids=str)
@pytest.mark.usefixtures("planner_kernels")
def test_through_plans_by_load_and_the_loss_of_brokers(gone: list[int]) -> None:
    pytest.importorskip("numba")
    pytest.importorskip("pyarrow")
    from tests.balance.clusters import Node, Part, tables

    from odradek.balance.model import build
    from odradek.balance.search import find

    rng = Random(1)
    parts = [
        Part(tp.topic, tp.partition, tuple(replicas), size=rng.randint(1, 20) * 10**9)
        for tp, replicas in created(rng).items()
    ]
    nodes = [
        Node(id, host_of(id), state="dead" if id in gone else "live", disk=10**12)
        for id in range(HOSTS * PER_HOST)
    ]
    cluster = build(*tables(parts, nodes), None, None)
    found = find(cluster, None)
    problem = cluster.problem
    after = {
        TopicPartition(cluster.topics[problem.topic[p]], int(cluster.number[p])): [
            cluster.broker_id(found.broker[slot])
            for slot in range(problem.start[p], problem.start[p + 1])
        ]
        for p in range(len(problem.start) - 1)
    }
    assert_apart(after, *gone)
