"""`odradek simulate`: the whole cluster in one process, in virtual time, with faults."""

import itertools
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, TextIO

import click

if TYPE_CHECKING:
    from odradek.sim.plan import Plan
    from odradek.sim.run import Report
    from odradek.wire.topics import TopicPartition

SEEDS = 10  # unless a number or a time is given
PROGRESS_S = 10  # between two lines of progress where there is no terminal to redraw one


@click.command(epilog="Examples: odradek simulate --seed 7     odradek simulate --minutes 10")
@click.option("--seed", type=int, help="Replay one seed and print its verdict.")
@click.option(
    "--seconds",
    type=float,
    default=60.0,
    show_default=True,
    help="How long faults are injected, in virtual time.",
)
@click.option(
    "--plan",
    "file",
    type=click.File(),
    help="Replay a saved plan instead of the one a seed draws.",
)
@click.option("--verbose", "-v", is_flag=True, help="One run: print its history also if it passes.")
@click.option("--steps", type=int, help="One run: print only the first N lines of its history.")
@click.option("--partition", help="One run: print only the history of this partition.")
@click.option("--shrink", is_flag=True, help="One run: find the fewest faults that still fail.")
@click.option("--save", type=click.File("w"), help="One run: write its plan to this file.")
@click.option("--users", is_flag=True, help="With --seed: users, ACLs and tokens that change.")
@click.option(
    "--wide", is_flag=True, help="Draw worlds of 1,000 to 2,000 partitions and one fault."
)
@click.option("--minutes", type=float, help="Run fresh seeds on all cores for N minutes.")
@click.option("--seeds", "count", type=int, help="Run N seeds on all cores.")
@click.option("--first", type=int, default=1, show_default=True, help="The first of many seeds.")
@click.option("--jobs", type=click.IntRange(min=1), help="Run N at a time, not one on each core.")
def simulate(
    seed: int | None,
    seconds: float,
    file: TextIO | None,
    verbose: bool,
    steps: int | None,
    partition: str | None,
    shrink: bool,
    save: TextIO | None,
    users: bool,
    wide: bool,
    minutes: float | None,
    count: int | None,
    first: int,
    jobs: int | None,
) -> None:
    """Run the cluster in a simulated world, inject faults and check the invariants.

    Brokers, controller, replication and clients are the real code; time, network, disks and the
    metadata store are simulated, and everything is drawn from the seed. The same seed gives the
    same run. Exits with 1 when an invariant did not hold.
    """
    if (seed is not None or file is not None) and (minutes is not None or count is not None):
        raise click.UsageError(
            "--seed and --plan run one seed, --minutes and --seeds run many: choose one of them"
            " (--first is where many begin)"
        )
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets is part of a run: without this, it is another one each time.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "odradek", *sys.argv[1:]])
    from odradek.sim.plan import draw_plan, draw_wide_plan

    draw = draw_wide_plan if wide else draw_plan
    if users:
        sys.exit(1 if _users(1 if seed is None else seed, seconds) else 0)
    plan = None
    if file is not None:
        plan = _saved(file)
    elif seed is not None:
        plan = draw(seed, seconds)
    if plan is not None:
        only = None if partition is None else _partition(partition)
        history = History(verbose or steps is not None or only is not None, steps, only)
        failed = _one(plan, history, shrink, save)
    else:
        if minutes is None and count is None:
            count = SEEDS
        seeds = itertools.count(first) if count is None else range(first, first + count)
        failed = _many((draw(each, seconds) for each in seeds), minutes, jobs)
    sys.exit(1 if failed else 0)


def _users(seed: int, seconds: float) -> bool:
    """Whether a world of users finds anything."""
    from odradek.sim.security import run_security

    report = run_security(seed, seconds)
    click.echo(", ".join(f"{count} {what}" for what, count in sorted(report.counts.items())))
    for each in (*report.violations, *report.findings):
        click.echo(f"VIOLATED {each}")
    click.echo(f"seed {seed}: {'passed' if report.passed else 'FAILED'}")
    return not report.passed


def _saved(file: TextIO) -> "Plan":
    from odradek.sim.plan import Plan

    try:
        return Plan.from_json(file.read())
    except (ValueError, KeyError, TypeError):
        raise click.UsageError(f"{file.name} is not a plan that --save has written") from None


