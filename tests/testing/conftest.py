"""Tests that are run by tests are held to what holds for every test."""

from pathlib import Path

import pytest

RULES = Path(__file__).parents[1] / "conftest.py"


@pytest.fixture
def pytester(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeconftest(RULES.read_text())
    return pytester
