"""What became of the tests of a suite, and what was expected of them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum


class Outcome(Enum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Result:
    """One test; `detail` is why it was skipped, or where its output is if it failed."""

    name: str
    outcome: Outcome
    detail: str = ""


class CannotRun(Exception):
    """A suite's program is not to be had here, and why."""


def judged(results: Iterable[Result], exceptions: Mapping[str, str]) -> list[Result]:
    """A test that is known to fail counts as skipped, with the reason; if it passes, as failed:
    the list is out of date."""
    return [_judge(result, exceptions.get(result.name)) for result in results]


def _judge(result: Result, reason: str | None) -> Result:
    if reason is None or result.outcome is Outcome.SKIPPED:
        return result
    if result.outcome is Outcome.FAILED:
        return Result(result.name, Outcome.SKIPPED, f"expected to fail: {reason}")
    return Result(result.name, Outcome.FAILED, f"passes, but is listed as failing: {reason}")


def summary(results: Iterable[Result]) -> str:
    counts = Counter(result.outcome for result in results)
    return ", ".join(f"{counts[outcome]} {outcome.value}" for outcome in Outcome)
