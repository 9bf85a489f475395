"""Placements that a search finds: hard rules are never broken, and nothing moves without need."""

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("numba")
pytest.importorskip("pyarrow")

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from benchmarks.planner import skewed
from tests.balance.clusters import Node, Part, moved, tables

from odradek.balance import search
from odradek.balance.explain import Facts, explain
from odradek.balance.load import LoadModel
from odradek.balance.model import Cluster, InvalidModel, Scope, assemble, build
from odradek.balance.proposal import propose
from odradek.balance.rules import (
    COPY_PRICE,
    CPU,
    DIMENSIONS,
    DISK,
    FEWER_MOVES_PRICE,
    IN,
    OUT,
    Thresholds,
    outside,
)
from odradek.balance.search import Budget, Outcome, find, new_state
from odradek.balance.settings import Settings

pytestmark = pytest.mark.usefixtures("planner_kernels")

GB = 10**9
MB = 10**6
Placement = dict[tuple[str, int], list[int]]


def placement(cluster: Cluster, found: Outcome) -> Placement:
    """Where every partition is, its leader first."""
    f = cluster.problem
    result = {}
    for p in range(len(f.start) - 1):
        slots = list(range(f.start[p], f.start[p + 1]))
        slots.sort(key=lambda slot: slot != found.leader[p])
        key = (cluster.topics[f.topic[p]], int(cluster.number[p]))
        result[key] = [cluster.broker_id(found.broker[slot]) for slot in slots]
    return result


def solve(
    parts: Sequence[Part],
    nodes: Sequence[Node],
    thresholds: Thresholds | None = None,
    scope: Scope | None = None,
    budget: Budget | None = None,
) -> tuple[Cluster, Outcome, Placement]:
    cluster = build(*tables(parts, nodes), thresholds, scope)
    found = find(cluster, budget)
    return cluster, found, placement(cluster, found)


def copies(parts: Sequence[Part], after: Placement) -> int:
    return sum(len(set(after[p.topic, p.number]) - set(p.replicas)) for p in parts)


# An oracle that shares nothing with the search: it adds up and compares, in plain Python.


def bears(
    parts: Sequence[Part], after: Mapping[tuple[str, int], Sequence[int]]
) -> Counter[tuple[int, str]]:
    sums: Counter[tuple[int, str]] = Counter()
    for part in parts:
        for place, broker in enumerate(after[part.topic, part.number]):
            sums[broker, "cpu"] += part.cpu if place == 0 else part.cpu // 4
            sums[broker, "in"] += part.rate
            sums[broker, "out"] += part.out if place == 0 else 0
            sums[broker, "disk"] += part.size
            sums[broker, "replicas"] += 1
            sums[broker, "leaders"] += place == 0
            sums[broker, "leader in"] += part.rate if place == 0 else 0
            sums[broker, "potential out"] += part.out
    return sums


def check_hard_rules(parts: Sequence[Part], nodes: Sequence[Node], after: Placement) -> None:
    live = {node.id for node in nodes if node.state == "live"}
    rack = {node.id: node.rack or f"broker {node.id}" for node in nodes}
    before = {(p.topic, p.number): p.replicas for p in parts}
    assert after.keys() == before.keys()
    for key, replicas in after.items():
        assert len(replicas) == len(before[key]) == len(set(replicas))
        on_dead = set(replicas) - live
        assert on_dead <= set(before[key]), "nothing comes to a dead broker"
        assert not (on_dead and live - set(replicas)), "what can leave a dead broker leaves it"
        if not on_dead:
            wanted = min(len(replicas), len({rack[broker] for broker in live}))
            assert len({rack[broker] for broker in replicas}) == wanted
            crowd = Counter(rack[broker] for broker in replicas)
            for broker in live - set(replicas):
                assert max(crowd.values()) - crowd[rack[broker]] <= 1, "racks are used evenly"


