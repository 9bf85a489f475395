"""franz-go's own tests: package kgo of the module that tests/interop/harness/go requires.

All of its tests run, those without a broker too. KGO_TEST_CHAOS=1 makes members of groups leave and
come back at random.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.suites.results import CannotRun, Outcome, Result

MODULE = "github.com/twmb/franz-go"
PACKAGE = f"{MODULE}/pkg/kgo"
GO = Path(__file__).parents[1] / "interop" / "harness" / "go"
RECORDS = 50_000  # of each copying test; the suite's own number, 500,000, takes an hour
TIMEOUT_MINUTES = 15
ENDED = re.compile(r"^--- (PASS|FAIL|SKIP): (\S+)")
OUTCOMES = {"PASS": Outcome.PASSED, "FAIL": Outcome.FAILED, "SKIP": Outcome.SKIPPED}

# Name of a test to why it fails.
EXCEPTIONS: dict[str, str] = {}


def build(directory: Path) -> Path:
    """The package's tests as a program."""
    if shutil.which("go") is None:
        raise CannotRun("no Go here")
    program = directory / "kgo.test"
    built = _go("test", "-c", "-o", str(program), PACKAGE)
    if built.returncode:
        raise CannotRun(f"franz-go cannot be built: {built.stderr.strip().splitlines()[-1]}")
    return program


def _go(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["go", *arguments], cwd=GO, capture_output=True, text=True)


def source() -> Path:
    """Some tests read files beside them."""
    listed = _go("list", "-json", PACKAGE)
    assert listed.returncode == 0, listed.stderr
    return Path(json.loads(listed.stdout)["Dir"])


def run(bootstrap_servers: str, directory: Path, *, chaos: bool) -> list[Result]:
    program = build(directory)
    environment = {
        **os.environ,
        "KGO_SEEDS": bootstrap_servers,
        "KGO_TEST_RECORDS": str(RECORDS),
        "KGO_LOG_LEVEL": "none",
        **({"KGO_TEST_CHAOS": "1"} if chaos else {}),
    }
    log = directory / f"franz-go{'-chaos' if chaos else ''}.log"
    with open(log, "wb") as output:
        ended = subprocess.run(
            [str(program), "-test.v", f"-test.timeout={TIMEOUT_MINUTES}m"],
            cwd=source(),
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    results = parsed(log.read_text(errors="replace"), str(log))
    if ended.returncode and all(result.outcome is not Outcome.FAILED for result in results):
        results.append(Result("the program itself", Outcome.FAILED, str(log)))
    return results


def parsed(output: str, log: str) -> list[Result]:
    """The tests of the highest level; the line before a skip says why."""
    results = []
    before = ""
    for line in output.splitlines():
        ended = ENDED.match(line)
        if ended:
            outcome = OUTCOMES[ended[1]]
            detail = {Outcome.FAILED: log, Outcome.SKIPPED: before.strip()}.get(outcome, "")
            results.append(Result(ended[2], outcome, detail))
        before = line
    return results
