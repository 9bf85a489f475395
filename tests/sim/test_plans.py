"""Plans, their summary, and how a failing one is made smaller."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from odradek.sim.campaign import Outcome, Summary
from odradek.sim.checkers import StatesWithinTables, table_rows
from odradek.sim.faults import Fault, Kind
from odradek.sim.history import History
from odradek.sim.plan import FETCH_BYTES, SEGMENT_BYTES, Plan, draw_plan
from odradek.sim.run import Report
from odradek.sim.shrink import shrink
from odradek.sim.workload import Workload
from odradek.wire.protocol_version import ProtocolVersion


def test_seeds_draw_different_worlds_of_every_kind() -> None:
    plans = [draw_plan(seed, 600.0) for seed in range(200)]
    assert {plan.brokers for plan in plans} == {3, 4, 5}
    assert {plan.replication for plan in plans} == {2, 3}
    assert {plan.log_dirs for plan in plans} == {1, 2}
    assert {plan.load.groups for plan in plans} == {0, 1, 2}
    assert {plan.load.writers for plan in plans} == {0, 1, 2, 3}
    assert {plan.load.movers for plan in plans} == {0, 1, 2}
    assert {fault.kind for plan in plans for fault in plan.faults} == set(Kind)
    assert all(0 < fault.at < 600 for plan in plans for fault in plan.faults)
    assert draw_plan(7) == draw_plan(7)
    spoken = {version for plan in plans for version in plan.protocols}
    assert spoken == set(map(str, ProtocolVersion))
    assert any(len(set(plan.protocols)) > 1 for plan in plans), "mixtures"


def test_a_plan_is_the_same_after_a_file() -> None:
    plans = [draw_plan(seed, 30.0) for seed in range(20)]
    assert [Plan.from_json(plan.to_json()) for plan in plans] == plans
    assert {FETCH_BYTES in plan.settings for plan in plans} == {False, True}
    sizes = {plan.settings.get("log.segment.bytes") for plan in plans}
    assert sizes == {None, *SEGMENT_BYTES}


def test_clients_of_a_long_run_are_busy_for_a_minute_in_bursts() -> None:
    loads = {length: draw_plan(7, length).load for length in (0.0, 60.0, 600.0)}
    assert [load.busy_share for load in loads.values()] == [1.0, 1.0, 0.1]
    seconds = iter(range(600))
    clock = SimpleNamespace(time=lambda: next(seconds))
    workload = Workload(SimpleNamespace(loop=clock), History(), 3, 2)  # type: ignore[arg-type]
    workload._load = replace(loads[600.0], pause=3.0)
    assert [workload.pause for _ in range(600)] == ([3.0] * 12 + [10.0] * 108) * 5


def test_the_smallest_list_of_faults_that_fails_is_found() -> None:
    plan = draw_plan(5, 600.0)
    needed = {plan.faults[3], plan.faults[-2]}

    def carry_out(smaller: Plan) -> Report:
        fails = needed <= set(smaller.faults)
        return Report(smaller, findings=["it fails"] if fails else [])

    assert set(shrink(plan, carry_out=carry_out).faults) == needed
    assert len(plan.faults) > 20


def test_a_plan_that_always_fails_needs_no_fault() -> None:
    plan = draw_plan(5, 600.0)
    assert shrink(plan, carry_out=lambda p: Report(p, findings=["always"])).faults == []


def test_a_summary_says_which_rows_were_never_exercised() -> None:
    summary = Summary()
    row, *others = table_rows()
    summary.add(Outcome(1, 60.0, {"kill": 2}, {"sent": 5}, {row: 3}, None))
    summary.add(Outcome(2, 60.0, {"kill": 1}, {"sent": 5}, {row: 1}, "something"))
    assert summary.uncovered == others
    assert summary.faults == {"kill": 3}
    assert summary.failures == [(2, "something")]
    assert "2 seeds" in str(summary)
    assert f"1 of {len(table_rows())} transitions" in str(summary)


def test_the_checkers_tables_are_the_controllers() -> None:
    ours = [
        *(f"partition {before} -> {after}" for before, after in StatesWithinTables.PARTITION_ROWS),
        *(f"replica {before} -> {after}" for before, after in StatesWithinTables.REPLICA_ROWS),
    ]
    assert sorted(ours) == sorted(table_rows())


def test_a_fault_says_what_it_is() -> None:
    fault = Fault(1.5, Kind.CUT, 1, 2, 3.0)
    assert str(fault) == "cut 1-2 at 1.50 for 3.00"


@pytest.mark.process
def test_a_run_that_passes_is_summed_up_in_a_few_lines() -> None:
    command = [sys.executable, "-m", "odradek", "simulate", "--seed", "3", "--seconds", "5"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seed, faults, verdict, hint = done.stdout.splitlines()
    assert seed.startswith("seed 3: ") and faults.startswith("faults: ")
    assert verdict.startswith("passed: ") and "--verbose" in hint


@pytest.mark.process
def test_the_command_replays_a_seed_line_by_line() -> None:
    command = [sys.executable, "-m", "odradek", "simulate", "--seed", "3", "--seconds", "5", "-v"]
    first = subprocess.run(command, capture_output=True, text=True, check=True)
    other = {**os.environ, "PYTHONHASHSEED": "77"}
    second = subprocess.run(command, capture_output=True, text=True, check=True, env=other)
    assert first.stdout == second.stdout
    lines = first.stdout.splitlines()
    assert lines[0].startswith("seed 3: ")
    assert lines[-1].startswith("passed: ")
    assert any("elected controller" in line for line in lines)
    assert any("partition main-0: NEW -> ONLINE" in line for line in lines)
    partition = subprocess.run(
        [*command, "--partition", "main-0", "--steps", "20"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(partition.stdout.splitlines()) == 23


@pytest.mark.process
def test_the_command_replays_a_plan_that_it_saved(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "odradek", "simulate"]
    file = str(tmp_path / "plan.json")
    drawn = [*command, "--seed", "4", "--seconds", "5", "--save", file]
    first = subprocess.run(drawn, capture_output=True, text=True, check=True)
    second = subprocess.run([*command, "--plan", file], capture_output=True, text=True, check=True)
    assert first.stdout == second.stdout
    assert first.stdout.startswith("seed 4: ")


@pytest.mark.process
def test_the_command_runs_many_seeds() -> None:
    command = [sys.executable, "-m", "odradek", "simulate", "--seeds", "2", "--seconds", "5"]
    done = subprocess.run([*command, "--jobs", "1"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("2 seeds, ")
    assert "partition NEW -> ONLINE" in done.stdout
