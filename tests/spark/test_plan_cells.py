"""Cells of a plan as tasks of Spark: what they find is what this process finds."""

from typing import Any

import pytest

pytest.importorskip("numba")

from benchmarks.planner import skewed

from odradek.balance.cells import deal, find_in_cells, packed, solve_here
from odradek.balance.model import assemble
from odradek.balance.search import new_state
from odradek.spark.plan_cells import Cells

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("planner_kernels")]


def test_tasks_find_what_one_process_finds(spark: Any) -> None:
    cluster = assemble(*skewed(102, 30_000, 300))
    state = new_state(cluster)
    asked = [packed(cluster, state, brokers) for brokers in deal(cluster, 2)]
    assert Cells(spark).solve(asked) == solve_here(asked)
    found, expected = (
        find_in_cells(cluster, 2, solve_all=Cells(spark).solve),
        find_in_cells(cluster, 2),
    )
    assert (found.broker == expected.broker).all()
    assert (found.leader == expected.leader).all()
