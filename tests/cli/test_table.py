"""`odradek table`: what each verb says, to people and to programs."""

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.spark.tables.rows import land, numbers

from odradek.cli.table import INSTALL, table


@pytest.fixture
def root(tmp_path: Path) -> Path:
    landed = numbers(tmp_path / "t")
    for batch in range(9):
        land(landed, batch, [batch, batch + 100])
    return tmp_path / "t"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(table, [str(one) for one in arguments])


def answer(*arguments: object) -> Any:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.output)


def test_what_it_is_and_what_was_done_to_it(root: Path) -> None:
    about = answer("info", root)
    assert (about["rows"], about["files"], about["version"]) == (18, 9, 9)
    assert "rows        18" in run("info", root).output
    assert [one["version"] for one in answer("history", root, "--limit", 2)] == [9, 8]
    assert run("history", root).output.startswith("VERSION")


def test_rows_now_and_then(root: Path) -> None:
    assert {row["x"] for row in answer("show", root, "--version", 1)} == {0, 100}
    assert len(answer("show", root, "--limit", 3)) == 3
    assert run("show", root, "--limit", 1).output.splitlines()[0] == "X"
    beyond = run("show", root, "--version", 99)
    assert beyond.exit_code == 1
    assert beyond.output == f"Error: {root}: versions 0 to 9 can be read, not 99\n"


def test_it_is_kept_in_order(root: Path) -> None:
    assert "9 files of " in run("compact", root).output
    assert answer("compact", root)["files_before"] == 1
    assert answer("vacuum", root, "--dry-run") == {"removed": [], "dry_run": True}
    assert "0 files removed" in run("vacuum", root).output
    assert answer("restore", root, "--version", 2) == {"version": 11, "like": 2}
    assert answer("check", root)["rows"] == 4
    assert "a time such as" in run("vacuum", root, "--older-than", "soon").output


def test_check_ends_with_1_where_something_is_missing(root: Path) -> None:
    assert run("check", root).exit_code == 0
    next(root.glob("*.parquet")).unlink()
    done = run("check", root)
    assert done.exit_code == 1
    assert ".parquet: " in done.output


def test_a_torn_entry_is_mended_by_a_verb_that_writes(root: Path) -> None:
    (root / "_delta_log" / f"{9:020d}.json").write_bytes(b"")
    done = run("compact", root)
    assert done.exit_code == 0
    assert "put aside" in done.output


def test_without_the_extra_one_line_says_what_to_install(root: Path) -> None:
    program = (
        "import sys; sys.modules['deltalake'] = None; from odradek.cli.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "table", "info", root], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr == f"Error: {INSTALL}\n"


VERBS = ["info", "history", "show", "compact", "vacuum", "restore --version 1", "check"]


def test_no_verb_needs_spark(root: Path) -> None:
    program = f"""
import sys
sys.modules["pyspark"] = sys.modules["py4j"] = None
from click.testing import CliRunner
from odradek.cli.table import table
assert set(table.commands) == {{verb.split()[0] for verb in {VERBS}}}
for verb in {VERBS}:
    name, *options = verb.split()
    done = CliRunner().invoke(table, [name, {str(root)!r}, *options])
    assert done.exit_code == 0, (verb, done.output, done.exception)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("show --storage X", "'X' is not of the form NAME=VALUE"),
        ("show --limit 0", "0 is not in the range x>=1"),
        ("show --version 1 --at 2026-01-01", "--version and --at exclude each other"),
        ("compact --target-mb 0", "0 is not in the range x>=1"),
        ("compact --min-files 1", "1 is not in the range x>=2"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(root: Path, verb: str, said: str) -> None:
    name, *options = verb.split()
    done = run(name, root, *options)
    assert done.exit_code == 2
    assert said in done.output


def test_a_path_that_cannot_be_a_table(root: Path) -> None:
    file = root / "file"
    file.touch()
    for path, said in ((file, "is a file"), ("s3://", "names no bucket")):
        done = run("info", path)
        assert done.exit_code == 1
        assert done.output.startswith(f"Error: {path}")
        assert said in done.output


def test_a_full_disk_is_one_line(root: Path) -> None:
    # No file grows: the system refuses the write, as on a full disk.
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        refused = [run("compact", root), run("restore", root, "--version", 1)]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    for done in refused:
        assert done.exit_code == 1
        assert done.output.startswith("Error: ")
        assert "File too large" in done.output
    assert run("check", root).exit_code == 0
