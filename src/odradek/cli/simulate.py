"""`odradek simulate`: the whole cluster in one process, in virtual time, with faults."""

import os
import sys
import time
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    from odradek.sim.plan import Plan
    from odradek.sim.run import Report

PROGRESS_S = 10  # between two lines of progress where there is no terminal to redraw one


@click.command(epilog="Examples: odradek simulate --seed 7     odradek simulate --minutes 10")
@click.option("--seed", type=int, help="Replay one seed and print what happened, line by line.")
@click.option(
    "--seconds",
    type=float,
    default=60.0,
    show_default=True,
    help="How long faults strike, virtual.",
)
@click.option(
    "--plan",
    "file",
    type=click.File(),
    help="Replay a plan that was saved, instead of what a seed draws.",
)
@click.option("--steps", type=int, help="Of one run: print only the first so many lines.")
@click.option("--partition", help="Of one run: of the journals only what concerns this one.")
@click.option("--shrink", is_flag=True, help="Of one run: find the fewest faults that still fail.")
@click.option("--save", type=click.File("w"), help="Of one run: write its plan to this file.")
@click.option("--minutes", type=float, help="Run fresh seeds on all cores for so long.")
@click.option("--seeds", "count", type=int, help="Run so many seeds on all cores.")
@click.option("--first", type=int, default=1, show_default=True, help="The first of many seeds.")
@click.option(
    "--jobs", type=click.IntRange(min=1), help="So many at a time, instead of one on each core."
)
def simulate(
    seed: int | None,
    seconds: float,
    file: TextIO | None,
    steps: int | None,
    partition: str | None,
    shrink: bool,
    save: TextIO | None,
    minutes: float | None,
    count: int | None,
    first: int,
    jobs: int | None,
) -> None:
    """Run the cluster under a simulated world and check what must always hold.

    Brokers, controller, replication and clients are the real code; time, network, disks and the
    metadata store are simulated, and everything is drawn from the seed. The same seed gives the
    same run. Exits with 1 when an invariant did not hold.
    """
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets is part of a run: without this, it is another one each time.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "odradek", *sys.argv[1:]])
    from odradek.sim.plan import draw_plan

    plan = None
    if file is not None:
        plan = _saved(file)
    elif seed is not None:
        plan = draw_plan(seed, seconds)
    if plan is not None:
        failed = _one(plan, steps, partition, shrink, save)
    else:
        failed = _many(first, seconds, minutes, count, jobs)
    sys.exit(1 if failed else 0)


def _saved(file: TextIO) -> "Plan":
    from odradek.sim.plan import Plan

    try:
        return Plan.from_json(file.read())
    except (ValueError, KeyError, TypeError):
        raise click.UsageError(f"{file.name} is not a plan that --save has written") from None


def _one(
    plan: "Plan", steps: int | None, partition: str | None, smaller: bool, save: TextIO | None
) -> bool:
    import logging

    from odradek.sim.run import run

    logging.disable(logging.CRITICAL)
    report = run(plan)
    if smaller and not report.passed:
        plan = _shrunk(plan)
        report = run(plan)
    if save is not None:
        save.write(plan.to_json())
    click.echo(f"seed {plan.seed}: {plan}")
    _print(report, steps, partition)
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


def _print(report: "Report", lines: int | None, partition: str | None) -> None:
    from odradek.wire.topics import TopicPartition

    only = None
    if partition is not None:
        topic, _, number = partition.rpartition("-")
        if not topic or not number.isdigit():
            raise click.UsageError(f"{partition!r} is not a partition: say topic-number")
        only = TopicPartition(topic, int(number))
    shown = [
        event
        for event in report.events
        if only is None or isinstance(event.what, str) or event.what.concerns(only)
    ]
    for event in shown[:lines]:
        click.echo(str(event))
    for violation in report.violations:
        click.secho(str(violation), fg="red")
    for finding in report.findings:
        click.secho(f"            {finding}", fg="red")
    click.echo(
        f"{'passed' if report.passed else 'FAILED'}: {report.virtual_s:.0f} virtual seconds, "
        + ", ".join(f"{name} {number}" for name, number in sorted(report.counts.items()))
        + f", trace {report.trace[:16]}"
    )


def _many(
    first: int, seconds: float, minutes: float | None, count: int | None, jobs: int | None
) -> bool:
    from odradek.sim.campaign import Summary, run_campaign

    deadline = time.monotonic() + 60 * minutes if minutes is not None else None
    last = first + count if count is not None else None
    if deadline is None and last is None:
        last = first + 10

    terminal = sys.stderr.isatty()
    clear = "\r\x1b[K" if terminal else ""
    said_at, failures_said = time.monotonic(), 0

    def progress(summary: Summary) -> None:
        nonlocal said_at, failures_said
        for seed, reason in summary.failures[failures_said:]:
            click.echo(f"{clear}seed {seed} failed: {reason}", err=True)
        failures_said = len(summary.failures)
        if terminal:
            faults = " ".join(f"{kind} {number}" for kind, number in sorted(summary.faults.items()))
            click.echo(f"{clear}{summary}: {faults}"[: _width()], nl=False, err=True)
        elif time.monotonic() - said_at > PROGRESS_S:
            click.echo(str(summary), err=True)
            said_at = time.monotonic()

    summary = run_campaign(first, last, deadline, seconds, progress, jobs)
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
