"""The checkers can fail: every planted bug is found by a seed that is known to find it."""

import logging
from concurrent.futures import Executor

import pytest
from tests.sim.planted import BUGS, Bug

from odradek.sim.checkers import CHECKERS
from odradek.sim.run import run

SEEN_BY_CLIENTS = {
    "ConsistentRead",
    "NothingSkipped",
    "HighWatermarkNeverGoesBack",
    "OffsetsNeverForgotten",
}


def hunt(index: int) -> tuple[bool, list[str]]:
    logging.disable(logging.CRITICAL)
    bug = BUGS[index]
    with bug.planted():
        report = run(bug.plan(bug.seed), until=bug.invariants)
    return bug.is_found(report), [*map(str, report.violations), *report.findings]


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug, repeatable: Executor) -> None:
    found, what = repeatable.submit(hunt, BUGS.index(bug)).result()
    assert found, what


def test_every_invariant_has_a_bug_that_it_finds() -> None:
    every = {checker.name for checker in CHECKERS} | SEEN_BY_CLIENTS
    assert every <= {name for bug in BUGS for name in bug.invariants}
    assert any(not bug.invariants for bug in BUGS), "liveness"
