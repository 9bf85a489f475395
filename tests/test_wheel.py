"""The wheel, in an environment that has nothing but it and what it depends on."""

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tools import wheel

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(300)]

HOME = "https://home.example/odradek"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel.build(tmp_path_factory.mktemp("wheel"), HOME)


def metadata_of(built: Path) -> Message:
    with zipfile.ZipFile(built) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode())


@pytest.fixture(scope="module")
def odradek(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command, in an environment with the wheel and its dependencies, without extras."""
    home = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    (packages,) = home.glob("lib/python*/site-packages")
    for name in dependencies("odradek", metadata_of(built).get_all("Requires-Dist") or []):
        for entry in top_level_entries(name):
            (packages / entry.name).symlink_to(entry)
    command = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "install"]
    command += ["--quiet", "--no-deps", "--no-index", "--disable-pip-version-check", str(built)]
    subprocess.run(command, check=True)
    return home / "bin" / "odradek"


def dependencies(name: str, requires: list[str]) -> Iterator[str]:
    """What a distribution needs, and what that needs, as installed here."""
    todo, seen = list(requires), {name}
    while todo:
        requirement = Requirement(todo.pop())
        if requirement.name in seen or (requirement.marker and not requirement.marker.evaluate()):
            continue
        seen.add(requirement.name)
        yield requirement.name
        todo += metadata.requires(requirement.name) or []


def top_level_entries(name: str) -> set[Path]:
    installed = metadata.distribution(name)
    names = {file.parts[0] for file in installed.files or []} - {"..", "__pycache__"}
    return {Path(str(installed.locate_file(each))) for each in names}


def run(odradek: Path, *arguments: str) -> str:
    environment = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    environment["COLUMNS"] = "100"
    done = subprocess.run(
        [odradek, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"odradek {' '.join(arguments)}: {done.stderr}{done.stdout}"
    return done.stdout


def commands_in(text: str) -> list[str]:
    _, _, listed = text.partition("Commands:\n")
    return re.findall(r"^  ([a-z-]+)  ", listed, re.MULTILINE)


def test_every_command_shows_its_help(odradek: Path) -> None:
    names = commands_in(run(odradek, "--help"))
    assert {"up", "broker", "topics", "demo", "pipeline"} <= set(names)
    for name in names:
        for verb in commands_in(run(odradek, name, "--help")):
            run(odradek, name, verb, "--help")


def test_the_wheel_brings_the_plugin_and_the_types(built: Path) -> None:
    with zipfile.ZipFile(built) as archive:
        names = set(archive.namelist())
        (points,) = [name for name in names if name.endswith("entry_points.txt")]
        assert "odradek = odradek.testing.plugin" in archive.read(points).decode()
    assert "odradek/py.typed" in names
    assert "pyspark_odradek/__init__.py" in names
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/", "tools/"))]


def test_every_link_of_its_page_is_absolute_and_leads_to_a_file(built: Path) -> None:
    page = metadata_of(built).get_payload()
    assert isinstance(page, str)
    links = re.findall(r"\]\(([^)\s#]+)", page)
    assert links
    for link in links:
        assert link.startswith("https://"), link
        if link.startswith(HOME):
            assert (wheel.ROOT / link.removeprefix(f"{HOME}/")).exists(), link


def test_the_version_stands_in_one_place(built: Path) -> None:
    import odradek

    assert metadata_of(built)["Version"] == odradek.__version__
