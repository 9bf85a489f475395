"""A pytest plugin for `make test`: a line per group of tests, the failures, and reasons of skips.

`-p tests.report --group NAME`. Worker processes write what libraries print on standard error, such
as librdkafka's lines about brokers that a test has killed, to build/tests/WORKER.log.
"""

import os
import re
import time
from collections import Counter
from pathlib import Path

import pytest

LOGS = Path(__file__).parent.parent / "build" / "tests"


class Report:
    """What the terminal shows of one group."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.started = time.monotonic()
        self.skips: Counter[str] = Counter()

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """No dot for a test that passes or is skipped."""
        if report.skipped and report.when in {"setup", "call"}:
            self.skips[_reason(report)] += 1
            return "skipped", "", ""
        if report.passed and report.when == "call":
            return "passed", "", ""
        return None

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter, exitstatus: int
    ) -> None:
        counts = {
            name: len(terminalreporter.stats.get(name, ()))
            for name in ("passed", "failed", "error", "skipped", "xfailed", "xpassed")
        }
        summary = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
        seconds = time.monotonic() - self.started
        terminalreporter.write_line(f"{self.group}: {summary or 'no tests'} in {seconds:.0f} s")
        for reason, count in sorted(self.skips.items()):
            terminalreporter.write_line(f"  skipped {count:>4}: {reason}")


def _reason(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return re.sub(r"^Skipped: ", "", report.longrepr[2])
    return str(report.longrepr)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--group", default="", help="report one line for the run, under this name")


def pytest_configure(config: pytest.Config) -> None:
    group: str = config.getoption("--group")
    if group and WORKER is None:
        config.pluginmanager.register(Report(group))


# When this is imported pytest has not begun to capture: later it would keep the descriptor that it
# found, and give it back between tests.
WORKER = os.environ.get("PYTEST_XDIST_WORKER")
if WORKER is not None:
    LOGS.mkdir(parents=True, exist_ok=True)
    with (LOGS / f"{WORKER}.log").open("a") as log:
        os.dup2(log.fileno(), 2)
