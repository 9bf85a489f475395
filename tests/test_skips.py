"""What is skipped without Java or Prometheus; a Java with which nothing starts is no such case."""

from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

Run = Callable[[], pytest.RunResult]
HERE = Path(__file__).parent
TESTS = """
import pytest

@pytest.mark.spark
def test_with_spark():
    raise AssertionError("there is no Spark here")

def test_with_zookeeper(zookeeper_address):
    raise AssertionError("there is no ZooKeeper here")

def test_with_neither():
    pass
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs tests under the rules of ours, with a Java of their own."""
    pytester.makeconftest((HERE / "conftest.py").read_text())
    store = pytester.mkdir("store")
    (store / "conftest.py").write_text((HERE / "store" / "conftest.py").read_text())
    (store / "test_some.py").write_text(TESTS)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    options = ("-rs", "--import-mode=importlib", "-p", "no:cacheprovider", "-p", "no:asyncio")
    return lambda: pytester.runpytest_subprocess(*options)


def test_without_java_its_tests_are_skipped_and_say_why(run: Run, tmp_path: Path) -> None:
    result = run()
    result.assert_outcomes(passed=1, skipped=2)
    result.stdout.fnmatch_lines([f"SKIPPED *JAVA_HOME is {tmp_path}*"] * 2)


def test_a_zookeeper_that_does_not_start_is_an_error(run: Run, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    result = run()
    result.assert_outcomes(passed=1, failed=1, errors=1)
    result.stdout.fnmatch_lines(["E *CannotStart: ZooKeeper ended at once*"])


def test_without_prometheus_its_test_is_skipped_and_says_why(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = (HERE / "broker" / "test_prometheus.py").read_text()
    pytester.makepyfile(test_prometheus=source)
    pytester.makeini("[pytest]\nmarkers = process")
    monkeypatch.setenv("PATH", str(tmp_path))
    result = pytester.runpytest_subprocess("-rs", "-p", "no:cacheprovider", "-p", "no:asyncio")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED *no prometheus: apt-get install prometheus*"])
