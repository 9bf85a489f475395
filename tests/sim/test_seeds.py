"""Whole clusters under faults: a fixed list of seeds, and every seed that ever failed.

Fresh seeds are for `odradek simulate`; a run of the tests is repeatable.
"""

from concurrent.futures import Executor
from pathlib import Path

import pytest

from odradek.sim.many import Outcome, try_seed
from odradek.sim.run import draw_plan, run

SEEDS = range(1, 41)
SECONDS = 60.0


def regressions() -> list[tuple[int, float]]:
    lines = (Path(__file__).parent / "regressions.txt").read_text().splitlines()
    found = [line.split()[:2] for line in lines if line and not line.startswith("#")]
    return [(int(seed), float(seconds)) for seed, seconds in found]


@pytest.mark.parametrize("seed", SEEDS)
def test_seed(seed: int, repeatable: Executor) -> None:
    outcome: Outcome = repeatable.submit(try_seed, (seed, SECONDS)).result()
    assert outcome.reason is None
    assert outcome.virtual_s >= SECONDS


@pytest.mark.parametrize(("seed", "seconds"), regressions())
def test_regression(seed: int, seconds: float, repeatable: Executor) -> None:
    outcome: Outcome = repeatable.submit(try_seed, (seed, seconds)).result()
    assert outcome.reason is None


@pytest.mark.parametrize("seed", [3, 11, 12])
def test_the_same_seed_gives_the_same_run(seed: int) -> None:
    plan = draw_plan(seed, 20.0)
    first, second = run(plan), run(plan)
    assert first.events == second.events
    assert first.trace == second.trace
    assert first.counts == second.counts
    assert first.trace != run(draw_plan(seed + 1, 20.0)).trace
