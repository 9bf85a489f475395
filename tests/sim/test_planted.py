"""The checkers can fail: every planted bug is found by a seed that is known to find it, or one of
the next, since any change of the product's timing makes another run of a seed."""

import logging
from concurrent.futures import Executor
from dataclasses import replace

import pytest
from tests.sim import planted, planted_transactions
from tests.sim.planted import Bug, lose_topic_ids, seeds_to_find, set_aside_by_id_alone

from odradek.sim.checkers import CHECKERS
from odradek.sim.cleaned_topics import CLEANING_CHECKERS
from odradek.sim.history import Violation
from odradek.sim.run import run
from odradek.sim.transaction_checkers import TRANSACTION_CHECKERS

BUGS = [*planted.BUGS, *planted_transactions.BUGS]
SEEDS_MAX = 6
SEEN_BY_CLIENTS = {
    "OnlyCommittedIsRead",
    "CommittedIsReadWhole",
    "LastStableOffsetNeverGoesBack",
    "OneOwnerPerEpoch",
    "ZombiesAreFenced",
    "PendingOffsetsInvisible",
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


def violations_without_the_bug() -> list[Violation]:
    logging.disable(logging.CRITICAL)
    bug = next(bug for bug in BUGS if bug.patches is set_aside_by_id_alone)
    with replace(bug, patches=lose_topic_ids).planted():
        return run(bug.plan_for(bug.seed)).violations


def test_topics_that_got_another_id_lose_nothing_but_their_service(repeatable: Executor) -> None:
    """The planted bug that sets logs aside needs a tool that loses ids; the tool alone is safe."""
    assert repeatable.submit(violations_without_the_bug).result() == []


def test_every_invariant_has_a_bug_that_it_finds() -> None:
    checkers = (*CHECKERS, *TRANSACTION_CHECKERS, *CLEANING_CHECKERS)
    every = {checker.name for checker in checkers} | SEEN_BY_CLIENTS
    assert every <= {name for bug in BUGS for name in bug.invariants}
    assert any(not bug.invariants for bug in BUGS), "liveness"
