"""Plans as values: the JSON is exact, and what is no plan is refused with the place."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from odradek.balance.plan import (
    COPY,
    LEADERSHIP,
    BrokerResult,
    InvalidPlan,
    Move,
    Plan,
    PlanCost,
    RuleResult,
    Span,
    next_plan_id,
)
from odradek.cli.rebalance import rebalance
from odradek.placement import parse_reassignment

texts = st.text(st.characters(codec="utf-8"), max_size=9)
whole = st.integers(0, 2**63 - 1)
numbers = st.floats(0, allow_nan=False, allow_infinity=False)
replicas = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=4, unique=True).map(tuple)
moves = st.builds(
    Move,
    topic=texts,
    partition=st.integers(0, 2**31 - 1),
    before=replicas,
    after=replicas,
    kind=st.sampled_from([COPY, LEADERSHIP]),
    rule=texts,
    gain=texts,
    bytes=whole,
    seconds=numbers,
    because_of=st.none() | whole,
)
plans = st.builds(
    Plan,
    id=texts,
    created_ms=whole,
    load_as_of_ms=whole,
    moves=st.lists(moves, max_size=4, unique_by=lambda move: move.tp).map(tuple),
    rules=st.lists(st.builds(RuleResult, texts, texts, whole, whole, texts), max_size=2).map(tuple),
    brokers=st.lists(
        st.builds(
            BrokerResult,
            st.integers(0, 2**31 - 1),
            st.none() | texts,
            texts,
            st.dictionaries(texts, st.builds(Span, whole, whole, whole, whole, whole), max_size=2),
        ),
        max_size=2,
    ).map(tuple),
    cost=st.builds(PlanCost, whole, whole, whole, numbers, whole, st.none() | whole, whole),
    bound=whole,
    coverage=st.floats(0, 1),
    evaluations=whole,
)


@given(plans)
def test_json_and_back_is_the_same_plan(plan: Plan) -> None:
    text = plan.to_json()
    assert Plan.from_json(text) == plan
    assert Plan.from_json(text.encode()).to_json() == text


def example() -> Plan:
    moves = (
        Move("t", 0, (1, 2), (2, 1), LEADERSHIP, "out", "broker 1: out 1.31 → 1.07", 0, 0.0),
        Move("t", 1, (1, 2), (3, 2), COPY, "disk", "broker 1: disk 1.20 → 1.02", 4096, 0.5, 0),
    )
    rules = (RuleResult("disk", "met", 2, 0),)
    cost = PlanCost(4096, 1, 1, 0.5, 50_000_000, 1, 4096)
    return Plan("20261117-1", 7, 5, moves, rules, (), cost, 4000, 0.5, 123)


def test_a_file_is_a_reassignment_for_other_tools(tmp_path: Path) -> None:
    plan = example()
    text = plan.to_file()
    assert Plan.from_json(text) == plan
    assert parse_reassignment(text).replicas == {move.tp: list(move.after) for move in plan.moves}
    file = tmp_path / "plan.json"
    file.write_text(text)
    shown = CliRunner().invoke(rebalance, ["show", str(file), "--why"])
    assert shown.exit_code == 0
    assert "broker 1: disk 1.20 → 1.02" in shown.output
    assert "1 leadership, then 1 copy: 4.1 kB (bound 4.0 kB)" in shown.output
    shown = CliRunner().invoke(rebalance, ["show", str(file), "--json"])
    assert json.loads(shown.output) == plan.to_dict()


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ((), [], r"plan is an object, not \[\]"),
        (("bound",), None, "plan: bound is a whole number, not null"),
        (("evaluations",), True, "plan: evaluations is a whole number, not true"),
        (("coverage",), "all", 'plan: coverage is a number, not "all"'),
        (("moves",), {}, "plan: moves is a list"),
        (("moves", 1, "to"), [3, 3], r"plan: moves\[1\]: to is a list of different brokers"),
        (("moves", 1, "from"), [], r"moves\[1\]: from is a list of different brokers"),
        (("moves", 0, "kind"), "swap", r"moves\[0\]: a kind is copy or leadership"),
        (("cost", "busiest"), "x" * 99, "plan: cost: busiest is a whole number, not .{60}…"),
        (("rules", 0, "proof"), 1, r"rules\[0\]: proof is a text, not 1"),
    ],
)
def test_what_is_no_plan_is_refused_with_the_place(
    path: tuple[Any, ...], value: Any, message: str, tmp_path: Path
) -> None:
    found: Any = {"whole": example().to_dict()}
    at, name = found, "whole"
    for step in path:
        at, name = at[name], step
    at[name] = value
    text = json.dumps(found["whole"])
    with pytest.raises(InvalidPlan, match=message):
        Plan.from_json(text)
    (tmp_path / "plan.json").write_text(text)
    shown = CliRunner().invoke(rebalance, ["show", str(tmp_path / "plan.json")])
    assert shown.exit_code == 1 and "Traceback" not in shown.output


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, b"\xff\xfe{"])
def test_text_that_is_no_json_is_refused(text: str | bytes) -> None:
    with pytest.raises(InvalidPlan, match="a plan is JSON"):
        Plan.from_json(text)
    with pytest.raises(InvalidPlan, match="plan has no id"):
        Plan.from_json("{}")


def test_ids_count_within_a_day() -> None:
    assert next_plan_id("20261117", []) == "20261117-1"
    taken = ["20261116-9", "20261117-2", "20261117-x", "20261117"]
    assert next_plan_id("20261117", taken) == "20261117-3"
