"""What `make test` shows of a group: one line, what failed, and the reasons of skips."""

from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

TESTS = """
import pytest

@pytest.mark.parametrize("number", range(3))
def test_passes(number):
    assert number < 3

@pytest.mark.skipif(True, reason="no kcat")
def test_by_mark():
    pass

@pytest.mark.skipif(True, reason="no kcat")
def test_by_mark_too():
    pass

def test_by_call():
    pytest.skip("no Java")
"""
FAILS = """
def test_fails():
    assert 1 == 2
"""


@pytest.fixture
def lines_of(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], list[str]]:
    """Runs tests and returns the lines that are shown."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # of the run that this is a part of
    options = ("-qq", "-p", "tests.report", "--group", "some", "-p", "no:asyncio")

    def run(tests: str) -> list[str]:
        pytester.makepyfile(tests)
        return [line for line in pytester.runpytest_subprocess(*options).outlines if line]

    return run


def test_a_group_is_one_line_and_the_reasons_of_its_skips(
    lines_of: Callable[[str], list[str]],
) -> None:
    line, *skips = lines_of(TESTS)
    assert line.startswith("some: 3 passed, 3 skipped in ")
    assert skips == ["  skipped    1: no Java", "  skipped    2: no kcat"]


def test_of_what_failed_there_is_more(lines_of: Callable[[str], list[str]]) -> None:
    lines = lines_of(TESTS + FAILS)
    assert any(line.startswith("some: 3 passed, 1 failed, 3 skipped in ") for line in lines)
    assert "E       assert 1 == 2" in lines
