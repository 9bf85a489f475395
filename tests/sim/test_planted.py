"""The checkers can fail: every planted bug is found by a seed that is known to find it, or one of
the next, since any change of the product's timing makes another run of a seed."""

import logging
from concurrent.futures import Executor

import pytest
from tests.sim.planted import BUGS, Bug, seeds_to_find

from odradek.sim.checkers import CHECKERS

SEEDS_MAX = 6
SEEN_BY_CLIENTS = {
    "ConsistentRead",
    "NothingSkipped",
    "HighWatermarkNeverGoesBack",
    "OffsetsNeverForgotten",
}


def hunt(index: int) -> int | None:
    logging.disable(logging.CRITICAL)
    return seeds_to_find(BUGS[index], BUGS[index].seed, SEEDS_MAX)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug, repeatable: Executor) -> None:
    assert repeatable.submit(hunt, BUGS.index(bug)).result() is not None


def test_every_invariant_has_a_bug_that_it_finds() -> None:
    every = {checker.name for checker in CHECKERS} | SEEN_BY_CLIENTS
    assert every <= {name for bug in BUGS for name in bug.invariants}
    assert any(not bug.invariants for bug in BUGS), "liveness"