@st.composite
def clusters(draw: st.DrawFn, with_walls: bool = False) -> tuple[list[Part], list[Node]]:
    count = draw(st.integers(1, 6))
    with_racks = draw(st.booleans())
    sized = st.sampled_from([0, 40 * GB, 80 * GB]) if with_walls else st.just(0)
    nodes = [
        Node(
            broker * 3,
            rack=draw(st.sampled_from("abc")) if with_racks else None,
            state=draw(st.sampled_from(["live"] * 5 + ["dead"])) if broker else "live",
            disk=draw(sized),
            net=draw(st.sampled_from([0, 500 * MB])) if with_walls else 0,
        )
        for broker in range(count)
    ]
    ids = [node.id for node in nodes]
    parts = []
    for topic in range(draw(st.integers(1, 3))):
        for number in range(draw(st.integers(1, 5))):
            replicas = draw(st.lists(st.sampled_from(ids), min_size=1, max_size=3, unique=True))
            part = Part(
                f"t{topic}",
                number,
                tuple(replicas),
                size=draw(st.integers(0, 20)) * GB,
                rate=draw(st.integers(0, 90)) * MB,
                out=draw(st.integers(0, 90)) * MB,
                cpu=draw(st.integers(0, 900_000)),
            )
            parts.append(part)
    return parts, nodes


quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@quick
@given(clusters(), st.randoms(use_true_random=False))
def test_no_plan_breaks_a_hard_rule_and_none_follows_it(
    cluster: tuple[list[Part], list[Node]], dice: random.Random
) -> None:
    parts, nodes = cluster
    _, found, after = solve(parts, nodes)
    check_hard_rules(parts, nodes, after)
    sums = bears(parts, after)
    for at, node in enumerate(nodes):
        counted = dict(zip(DIMENSIONS, found.sums[at].tolist(), strict=True))
        assert counted == {name: sums[node.id, name] for name in DIMENSIONS}
    # The order of the rows means nothing.
    dice.shuffle(parts)
    dice.shuffle(nodes)
    assert solve(parts, nodes)[2] == after
    # What was carried out is followed by nothing.
    assert solve(moved(parts, after), nodes)[2] == after


@quick
@given(clusters(with_walls=True))
def test_walls_stand(cluster: tuple[list[Part], list[Node]]) -> None:
    parts, nodes = cluster
    live = {node.id for node in nodes if node.state == "live"}
    parts = [part for part in parts if set(part.replicas) <= live]
    if not parts:
        return
    _, _, after = solve(parts, nodes)
    before = bears(parts, {(p.topic, p.number): p.replicas for p in parts})
    sums = bears(parts, after)
    for node in nodes:
        walls = {"in": node.net * 0.8, "out": node.net * 0.8, "disk": node.disk * 0.8}
        for name, wall in walls.items():
            assert not wall or sums[node.id, name] <= max(wall, before[node.id, name])


def level(brokers: int, topics: int = 4, each: int = 12) -> list[Part]:
    """Topics spread evenly, three replicas each."""
    return [
        Part(
            f"topic-{topic}",
            number,
            tuple((number + topic + step) % brokers for step in range(min(3, brokers))),
            size=10 * GB,
            rate=5 * MB,
            out=20 * MB,
            cpu=20_000,
        )
        for topic in range(topics)
        for number in range(each)
    ]


def within(cluster: Cluster, found: Outcome, *dimensions: int) -> bool:
    return not outside(found.sums, cluster.bounds)[:, list(dimensions)].any()


def test_a_level_cluster_is_left_alone() -> None:
    cluster, found, _ = solve(level(6), [Node(id) for id in range(6)])
    assert found.is_like(cluster)
    assert found.pull == 0.0


def test_the_compiled_search_does_what_the_python_says(tmp_path: Path) -> None:
    """One small cluster, with and without the compiler."""
    dice = random.Random(7)
    parts = [
        Part(
            "t",
            number,
            tuple(dice.sample(range(5), 2)),
            size=dice.randrange(1, 40) * GB,
            rate=dice.randrange(60) * MB,
            out=dice.randrange(90) * MB,
            cpu=dice.randrange(10**6),
        )
        for number in range(12)
    ]
    nodes = [Node(id, state="dead" if id == 3 else "live") for id in range(5)]
    _, found, after = solve(parts, nodes, budget=Budget(evaluations=3_000))
    script = (
        "import json\n"
        "from tests.balance.test_search import *\n"
        f"parts = {parts!r}\n"
        f"nodes = {nodes!r}\n"
        "_, found, after = solve(parts, nodes, budget=Budget(evaluations=3_000))\n"
        "print(json.dumps([float(found.pull), sorted(after.items())]))\n"
    )
    result = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", script],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        cwd=Path(__file__).parent.parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    pull, placed = json.loads(result.stdout)
    assert pull == found.pull
    assert [(tuple(key), where) for key, where in placed] == sorted(after.items())


def at_look(number: int) -> Callable[[int], bool]:
    """A clock that runs out when it is looked at so often."""
    looks = iter(range(1, number + 1))
    return lambda evaluations: next(looks) == number


