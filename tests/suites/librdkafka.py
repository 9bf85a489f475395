"""librdkafka's own tests that need brokers, from the source that node-rdkafka's npm package ships.

Each runs in a process of its own (TESTS=number), several at a time: most of their time is waiting.
"""

import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.interop.harness.kafka import KAFKA_3_9, TOOLS, TOOLS_HEAP, is_here, java, main_class
from tests.suites.results import CannotRun, Outcome, Result

PACKAGE, VERSION = "node-rdkafka", "3.6.1"  # librdkafka 2.12.0
HOME = Path(__file__).parents[2] / "build" / f"librdkafka-of-{PACKAGE}-{VERSION}"
AT_ONCE = 4
# They measure latency, or subscribe to patterns that topics of other tests match.
ALONE = (
    "0033_regex_subscribe",
    "0055_producer_latency",
    "0084_destroy_flags",
    "0127_fetch_queue_backoff",
)
LONGEST = "0113_cooperative_rebalance"  # minutes of waiting: begun first
TIMEOUT_S = 900
PATIENCE = 3  # times a test's own time-out: it may start Kafka's tools
KAFKA_VERSION = "3.9.0"
NEEDED = ("npm", "tar", "gcc", "g++", "make")
COLOURS = re.compile(r"\x1b\[[0-9;]*m|\x1b\(B")
ROW = re.compile(r"^\| (\S+) +\| +(PASSED|FAILED|SKIPPED) +\|[^|]*\|(.*)$", re.MULTILINE)
LOCAL = "Filtered due to negative test flags"

# Its authors' cluster has Kafka's default here: tests count the rebalances.
SETTINGS = {"group.initial.rebalance.delay.ms": 3000}

# Name of a test to why it fails.
EXCEPTIONS = {
    "0052_msg_timestamps": "writes records of magic 0 and 1, which are refused",
    "0081_admin": "sets sasl.kerberos.min.time.before.relogin; there is no Kerberos",
}


def build(*goals: str) -> Path:
    """librdkafka's source tree with these goals made, kept in build/."""
    missing = [program for program in NEEDED if shutil.which(program) is None]
    if missing:
        raise CannotRun(f"not on this machine: {', '.join(missing)}")
    if not (HOME / "configure").exists():
        _unpack()
    steps = [["./configure", "--disable-gssapi"], ["make", f"-j{os.cpu_count()}", "libs"]]
    if not (HOME / "src" / "librdkafka.so.1").exists():
        for step in steps:
            _make(step)
    for goal in goals:
        directory, _, target = goal.partition(":")
        _make(["make", "-C", directory, f"-j{os.cpu_count()}", target])
    return HOME


def _unpack() -> None:
    HOME.mkdir(parents=True, exist_ok=True)
    packed = subprocess.run(
        ["npm", "pack", "--silent", f"{PACKAGE}@{VERSION}"],
        cwd=HOME,
        capture_output=True,
        text=True,
    )
    if packed.returncode:
        raise CannotRun(f"npm cannot bring {PACKAGE} {VERSION}")
    archive = packed.stdout.split()[-1]
    inside = "package/deps/librdkafka"
    unpack = ["tar", "-xzf", archive, "--strip-components=3", inside]
    subprocess.run(unpack, cwd=HOME, check=True)


def _make(command: list[str]) -> None:
    made = subprocess.run(command, cwd=HOME, capture_output=True, text=True)
    if made.returncode:
        last = (made.stderr or made.stdout).strip().splitlines()[-1:]
        raise CannotRun(f"{' '.join(command)} failed: {' '.join(last)}")


def run(bootstrap_servers: str, directory: Path) -> list[Result]:
    tests = build("tests:build") / "tests"
    (tests / "test.conf").write_text(
        f"bootstrap.servers={bootstrap_servers}\ntest.timeout.multiplier={PATIENCE}\n"
    )
    names = sorted(path.stem.replace("-", "_") for path in tests.glob("0[0-9][0-9][0-9]-*.c*"))
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": "../src:../src-cpp",
        "TEST_KAFKA_VERSION": KAFKA_VERSION,
        "TEST_LEVEL": "1",
        "BROKERS": bootstrap_servers,
        "KAFKA_PATH": str(_tools(directory)),
    }
    logs = directory / "librdkafka"
    logs.mkdir()
    results = [result for name in ALONE for result in _run(name, tests, environment, logs)]
    others = [name for name in names if name not in ALONE and not name.endswith("_mock")]
    others.sort(key=lambda name: name != LONGEST)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for some in pool.map(lambda name: _run(name, tests, environment, logs), others):
            results += some
    return results


def _tools(directory: Path) -> Path:
    """Some tests call Kafka's own scripts; ours have their names and run their classes."""
    scripts = directory / "kafka" / "bin"
    scripts.mkdir(parents=True)
    for name in TOOLS if is_here() else ():
        command = " ".join(java(main_class(name, KAFKA_3_9), heap=TOOLS_HEAP))
        script = scripts / f"{name}.sh"
        script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        script.chmod(0o755)
    return scripts.parent


def _run(name: str, tests: Path, environment: dict[str, str], logs: Path) -> list[Result]:
    log = logs / f"{name}.log"
    with open(log, "wb") as output:
        try:
            subprocess.run(
                ["./test-runner", "-L", "-p1"],
                cwd=tests,
                env={**environment, "TESTS": name[:4]},
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            return [Result(name, Outcome.FAILED, f"no end after {TIMEOUT_S} s: {log}")]
    return parsed(name, COLOURS.sub("", log.read_text(errors="replace")), str(log))


def parsed(file: str, output: str, log: str) -> list[Result]:
    """The rows of the runner's table. A failed test may abort before it is printed."""
    results = []
    for name, outcome, detail in ROW.findall(output):
        if name == "<MAIN>" or LOCAL in detail:
            continue
        how = Outcome(outcome.lower())
        results.append(Result(name, how, log if how is Outcome.FAILED else detail.strip(" |")))
    if not ROW.search(output):
        results.append(Result(file, Outcome.FAILED, log))
    return results
