"""Many seeds on all cores, and their results added up."""

import gc
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from .checkers import table_rows
from .loop import dropping_work
from .plan import Plan
from .run import run

# Counting references frees nearly everything at once: look for cycles seldom, it costs a fifth.
GARBAGE_MAX = 100_000
LOOK_S = 0.2


class Outcome(NamedTuple):
    """One seed's result, small enough to send between processes."""

    seed: int
    virtual_s: float
    faults: dict[str, int]
    counts: dict[str, int]
    transitions: dict[str, int]
    reason: str | None


@dataclass(slots=True)
class Summary:
    """What many seeds add up to."""

    seeds: int = 0
    virtual_s: float = 0.0
    real_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    transitions: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, str]] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.virtual_s += outcome.virtual_s
        self.faults.update(outcome.faults)
        self.counts.update(outcome.counts)
        self.transitions.update(outcome.transitions)
        if outcome.reason is not None:
            self.failures.append((outcome.seed, outcome.reason))

    @property
    def uncovered(self) -> list[str]:
        """The rows of the state tables that no seed has exercised."""
        return [row for row in table_rows() if not self.transitions[row]]

    def __str__(self) -> str:
        speed = self.virtual_s / self.real_s if self.real_s else 0.0
        rows = len(table_rows())
        return (
            f"{self.seeds} seeds, {self.virtual_s / 3600:.2f} simulated hours, "
            f"{sum(self.faults.values())} faults, {rows - len(self.uncovered)} of {rows} "
            f"transitions, {len(self.failures)} failures, {speed:.0f}x real time"
        )


def try_plan(plan: Plan) -> Outcome:
    """Run one plan; an exception of the simulation itself counts as a failure."""
    logging.disable(logging.CRITICAL)
    gc.set_threshold(GARBAGE_MAX)
    seed = plan.seed
    try:
        report = run(plan)
    except Exception as error:
        return Outcome(seed, 0.0, {}, {}, {}, f"the run itself failed: {error!r}")
    finally:
        # A world is a net of cycles, with all that its killed processes held.
        with dropping_work():
            gc.collect()
    reason = None
    if not report.passed:
        reason = "; ".join([*map(str, report.violations), *report.findings][:2])
    faults = {str(kind): number for kind, number in report.faults.items()}
    return Outcome(seed, report.virtual_s, faults, report.counts, report.transitions, reason)


def run_campaign(
    plans: Iterator[Plan],
    deadline: float | None,
    progress: Callable[[Summary], None],
    jobs: int | None = None,
) -> Summary:
    """These plans, until the deadline (of time.monotonic) if there is one, on all cores."""
    summary = Summary()
    began = time.monotonic()
    workers = jobs or os.cpu_count() or 1
    # The pool takes tasks as fast as they come: let it have only a few more than it works on.
    room = threading.BoundedSemaphore(2 * workers)
    over = threading.Event()

    def tasks() -> Iterator[Plan]:
        for plan in plans:
            while not room.acquire(timeout=LOOK_S):
                if over.is_set():  # Ctrl-C: no result makes room any more
                    return
            if deadline is not None and time.monotonic() > deadline:
                return
            yield plan

    # Another interpreter for each, so that the order of sets, which is part of a run, is the same.
    context = multiprocessing.get_context("spawn")
    # Ctrl-C is for us alone; the workers are ended with the pool.
    with context.Pool(workers, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        try:
            for outcome in pool.imap_unordered(try_plan, tasks()):
                room.release()
                summary.add(outcome)
                summary.real_s = time.monotonic() - began
                progress(summary)
        finally:
            over.set()
    return summary
