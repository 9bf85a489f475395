"""`make peers-bench`: measures ours and Apache Kafka in turns and writes docs/benchmark.md.

The figures of every repetition, and when and on what they were taken, are kept in figures.json
beside this file, so that the page can be written again (`--report`), and a part can be measured
again (`--only throughput`) on any checkout. It refuses to run while something else
keeps the machine busy; `--anyway` measures all the same.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.interop.harness.kafka import KAFKA_4, PeersMissing, classpath
from tests.interop.harness.processes import busy_cores

from benchmarks.apache_kafka import measures, report
from benchmarks.apache_kafka.systems import (
    Make,
    System,
    apache,
    apache_with_tls,
    kraft,
    new,
    ours_embedded,
    ours_on_zookeeper,
    ours_with_tls,
)

PAGE = Path(__file__).parents[2] / "docs" / "benchmark.md"
NOTES = Path(__file__).parent / "notes.md"
FIGURES = Path(__file__).parent / "figures.json"
BUSY_CORES_MAX = 0.2

Part = Callable[[System], measures.Figures]
# Each part on a new cluster, which `start` starts: what a part leaves behind is not the next one's.
PARTS: dict[str, tuple[Part, ...]] = {
    "throughput": (measures.throughput, measures.catch_up),
    "consume": (measures.c_consume,),
    "shapes": (measures.small_batches, measures.thousand_partitions, measures.crowd),
    "transactions": (measures.transactional,),
    "tls": (measures.tls,),
    "death": (measures.leader_death,),
    "many": (measures.many_partitions, measures.restart_of_many, measures.stop_of_many),
}
PLAIN = tuple(part for part in PARTS if part != "tls")
SYSTEMS: dict[Make, tuple[str, ...]] = {
    ours_embedded: PLAIN,
    ours_with_tls: ("tls",),
    apache: PLAIN,
    apache_with_tls: ("tls",),
    kraft: ("throughput", "death", "many"),
    ours_on_zookeeper: ("death", "many"),
}

Results = dict[str, dict[str, list[float]]]


@dataclass
class Kept:
    """What is known from runs: figures, and by part when and on what they were taken."""

    figures: Results = field(default_factory=dict)
    conditions: dict[str, str] = field(default_factory=dict)
    # What could not be measured in the last run, and why.
    failures: list[str] = field(default_factory=list)


def measure(
    repetitions: int, only: list[str], home: Path, failures: list[str]
) -> Iterator[tuple[str, Results]]:
    """A part, and all the figures so far, after each system's turn."""
    results: Results = {}
    for repetition in range(1, repetitions + 1):
        for name in only:
            for make, wanted in SYSTEMS.items():
                if name in wanted:
                    with new(make, home / f"{name}-{repetition}-{make.__name__}") as system:
                        for figures in run(system, PARTS[name], failures):
                            keep(results, system.name, figures, repetition)
                    yield name, results


def run(system: System, parts: tuple[Part, ...], failures: list[str]) -> Iterator[measures.Figures]:
    """The figures of each part that succeeds; one that fails does not lose the others."""
    for part in (measures.start, *parts):
        try:
            yield part(system)
        except Exception as error:
            failures.append(
                f"{system.name}, {part.__name__}: {type(error).__name__}: {error}"[:300]
            )
            print(f"NOT MEASURED: {failures[-1]}", flush=True)
            if part is measures.start:
                return


def keep(results: Results, name: str, figures: measures.Figures, repetition: int) -> None:
    for measured, value in figures.items():
        print(
            f"{time.strftime('%H:%M:%S')} {repetition} {name}: {measured} {value:.3f}", flush=True
        )
        results.setdefault(name, {}).setdefault(measured, []).append(value)


def quiet_or_end(is_forced: bool) -> float:
    """How many cores others keep busy; ends the program if that would be measured too."""
    busy = busy_cores()
    if busy > BUSY_CORES_MAX:
        print(f"others keep {busy:.2f} cores busy: what is measured now says little", flush=True)
        if not is_forced:
            sys.exit("measure when nothing else runs, or with --anyway")
    return busy


def measure_and_keep(chosen: argparse.Namespace, kept: Kept) -> None:
    """Adds to what is known; what is measured again replaces what was."""
    began = time.monotonic()
    busy = quiet_or_end(chosen.anyway)
    machine = report.machine()
    measured: set[str] = set()
    with tempfile.TemporaryDirectory(prefix="odradek-bench-", dir=chosen.home) as home:
        kept.failures.clear()
        for part, so_far in measure(chosen.repetitions, chosen.only, Path(home), kept.failures):
            for name, figures in so_far.items():
                kept.figures.setdefault(name, {}).update(figures)
            minutes = (time.monotonic() - began) / 60
            measured.add(part)
            conditions = (
                f"{machine} The run took {minutes:.0f} minutes;"
                f" others kept {busy:.2f} cores busy when it began."
            )
            kept.conditions.update(dict.fromkeys(measured, conditions))
            if not chosen.trial:
                FIGURES.write_text(json.dumps(asdict(kept), indent=1) + "\n")
    print(f"took {minutes:.1f} minutes")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.apache_kafka", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--home", type=Path, help="a directory on the disk to measure")
    parser.add_argument("--anyway", action="store_true", help="although the machine is busy")
    parser.add_argument("--report", action="store_true", help="only write the page again")
    parser.add_argument("--trial", action="store_true", help="print the page, keep nothing")
    chosen = parser.parse_args()
    try:
        classpath(), classpath(KAFKA_4)
    except PeersMissing as error:
        sys.exit(str(error))
    known = FIGURES.exists() and not chosen.trial
    kept = Kept(**json.loads(FIGURES.read_text())) if known else Kept()
    if not chosen.report:
        measure_and_keep(chosen, kept)
    notes = NOTES.read_text() if NOTES.exists() else ""
    page = report.page(kept.figures, kept.conditions, notes, kept.failures)
    if chosen.trial:
        print(page)
    else:
        PAGE.write_text(page)
        print(f"written: {PAGE}")
    if kept.failures:
        sys.exit(f"{len(kept.failures)} measures failed")


if __name__ == "__main__":
    main()
