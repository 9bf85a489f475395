"""Writes the controller's state diagrams into ARCHITECTURE.md, from the tables it runs on.

Run: make docs. Each diagram stands between two markers, `<!-- name -->` and `<!-- /name -->`; what
is between them is replaced. With --check nothing is written, and a stale diagram is an error.
"""

import argparse
import re
import sys
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path

from odradek.controller import controller_election, partition_states, replica_states
from odradek.coordinator import transaction_states

ARCHITECTURE = Path(__file__).parent.parent / "ARCHITECTURE.md"


def diagram(edges: list[tuple[str, str, str]]) -> str:
    """A Mermaid state diagram; GitHub draws it."""
    lines = ["```mermaid", "stateDiagram-v2"]
    lines += [
        f"    {previous} --> {target}" + (f": {label}" if label else "")
        for previous, target, label in edges
    ]
    return "\n".join([*lines, "```"])


def legend(effects: type[Enum]) -> str:
    """What the words on the arrows mean."""
    rows = [f"| {_words(effect.name)} | {effect.value} |" for effect in effects]
    return "\n".join(["| effect | what it is |", "|---|---|", *rows])


def _words(name: str) -> str:
    return name.lower().replace("_", " ")


def replica_diagram() -> str:
    edges = []
    for target, valid in replica_states.VALID_PREVIOUS.items():
        for previous in sorted(valid):
            found = replica_states.effects(previous, target, has_leadership=True, is_leader=False)
            label = ", ".join(_words(effect.name) for effect in found)
            edges.append((previous.name, target.name, label))
    return f"{diagram(edges)}\n\n{legend(replica_states.ReplicaEffect)}"


def partition_diagram() -> str:
    edges = [
        (previous.name, target.name, _words(partition_states.effect(previous, target).name))
        for target, valid in partition_states.VALID_PREVIOUS.items()
        for previous in sorted(valid)
    ]
    return f"{diagram(edges)}\n\n{legend(partition_states.PartitionEffect)}"


def election_diagram() -> str:
    edges = [
        (previous.name, target.name, why)
        for target, sources in controller_election.TRANSITIONS.items()
        for previous, why in sources.items()
    ]
    return diagram(edges)


def transaction_diagram() -> str:
    edges = [
        (previous.label, target.label, "")
        for target, valid in transaction_states.VALID_PREVIOUS.items()
        for previous in sorted(valid)
    ]
    return diagram(edges)


BLOCKS: Mapping[str, Callable[[], str]] = {
    "replica-states": replica_diagram,
    "partition-states": partition_diagram,
    "controller-election": election_diagram,
    "transaction-states": transaction_diagram,
}


def rewritten(text: str) -> str:
    """The text with every block between known markers as the tables have it today."""
    for name, make in BLOCKS.items():
        between = re.compile(f"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        text = between.sub(lambda found, make=make: f"{found[1]}{make()}\n{found[2]}", text)  # type: ignore[misc]
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail if stale")
    parser.add_argument("path", nargs="?", type=Path, default=ARCHITECTURE)
    options = parser.parse_args()
    text = options.path.read_text()
    wanted = rewritten(text)
    if options.check and wanted != text:
        sys.exit(f"{options.path.name} is stale: run make docs")
    if not options.check:
        options.path.write_text(wanted)


if __name__ == "__main__":
    main()
