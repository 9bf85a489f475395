"""The diagrams in ARCHITECTURE.md are those of the tables the controller runs on."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from odradek.controller import controller_election, partition_states, replica_states

ROOT = Path(__file__).parent.parent.parent
TOOL = ROOT / "tools" / "diagrams.py"


@pytest.fixture(scope="module")
def diagrams() -> ModuleType:
    spec = importlib.util.spec_from_file_location("diagrams", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_architecture_is_not_stale(diagrams: ModuleType) -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    for name in diagrams.BLOCKS:
        assert f"<!-- {name} -->" in text
    assert diagrams.rewritten(text) == text, "run make docs"


def test_every_legal_transition_is_drawn(diagrams: ModuleType) -> None:
    drawn = diagrams.replica_diagram()
    assert drawn.count(" --> ") == sum(map(len, replica_states.VALID_PREVIOUS.values())) == 14
    assert "    OFFLINE --> DELETION_STARTED: delete\n" in drawn
    assert "    NON_EXISTENT --> NEW: start\n" in drawn
    drawn = diagrams.partition_diagram()
    assert drawn.count(" --> ") == sum(map(len, partition_states.VALID_PREVIOUS.values())) == 8
    assert "    OFFLINE --> ONLINE: elect\n" in drawn
    drawn = diagrams.election_diagram()
    assert drawn.count(" --> ") == sum(map(len, controller_election.TRANSITIONS.values())) == 14
    assert "    ELECTED --> PAUSED: resigned\n" in drawn


def test_what_is_between_the_markers_is_replaced_and_nothing_else(diagrams: ModuleType) -> None:
    text = "before\n<!-- partition-states -->\nold\n<!-- /partition-states -->\nafter\n"
    written = diagrams.rewritten(text)
    assert written.startswith("before\n<!-- partition-states -->\n```mermaid\n")
    assert written.endswith("\n<!-- /partition-states -->\nafter\n")
    assert "old" not in written
    assert diagrams.rewritten(written) == written


def test_checking_fails_on_a_stale_file_and_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    stale = "<!-- replica-states -->\nold\n<!-- /replica-states -->\n"
    path.write_text(stale)
    command = [sys.executable, str(TOOL)]
    checked = subprocess.run([*command, "--check", str(path)], capture_output=True, check=False)
    assert checked.returncode == 1
    assert b"stale: run make docs" in checked.stderr
    assert path.read_text() == stale
    subprocess.run([*command, str(path)], check=True)
    assert "mermaid" in path.read_text()
    subprocess.run([*command, "--check", str(path)], check=True)
