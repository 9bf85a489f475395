"""What people suffer from in planners of this kind, and does not happen here: docs/spec/planner.md
section 1.6. Answers that have their test elsewhere are listed in `test_behaviours`."""

import pytest

pytest.importorskip("numba")
pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.compute as pc
from tests.balance.clusters import Node, Part, tables
from tests.balance.frames import TICKS_PER_WINDOW, Row, frame

from odradek.balance.current import in_places
from odradek.balance.explain import Facts
from odradek.balance.frames import decode_frames
from odradek.balance.load import LoadModel, load_table
from odradek.balance.model import build
from odradek.balance.plan import Plan
from odradek.balance.proposal import propose
from odradek.balance.rules import outside
from odradek.balance.search import Budget, find, new_state
from odradek.balance.settings import Settings, parse_settings

MB, GB = 10**6, 10**9
HOURS = 24
WINDOWS_PER_HOUR = 12

pytestmark = pytest.mark.usefixtures("planner_kernels")


def test_thousands_of_replicas_take_less_than_a_million_evaluations() -> None:
    """One takes a tenth of a microsecond. Counted, since a clock says more about the machine."""
    parts = [Part("busy", n, (n % 4 if n < 24 else n % 8,), MB, 8 * MB) for n in range(64)]
    parts += [Part(f"idle-{n % 16}", n, (n % 8,), MB) for n in range(8_000)]
    cluster, budget = build(*tables(parts, [Node(id) for id in range(8)])), Budget()
    found = find(cluster, budget)
    assert outside(new_state(cluster).sums, cluster.bounds).any()
    assert not outside(found.sums, cluster.bounds).any()
    assert 0 < budget.spent < 1_000_000


def test_a_replica_that_compaction_has_left_large_counts_as_large() -> None:
    """Followers of compacted topics may have three times the leader's bytes. By the leaders' sizes
    all four brokers would be level."""
    parts = [Part("compacted", n, (n % 2, 2 + n % 2), 10 * GB) for n in range(40)]
    replicas, brokers = tables(parts, [Node(id) for id in range(4)])
    sizes = pc.if_else(
        pc.greater(replicas["place"], 0), pa.scalar(30 * GB, pa.int64()), replicas["size"]
    )
    replicas = replicas.set_column(replicas.column_names.index("size"), "size", sizes)
    load = LoadModel(replicas, brokers, as_of_ms=1, coverage=1.0)
    plan = planned(load, parse_settings('[rules]\noff = ["leaders"]'))
    assert next(of for of in plan.rules if of.rule == "disk").state == "met"
    assert plan.moves
    assert {move.bytes for move in plan.moves if move.bytes} <= {10 * GB, 30 * GB, 40 * GB}


def planned(load: LoadModel, settings: Settings) -> Plan:
    return propose(load, settings, Budget(), Facts("20261118-1", 1, 1, load.coverage))


def load_until(hour: int) -> LoadModel:
    """A day of load that ends at an hour. Broker 1 leads what is busy in the morning, broker 2 what
    is busier in the evening; broker 3 leads the same all day."""
    values = []
    for number in range(hour * WINDOWS_PER_HOUR, (hour + HOURS) * WINDOWS_PER_HOUR):
        now = number // WINDOWS_PER_HOUR % HOURS
        rates = {
            "morning": 300 * MB if 7 <= now < 10 else 3 * MB,
            "evening": 600 * MB if 18 <= now < 21 else 3 * MB,
            "always": 30 * MB,
        }
        for broker, (topic, rate) in enumerate(rates.items(), start=1):
            rows = {(topic, each): Row(rate, size=10) for each in range(12)}
            tick = number * TICKS_PER_WINDOW
            values.append(frame(broker, tick, rows, length=TICKS_PER_WINDOW))
    model = load_table(decode_frames(values), growth_h=0)
    at = {
        (topic, each): [broker]
        for broker, topic in enumerate(("morning", "evening", "always"), start=1)
        for each in range(12)
    }
    return LoadModel(in_places(model.replicas, at), model.brokers, 1, model.coverage)


def test_load_that_turns_with_the_hour_does_not_turn_the_plan() -> None:
    """The evening is levelled, at whatever hour the plan is made: after the morning's peak, too."""
    settings = parse_settings('[rules]\noff = ["cpu", "replicas", "leaders", "topic spread"]')
    plans = [planned(load_until(hour), settings) for hour in (4, 10, 21)]
    moves = [[(move.tp, move.before, move.after) for move in plan.moves] for plan in plans]
    assert moves[0] == moves[1] == moves[2]
    assert {move.topic for move in plans[0].moves} >= {"evening"}
    rule = next(of for of in plans[0].rules if of.rule == "in")
    assert (rule.state, rule.outside_before > 0) == ("met", True)
