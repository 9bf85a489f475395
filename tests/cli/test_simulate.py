"""What `odradek simulate` says to those who ask for what cannot be run."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from odradek.cli.main import main

# Without it the command would begin again in the place of this process.
SAME_ORDER = {"PYTHONHASHSEED": "0"}


def refused(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["simulate", *arguments], env=SAME_ORDER)
    assert result.exit_code == 2, result.output
    return result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "text", ["", "no plan", "[]", "7", "{}", '{"load": {}, "faults": [1]}', '{"load": {"x": 1}}']
)
def test_a_file_that_is_no_plan(tmp_path: Path, text: str) -> None:
    file = tmp_path / "plan.json"
    file.write_text(text)
    assert refused("--plan", str(file)) == f"Error: {file} is not a plan that --save has written"


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_bytes(b"\xff\xfe")
    assert "is not a plan" in refused("--plan", str(file))


@pytest.mark.parametrize("jobs", ["-1", "0"])
def test_fewer_than_one_at_a_time(jobs: str) -> None:
    assert "--jobs" in refused("--seeds", "1", "--jobs", jobs)


@pytest.mark.parametrize("many", ["--seeds", "--minutes"])
def test_one_seed_and_many(many: str) -> None:
    assert "choose one of them" in refused("--seed", "7", many, "10")