class History(NamedTuple):
    """What to print of a run's history; that of a failed run is printed anyhow."""

    is_wanted: bool
    lines: int | None
    partition: "TopicPartition | None"


def _partition(name: str) -> "TopicPartition":
    from odradek.wire.topics import TopicPartition

    topic, _, number = name.rpartition("-")
    if not topic or not number.isdigit():
        raise click.UsageError(f"{name!r} is not a partition: write topic-number")
    return TopicPartition(topic, int(number))


def _one(plan: "Plan", history: History, smaller: bool, save: TextIO | None) -> bool:
    import logging

    from odradek.sim.run import run

    logging.disable(logging.CRITICAL)
    if not smaller:
        click.echo(f"seed {plan.seed}: {plan}")
    report = run(plan)
    if smaller:
        if not report.passed:
            plan = _shrunk(plan)
            report = run(plan)
        click.echo(f"seed {plan.seed}: {plan}")
    if save is not None:
        save.write(plan.to_json())
    _print(report, history)
    return not report.passed


def _shrunk(plan: "Plan") -> "Plan":
    from odradek.sim.shrink import shrink

    def progress(tried: int, left: int) -> None:
        click.echo(f"\r{tried} runs, {left} faults left", nl=False, err=True)

    smaller = shrink(plan, progress)
    click.echo(err=True)
    for fault in smaller.faults:
        click.echo(f"still needed: {fault}")
    return smaller


def _print(report: "Report", history: History) -> None:
    if history.is_wanted or not report.passed:
        only = history.partition
        shown = [
            event
            for event in report.events
            if only is None or isinstance(event.what, str) or event.what.concerns(only)
        ]
        for event in shown[: history.lines]:
            click.echo(str(event))
    injected = ", ".join(f"{kind} {number}" for kind, number in sorted(report.faults.items()))
    click.echo(f"faults: {injected or 'none'}")
    for violation in report.violations:
        click.secho(str(violation), fg="red")
    for finding in report.findings:
        click.secho(f"            {finding}", fg="red")
    click.echo(
        f"{'passed' if report.passed else 'FAILED'}: {report.virtual_s:.0f} virtual seconds, "
        + ", ".join(f"{name} {number}" for name, number in sorted(report.counts.items()))
        + f", trace {report.trace[:16]}"
    )
    if report.passed and not history.is_wanted:
        click.echo(f"{len(report.events)} events happened; --verbose prints them")


def _many(plans: "Iterator[Plan]", minutes: float | None, jobs: int | None) -> bool:
    from odradek.sim.campaign import Summary, run_campaign

    deadline = time.monotonic() + 60 * minutes if minutes is not None else None
    terminal = sys.stderr.isatty()
    clear = "\r\x1b[K" if terminal else ""
    printed_at, failures_printed = time.monotonic(), 0

    def progress(summary: Summary) -> None:
        nonlocal printed_at, failures_printed
        for seed, reason in summary.failures[failures_printed:]:
            click.echo(f"{clear}seed {seed} failed: {reason}", err=True)
        failures_printed = len(summary.failures)
        if terminal:
            faults = " ".join(f"{kind} {number}" for kind, number in sorted(summary.faults.items()))
            click.echo(f"{clear}{summary}: {faults}"[: _width()], nl=False, err=True)
        elif time.monotonic() - printed_at > PROGRESS_S:
            click.echo(str(summary), err=True)
            printed_at = time.monotonic()

    summary = run_campaign(plans, deadline, progress, jobs)
    click.echo(clear, nl=False, err=True)
    click.echo(str(summary))
    for title, numbers in (
        ("faults", summary.faults),
        ("clients", summary.counts),
        ("transitions", summary.transitions),
    ):
        click.echo(f"{title}:")
        for name, number in sorted(numbers.items()):
            click.echo(f"  {name:44} {number:10,}")
    for row in summary.uncovered:
        click.echo(f"  {row:44} {'never':>10}")
    for seed, reason in summary.failures:
        click.secho(f"seed {seed}: {reason}", fg="red")
    return bool(summary.failures)


def _width() -> int:
    import shutil

    return shutil.get_terminal_size().columns
