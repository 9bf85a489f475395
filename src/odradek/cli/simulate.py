"""`odradek simulate`: the whole cluster in one process, in virtual time, with faults."""

import os
import sys
import time

import click


@click.command(epilog="Examples: odradek simulate --seed 7     odradek simulate --minutes 10")
@click.option("--seed", type=int, help="Replay one seed and print what happened, line by line.")
@click.option(
    "--seconds",
    type=float,
    default=60.0,
    show_default=True,
    help="How long faults strike, virtual.",
)
@click.option("--minutes", type=float, help="Run fresh seeds on all cores for so long.")
@click.option("--seeds", "count", type=int, help="Run so many seeds on all cores.")
@click.option("--first", type=int, default=1, show_default=True, help="The first of many seeds.")
@click.option("--shrink", is_flag=True, help="With --seed: find the fewest faults that still fail.")
def simulate(
    seed: int | None,
    seconds: float,
    minutes: float | None,
    count: int | None,
    first: int,
    shrink: bool,
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
    failed = (
        _one(seed, seconds, shrink) if seed is not None else _many(first, seconds, minutes, count)
    )
    sys.exit(1 if failed else 0)


def _one(seed: int, seconds: float, smaller: bool) -> bool:
    from odradek.sim.run import draw_plan, run
    from odradek.sim.shrink import shrink

    plan = draw_plan(seed, seconds)
    report = run(plan)
    if smaller and not report.passed:
        plan = shrink(
            plan, lambda tried, left: click.echo(f"\r{tried} runs, {left} faults", nl=False)
        )
        click.echo()
        report = run(plan)
    click.echo(
        f"seed {seed}: {plan.brokers} brokers, replication {plan.replication}, "
        f"min.insync.replicas {plan.min_isr}, {plan.partitions} partitions, "
        f"{plan.producers} producers, {plan.consumers} consumers, {len(plan.faults)} faults"
    )
    for at, event in report.events:
        click.echo(f"{at:10.3f}  {event}")
    for violation in report.violations:
        click.secho(str(violation), fg="red")
    for finding in report.findings:
        click.secho(f"            {finding}", fg="red")
    click.echo(
        f"{'passed' if report.passed else 'FAILED'}: {report.virtual_s:.0f} virtual seconds, "
        + ", ".join(f"{name} {number}" for name, number in sorted(report.counts.items()))
        + f", trace {report.trace[:16]}"
    )
    return not report.passed


def _many(first: int, seconds: float, minutes: float | None, count: int | None) -> bool:
    from odradek.sim.many import Summary, run_many

    deadline = time.monotonic() + 60 * minutes if minutes is not None else None
    last = first + count if count is not None else None

    def progress(summary: Summary) -> None:
        click.echo(f"\r{summary}", nl=False, err=True)

    if deadline is None and last is None:
        last = first + 10
    summary = run_many(first, last, deadline, seconds, progress)
    click.echo("\r", nl=False, err=True)
    click.echo(str(summary))
    for kind, number in sorted(summary.faults.items()):
        click.echo(f"  {kind:14} {number}")
    for seed, reason in summary.failures:
        click.secho(f"  seed {seed}: {reason}", fg="red")
    return bool(summary.failures)
