"""A minute of torment in every test run: every acknowledged record is read once, in order.

An hour of it: `make torment`; of a pipeline on Spark: `make torment-spark`.
"""

from pathlib import Path

import pytest
from tests.soak.account import Account
from tests.soak.run import run
from tests.soak.spark import audit

SECONDS = 60


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_cluster_under_torment_loses_nothing(tmp_path: Path) -> None:
    outcome = run(seed=1, seconds=SECONDS, data_dir=tmp_path)
    assert outcome.problems == [], str(outcome)
    assert len(outcome.account.acknowledged) > 1000, "too little happened to prove anything"
    assert sum(outcome.torments.values()) >= 5


def test_the_account_finds_what_is_lost_twice_there_or_out_of_order() -> None:
    account = Account()
    for number in (0, 1, 2, 3):
        account.acknowledge(7, number)
    assert "4 lost" in account.verdict()
    for offset, number in enumerate((0, 2, 1)):
        account.receive(7, number, 0, offset)
    account.receive(7, 0, 0, 3)
    verdict = account.verdict()
    assert "1 lost, such as [(7, 3)]" in verdict
    assert "1 duplicated, such as [(7, 0)]" in verdict
    assert "1 reordered, such as [(7, 2, 1)]" in verdict
    account.receive(7, 3, 0, 4)
    assert account.lost == set()


def test_the_audit_of_a_pipeline_finds_what_is_missing_twice_or_unknown() -> None:
    written = [(7, number) for number in range(3)]
    assert audit(written, reversed(written), "table") == []
    assert audit(written, [(7, 0), (7, 1), (7, 1), (8, 0)], "table") == [
        "table: 1 missing, such as [(7, 2)]",
        "table: 1 twice, such as [(7, 1)]",
        "table: 1 unknown, such as [(8, 0)]",
    ]
