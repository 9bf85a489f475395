"""Whole clusters under faults: a fixed list of seeds, and plans of runs that failed.

Fresh seeds are for `odradek simulate`; a run of the tests is repeatable.
"""

from concurrent.futures import Executor
from pathlib import Path

import pytest

from odradek.sim.campaign import Outcome, try_plan
from odradek.sim.plan import Plan, draw_plan, draw_wide_plan
from odradek.sim.run import run

SEEDS = range(1, 25)
SECONDS = 60.0
WIDE_SEEDS, WIDE_SECONDS = (2,), 12.0
# The plans of runs that failed, named after what they found. A plan stays the same when a
# change of the dice makes another one of its seed; `odradek simulate --plan FILE` replays it.
REGRESSIONS = sorted((Path(__file__).parent / "regressions").glob("*.json"))


@pytest.mark.parametrize("seed", SEEDS)
def test_seed(seed: int, repeatable: Executor) -> None:
    outcome: Outcome = repeatable.submit(try_plan, draw_plan(seed, SECONDS)).result()
    assert outcome.reason is None
    assert outcome.virtual_s >= SECONDS
    assert outcome.counts["acknowledged"] > 0


@pytest.mark.parametrize("seed", WIDE_SEEDS)
def test_wide_seed(seed: int, repeatable: Executor) -> None:
    """More than a thousand partitions, and one fault."""
    plan = draw_wide_plan(seed, WIDE_SECONDS)
    assert plan.partitions >= 1000
    outcome: Outcome = repeatable.submit(try_plan, plan).result()
    assert outcome.reason is None
    assert outcome.counts["acknowledged"] > plan.partitions, "each takes a record in the end"


@pytest.mark.parametrize("file", REGRESSIONS, ids=lambda file: file.stem)
def test_regression(file: Path, repeatable: Executor) -> None:
    outcome: Outcome = repeatable.submit(try_plan, Plan.from_json(file.read_text())).result()
    assert outcome.reason is None


@pytest.mark.parametrize("seed", [3, 11, 12])
def test_the_same_seed_gives_the_same_run(seed: int) -> None:
    plan = draw_plan(seed, 20.0)
    first, second = run(plan), run(plan)
    assert first.events == second.events
    assert first.trace == second.trace
    assert first.counts == second.counts
    assert first.trace != run(draw_plan(seed + 1, 20.0)).trace
