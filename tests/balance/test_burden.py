"""Replicas that no broker can bear inside its band: what is proven of them, and that nothing else
is given up for them."""

from html import escape
from itertools import product

import pytest

pytest.importorskip("numba")
pytest.importorskip("pyarrow")

import numpy as np
from benchmarks.planner import skewed
from tests.balance.clusters import Node, Part, tables

from odradek.balance.burden import BORNE, FILLED, Company, loads
from odradek.balance.explain import NOT_PROVEN, Facts, Reasons, reasons_outside
from odradek.balance.load import LoadModel
from odradek.balance.model import assemble, build
from odradek.balance.page import page_of
from odradek.balance.plan import Plan
from odradek.balance.proposal import propose
from odradek.balance.rules import CPU, DISK, IN, outside
from odradek.balance.search import Budget, carried_out, find, new_state
from odradek.balance.settings import Settings

pytestmark = pytest.mark.usefixtures("planner_kernels")

GB = 10**9
MB = 10**6
NODES = [Node(id) for id in range(40)]


def reasons_after_planning(parts: list[Part]) -> Reasons:
    """Why brokers are outside after a plan, which another one does not follow."""
    cluster = build(*tables(parts, NODES))
    found = find(cluster)
    after = carried_out(cluster, found)
    assert find(after).is_like(after)
    reasons = reasons_outside(cluster, found, new_state(cluster))
    assert sum(map(len, reasons.values())) == outside(found.sums, cluster.bounds).sum()
    return reasons


def test_a_broker_with_a_replica_that_is_too_large_still_gets_its_share_of_the_rest() -> None:
    """Each replica that brings bytes in makes its disk even fuller."""
    parts = [Part("even", n, (n % 40,), 10 * GB, MB) for n in range(2000)]
    parts += [Part("large", 0, (7,), 1000 * GB)]
    assert reasons_after_planning(parts) == {
        7: {DISK: "large-0 alone is 190% of a broker's share of disk: more partitions would help"}
    }


def test_what_a_broker_must_have_besides_may_be_too_much() -> None:
    """The hot partition alone would fit, but its broker also has to receive its share of bytes."""
    parts = [Part("even", n, (n % 40,), GB, MB, cpu=10_000) for n in range(2000)]
    parts += [Part("hot", 0, (7,), GB, cpu=480_000)]
    assert reasons_after_planning(parts) == {
        7: {
            CPU: "hot-0 as leader is 94% of a broker's share of cpu, and filling up in takes 88.8% "
            "more at least: 182.5% of 109.0%"
        }
    }


def test_a_page_says_why_a_broker_stays_outside() -> None:
    parts = [Part("events", n, (n % 3,), MB, 40 * MB if n == 3 else MB, MB) for n in range(30)]
    load = LoadModel(*tables(parts, NODES[:3]), as_of_ms=1, coverage=1.0)
    plan = propose(load, Settings(), Budget(), Facts("20261118-1", 1, 1, 1.0))
    assert Plan.from_json(plan.to_json()) == plan
    (large,) = [each for each in plan.brokers if "alone" in each.reasons.get("in", "")]
    others = [each for each in plan.brokers if each is not large]
    assert [each.reasons["in"] for each in others] == [
        "in: beside 1 replicas that are too large for any broker 29,000,000 are left, and the "
        "other 2 brokers need 41,860,000"
    ] * 2
    for each in plan.brokers:
        assert all(escape(text) in page_of(plan) for text in each.reasons.values())


def test_no_replicas_fill_up_a_resource_with_less_of_another() -> None:
    cluster = assemble(*skewed(6, 600, 8))
    company = Company(cluster)
    f = cluster.problem
    dice = np.random.default_rng(1)
    bounds = []
    for _ in range(50):
        chosen = dice.permutation(len(f.start) - 1)[: dice.integers(1, 100)]
        load = loads(cluster, f.start[chosen], dice.integers(0, 2, len(chosen)).astype(bool))
        total = load.sum(axis=0)
        for borne, filled in product(BORNE, FILLED):
            least = company.least(borne, filled, total[filled : filled + 1])[0]
            assert least <= total[borne] * (1 + 1e-9)
            bounds.append(least / max(total[borne], 1))
    assert max(bounds) > 0.5, "a bound of nothing would hold, too"


def test_what_could_be_borne_elsewhere_is_no_burden() -> None:
    """Broker 0 may not take it, and a broker twice as large could: nothing is proven."""
    parts = [Part("even", n, (n % 4,), 10 * GB, MB) for n in range(200)]
    parts += [Part("large", 0, (0,), 800 * GB)]
    nodes = [Node(id, disk=4000 * GB) for id in range(4)] + [Node(4, disk=16_000 * GB)]
    cluster = build(*tables(parts, nodes))
    here = find(cluster)._replace(broker=cluster.problem.home, sums=new_state(cluster).sums)
    reasons = reasons_outside(cluster, here, new_state(cluster))
    assert reasons[0][DISK] == NOT_PROVEN
    assert IN in {d for each in reasons.values() for d in each}