def test_a_count_of_evaluations_gives_the_same_plan_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a search that ended by itself, and of one that was stopped: by the clock, early or late,
    or by hand."""
    monkeypatch.setattr(search, "SLICE", 100)
    parts = [Part("t", n, (n % 3, 3 + n % 2), (1 + n % 7) * GB) for n in range(60)]
    nodes = [Node(id) for id in range(8)]
    usual = Budget()
    plan = solve(parts, nodes, budget=usual)[2]
    assert not usual.is_cut
    again = Budget(evaluations=usual.spent)
    assert solve(parts, nodes, budget=again)[2] == plan
    assert again.spent == usual.spent
    plans = []
    for looks in (1, 3, 5):
        by_clock = Budget(should_stop=at_look(looks))
        plans.append(solve(parts, nodes, budget=by_clock)[2])
        assert by_clock.is_cut
        again = Budget(evaluations=by_clock.spent)
        assert solve(parts, nodes, budget=again)[2] == plans[-1]
        assert again.spent == by_clock.spent
    assert plans[0] != plan, "a search that goes on finds more"
    stopped = Budget()
    stopped.stop()
    assert solve(parts, nodes, budget=stopped)[2] == plans[0]


# The scenarios.


def test_one_hot_partition_among_many() -> None:
    """It cannot be split, so busy partitions beside it leave for idle ones."""
    parts = [
        Part("events", n, (n % 4,), MB, 2 * MB if n else 16 * MB, 4 * MB if n else 32 * MB)
        for n in range(40)
    ]
    parts += [Part("idle", n, (n % 4,), MB) for n in range(160)]
    nodes = [Node(id) for id in range(4)]
    cluster, found, after = solve(parts, nodes)
    before = new_state(cluster).sums
    assert outside(before, cluster.bounds)[:, IN].any()
    assert within(cluster, found, IN, OUT)
    assert copies(parts, after) <= 12


def test_retention_pulls_disk_and_network_apart() -> None:
    """Large and quiet topics on two brokers, small and busy ones on the others."""
    parts = [Part("archive", n, (n % 2,), 50 * GB, 1 * MB, 1 * MB) for n in range(24)]
    parts += [Part("orders", n, (2 + n % 2,), 1 * GB, 20 * MB, 20 * MB) for n in range(24)]
    cluster, found, _ = solve(parts, [Node(id) for id in range(4)])
    assert within(cluster, found, *range(8))


def test_three_racks_of_unequal_size() -> None:
    nodes = [Node(id, rack="aabbbc"[id]) for id in range(6)]
    parts = [Part("t", n, (n % 2, 2 + n % 3, 5), (1 + n % 3) * GB) for n in range(30)]
    parts += [Part("u", n, (0, 1), 8 * GB) for n in range(6)]
    _, _, after = solve(parts, nodes)
    check_hard_rules(parts, nodes, after)
    assert all(5 in after["t", n] for n in range(30)), "rack c has one broker"
    assert len({frozenset(after["u", n]) for n in range(6)}) > 1


def test_a_broker_twice_as_large_bears_twice_as_much() -> None:
    nodes = [Node(id, net=(1 + (id == 3)) * 1000 * MB) for id in range(4)]
    parts = [Part("t", n, (n % 4,), MB, 2 * MB, 2 * MB) for n in range(100)]
    thresholds = Thresholds(off=frozenset({"replicas", "leaders"}))
    cluster, found, _ = solve(parts, nodes, thresholds)
    assert within(cluster, found, IN, OUT)
    assert found.sums[3, IN] > 1.5 * found.sums[:3, IN].mean()


def test_everything_on_one_broker_of_a_hundred() -> None:
    parts = [Part(f"t{n % 7}", n, (0,), GB, MB, MB, 9_000) for n in range(1000)]
    cluster, found, after = solve(parts, [Node(id) for id in range(100)])
    assert within(cluster, found, *range(8))
    assert copies(parts, after) <= 991


def test_a_dead_broker_loses_all_and_an_empty_one_gets_its_share() -> None:
    parts = level(6)
    nodes = [Node(id, state="dead" if id == 2 else "live") for id in range(6)] + [Node(9)]
    cluster, found, after = solve(parts, nodes)
    check_hard_rules(parts, nodes, after)
    assert found.stuck == 0
    assert within(cluster, found, *range(8))
    on_dead = sum(2 in part.replicas for part in parts)
    assert copies(parts, after) <= on_dead + 6, "what has to leave goes where something is missing"


def test_a_broker_is_emptied_or_left_out() -> None:
    parts = level(6)
    nodes = [Node(id) for id in range(6)]
    _, _, after = solve(parts, nodes, scope=Scope(remove=frozenset({4})))
    assert not any(4 in replicas for replicas in after.values())
    _, _, after = solve(parts, nodes, scope=Scope(only=frozenset({0, 1, 2})))
    assert {broker for replicas in after.values() for broker in replicas} == {0, 1, 2}
    with pytest.raises(InvalidModel, match="there is no broker 17"):
        solve(parts, nodes, scope=Scope(remove=frozenset({17})))


def test_a_failed_directory_is_left_and_another_is_not() -> None:
    parts = [Part("t", n, (n % 2,), GB, directory="/a" if n < 4 else "/b") for n in range(8)]
    nodes = [Node(0, failed=("/a",)), Node(1), Node(2)]
    _, _, after = solve(parts, nodes)
    assert all(after["t", n] != [0] for n in (0, 2))


def test_topics_stay_in_their_sets_and_excluded_ones_where_they_are() -> None:
    parts = [Part("kept", n, (0,), 9 * GB) for n in range(9)]
    parts += [Part("inside", n, (1,), 9 * GB) for n in range(8)]
    parts += [Part("free", n, (0,), 9 * GB) for n in range(9)]
    scope = Scope(excluded={"kept"}, sets={"inside": frozenset({2, 3})})
    _, _, after = solve(parts, [Node(id) for id in range(4)], scope=scope)
    assert all(after["kept", n] == [0] for n in range(9))
    assert {after["inside", n][0] for n in range(8)} == {2, 3}


def test_a_topic_that_crowds_is_spread() -> None:
    parts = [Part("crowded", n, (0,), GB) for n in range(12)]
    parts += [Part(f"other-{n}", 0, (1 + n % 5,), GB) for n in range(60)]
    _, _, after = solve(parts, [Node(id) for id in range(6)])
    assert max(Counter(after["crowded", n][0] for n in range(12)).values()) <= 6


def test_a_full_disk_is_emptied_and_none_is_filled_while_moving() -> None:
    nodes = [Node(id, disk=100 * GB) for id in range(3)]
    parts = [Part("t", n, (0,), 10 * GB) for n in range(9)]
    parts += [Part("u", n, (1,), 10 * GB) for n in range(7)]
    _, found, after = solve(parts, nodes)
    assert (found.sums[:, DISK] <= 80 * GB).all()
    arriving = sum(10 * GB for p in parts if after[p.topic, p.number] == [1] != list(p.replicas))
    assert 70 * GB + arriving <= 95 * GB


def test_a_repair_passes_walls_and_fills_a_disk_up_to_95_percent() -> None:
    """Walls are 80 GB of disk, 2.8 cores and 80 MB/s; what is rescued fits below none of them."""
    nodes = [Node(0, cores=4.0, net=100 * MB, disk=100 * GB), Node(1, state="dead")]
    parts = [Part("t", n, (0,), 10 * GB, rate=10 * MB, out=10 * MB, cpu=350_000) for n in range(8)]
    rescued = [Part("u", n, (1,), 7 * GB, rate=9 * MB, out=9 * MB, cpu=300_000) for n in range(3)]
    cluster, found, after = solve(parts + rescued, nodes)
    assert Counter(after["u", n][0] for n in range(3)) == {0: 2, 1: 1}, (
        "94 GB, and 101 are too many"
    )
    assert found.stuck == 1
    f = cluster.problem
    for d in (CPU, IN, OUT, DISK):
        assert found.sums[0, d] > f.wall[0, d], DIMENSIONS[d]


def test_replicas_that_find_no_place_are_counted() -> None:
    nodes = [Node(0), Node(1), Node(2, state="dead")]
    parts = [Part("t", n, (0, 1, 2), GB) for n in range(4)]
    _, found, after = solve(parts, nodes)
    assert found.stuck == 4
    assert all(set(replicas) == {0, 1, 2} for replicas in after.values())


def test_tables_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidModel, match="broker 5 has replicas and no row"):
        build(*tables([Part("t", 0, (5,))], [Node(0)]))
    with pytest.raises(InvalidModel, match="t-0 is on broker 0 twice"):
        build(*tables([Part("t", 0, (0,)), Part("t", 0, (0,))], [Node(0)]))
    with pytest.raises(InvalidModel, match="no broker is left"):
        build(*tables([Part("t", 0, (0,))], [Node(0, state="dead")]))
    empty, found, _ = solve([], [Node(0)])
    assert found.is_like(empty)


def test_each_broker_leads_as_many_of_a_topic_as_it_must() -> None:
    """By leaderships where a replica is there, else by moving a leader; racks are kept, and the
    topic then stays as it is."""
    nodes = [Node(id, rack="ab"[id % 2]) for id in range(6)]
    canary = [Part("canary", n, (0, 1), 10**6, 100) for n in range(7)]
    parts = [*level(6), *canary]
    scope = Scope(leaders_min={"canary": 1})
    cluster, found, after = solve(parts, nodes, scope=scope)
    led = Counter(after["canary", n][0] for n in range(7))
    assert all(led[id] >= 1 for id in range(6)), led
    check_hard_rules(parts, nodes, after)
    _, _, again = solve(moved(parts, after), nodes, scope=scope)
    assert again == after
    plan = explain(cluster, found, Facts("p", 0, 0, 1.0), 0)
    (result,) = [of for of in plan.rules if of.rule == "minimum of leaders"]
    assert (result.state, result.outside_before, result.outside_after) == ("met", 5, 0)
    assert {move.rule for move in plan.moves if move.topic == "canary"} == {"minimum of leaders"}


def test_a_minimum_of_leaders_that_cannot_be_met_is_proven() -> None:
    nodes = [Node(id) for id in range(3)]
    parts = [Part("canary", n, (0, 1)) for n in range(2)]
    cluster, found, after = solve(parts, nodes, scope=Scope(leaders_min={"canary": 1}))
    assert len({after["canary", n][0] for n in range(2)}) == 2
    plan = explain(cluster, found, Facts("p", 0, 0, 1.0), 0)
    assert not plan.is_attainable
    assert "canary has 2 partitions, and 3 brokers with 1 each need 3" in [
        of.proof for of in plan.rules
    ]


def test_fewer_moves_are_larger_ones() -> None:
    table = skewed(100, 100_000, 1_000)
    plans = []
    for price in (COPY_PRICE, FEWER_MOVES_PRICE):
        cluster = assemble(*table, Thresholds(copy_price=price))
        found = find(cluster)
        assert within(cluster, found, CPU, IN, OUT, DISK)
        plans.append(cluster.problem.size[search.copied(cluster, found.broker)])
    usual, fewer = plans
    assert 0 < len(fewer) < 0.8 * len(usual)
    assert fewer.mean() > usual.mean()


def test_with_two_of_five_brokers_silent_there_is_a_plan_that_says_what_it_knows() -> None:
    """Sizes of all are known, rates of those that publish. What is measured is levelled."""
    nodes = [Node(id) for id in range(5)]
    parts = [Part("t", n, (n % 2 if n < 20 else n % 5,), GB, MB) for n in range(50)]
    replicas, brokers = tables(parts, nodes)
    silent = pc.is_in(replicas["broker"], pa.array([3, 4], pa.int32()))
    for name, nothing in (("in", 0), ("coverage", 0.0), ("source", "size")):
        column = replicas[name]
        masked = pc.if_else(silent, pa.scalar(nothing, column.type), column)
        replicas = replicas.set_column(replicas.column_names.index(name), name, masked)
    covered = float(np.mean(replicas["coverage"].to_numpy()))
    assert 0.5 < covered < 1
    load = LoadModel(replicas, brokers, as_of_ms=1, coverage=covered)
    plan = propose(load, Settings(), Budget(), Facts("20261117-1", 1, 1, load.coverage))
    assert plan.coverage == covered
    assert plan.moves
    by_rule = {of.rule: of for of in plan.rules}
    assert by_rule["in"].state == by_rule["disk"].state == by_rule["replicas"].state == "met"


def test_a_replica_takes_less_than_two_hundred_bytes() -> None:
    parts = [Part(f"t{n % 20}", n, (n % 9, 9 + n % 9, 18 + n % 9)) for n in range(2_000)]
    cluster = build(*tables(parts, [Node(id) for id in range(27)]))
    kept = (*cluster.problem, *new_state(cluster))
    arrays = {id(of): of for of in kept if isinstance(of, np.ndarray)}
    assert sum(of.nbytes for of in arrays.values()) < 200 * len(cluster.problem.home)
