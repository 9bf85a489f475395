"""`odradek reassign`: plan, cost, execute, progress, verify, cancel.

The files are those of kafka-reassign-partitions.
docs/spec/controller-and-replication.md, section 1.4.
"""

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from odradek import operations
from odradek.cli.output import (
    Listing,
    duration,
    examples,
    json_option,
    numbers,
    parse_size,
    plural,
    print_json,
    progress,
    size,
)
from odradek.cli.session import finish, with_cluster
from odradek.placement import (
    Reassignment,
    format_reassignment,
    parse_broker_list,
    parse_reassignment,
    parse_topics_to_move,
)
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    from odradek.client import Blocking

plan_argument = click.argument("plan", type=click.Path(exists=True, dir_okay=False, path_type=Path))


@click.group(
    epilog=examples(
        "odradek reassign generate --brokers 1,2,3,4 --output plan.json",
        "odradek reassign execute plan.json --throttle 50MB",
    )
)
def reassign() -> None:
    """Move partitions between brokers: plan, cost, execute, progress, cancel."""


def _rate(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    """The callback of an option that takes bytes per second."""
    try:
        return None if value is None else parse_size(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise click.ClickException(f"{file}: JSON is UTF-8, and this file is not") from None


@reassign.command(
    "generate", epilog=examples("odradek reassign generate --brokers 1,2,3 -t orders")
)
@click.option("--brokers", "-B", help="The brokers to use, 1,2,3; default: all that are alive.")
@click.option("--topic", "-t", "topics", multiple=True, help="May be repeated; default: all.")
@click.option(
    "--topics-file", type=click.Path(exists=True, path_type=Path), help="Kafka's JSON of topics."
)
@click.option(
    "--replication-factor", "-r", type=click.IntRange(1), help="Also change the replication factor."
)
@click.option(
    "--from-scratch",
    is_flag=True,
    help="Ignore where replicas are, as Kafka's tool does: moves much more data.",
)
@click.option("--disable-rack-aware", is_flag=True, help="Ignore racks.")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Write the plan to a file.")
@json_option
@with_cluster
def generate_plan(
    cluster: "Blocking",
    brokers: str | None,
    topics: tuple[str, ...],
    topics_file: Path | None,
    replication_factor: int | None,
    from_scratch: bool,
    disable_rack_aware: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    """Find the plan that balances the brokers with the fewest moves, and print its cost."""
    if topics_file is not None:
        topics = (*topics, *parse_topics_to_move(_text_of(topics_file)))
    plan = cluster.run(
        operations.generate_plan(
            cluster.admin,
            topics=topics,
            brokers=None if brokers is None else parse_broker_list(brokers),
            replication_factor=replication_factor,
            from_scratch=from_scratch,
            rack_aware=not disable_rack_aware,
        )
    )
    text = format_reassignment(plan.proposed)
    if output is not None:
        output.write_text(text + "\n")
    if as_json:
        print_json(
            {
                "current": json.loads(format_reassignment(plan.rollback)),
                "proposed": json.loads(text),
                "cost": plan.cost.rows(),
                "replication_changes": [change._asdict() for change in plan.replication_changes()],
            }
        )
        return
    if not plan.proposed:
        click.echo("nothing has to move")
        return
    Listing(
        [
            {"partition": str(tp), "from": list(plan.current[tp]), "to": list(replicas)}
            for tp, replicas in sorted(plan.proposed.items())
        ],
        {"partition": "partition", "from": "from", "to": "to"},
    ).show(as_json=False)
    _print_cost(plan)
    click.echo(f"plan written to {output}" if output is not None else text)


def _print_cost(plan: operations.Plan) -> None:
    Listing(
        plan.cost.rows(),
        {
            "broker": "broker",
            "gains": "gains",
            "loses": "loses",
            "receives": lambda row: size(int(str(row["receives_bytes"]))),
            "sends": lambda row: size(int(str(row["sends_bytes"]))),
        },
    ).show(as_json=False)
    click.echo(
        f"{plural(plan.cost.replicas, 'replica')} to copy, {size(plan.cost.total_bytes)} to move"
    )
    for change in plan.replication_changes():
        click.echo(f"note: {change}")


@reassign.command(
    epilog=examples("odradek reassign execute plan.json --throttle 50MB --rollback back.json")
)
@plan_argument
@click.option("--throttle", callback=_rate, metavar="RATE", help="Bytes per second, such as 50MB.")
@click.option("--additional", is_flag=True, help="Even while other partitions are being moved.")
@click.option("--rollback", type=click.Path(path_type=Path), help="Write the undo plan to a file.")
@click.option("--wait/--no-wait", default=True, help="Show progress until the move has ended.")
@with_cluster
def execute(
    cluster: "Blocking",
    plan: Path,
    throttle: int | None,
    additional: bool,
    rollback: Path | None,
    wait: bool,
) -> None:
    """Carry out a plan and show its progress. Exits with 1 if a partition was not moved."""
    wanted = parse_reassignment(_text_of(plan))
    checked = cluster.run(operations.check_plan(cluster.admin, wanted))
    ongoing = cluster.run(cluster.admin.list_reassignments())
    if ongoing and not additional:
        raise click.ClickException(
            f"{plural(len(ongoing), 'partition')} being moved already; see `odradek reassign "
            "list`, or use --additional"
        )
    _print_cost(checked)
    back = format_reassignment(checked.rollback)
    if rollback is not None:
        rollback.write_text(back + "\n")
    click.echo(f"undo plan: {rollback or back}")
    outcomes = cluster.run(
        operations.start(cluster.admin, wanted, checked, throttle=throttle, ongoing=ongoing)
    )
    if throttle is not None:
        click.echo(f"throttled to {size(throttle)}/s")
    finish(outcomes)
    if not wait:
        click.echo(f"in progress; see `odradek reassign verify {plan}`")
        return
    try:
        seconds = cluster.run(_show_progress(cluster, list(wanted.replicas)))
    except KeyboardInterrupt:
        click.echo(
            f"still in progress; watch it with `odradek reassign verify {plan}`, or stop it with "
            f"`odradek reassign cancel {plan}`",
            err=True,
        )
        raise
    if throttle is not None and not cluster.run(cluster.admin.list_reassignments()):
        topics = {tp.topic for tp in wanted.replicas}
        cluster.run(operations.clear_throttles(cluster.admin, topics))
    _report_end(cluster, wanted, seconds)


def _report_end(cluster: "Blocking", wanted: Reassignment, seconds: float) -> None:
    """Compare with the plan: a partition also stops moving when the move is cancelled."""
    verification = cluster.run(operations.verify(cluster.admin, wanted))
    unfinished = verification.unfinished
    moved = len(wanted.replicas) - len(unfinished)
    click.echo(f"{plural(moved, 'partition')} moved in {duration(seconds)}")
    for tp, result in unfinished.items():
        click.echo(f"{tp}: {result}", err=True)
    if unfinished:
        raise click.ClickException(
            f"{plural(len(unfinished), 'partition')} of {len(wanted.replicas)} not moved as "
            "planned: cancelled, or replaced by another plan"
        )


async def _show_progress(cluster: "Blocking", tps: list[TopicPartition]) -> float:
    """Show progress until none of these is being moved any more; the seconds it took."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    with progress() as shown:
        task = shown.add_task("moving", total=None)
        arrived = total = 0
        async for state in operations.watch(cluster.admin, tps):
            # A partition that is done leaves the list, and one that is written to grows.
            missing = state.total_bytes - state.done_bytes
            total = max(total, arrived + missing)
            arrived = total - missing
            shown.update(
                task,
                description=f"{plural(state.partitions, 'partition')} left",
                completed=arrived,
                total=total or None,
            )
    return loop.time() - started


@reassign.command(epilog=examples("odradek reassign verify plan.json"))
@plan_argument
@click.option("--preserve-throttles", is_flag=True, help="Leave throttles as they are.")
@json_option
@with_cluster
def verify(cluster: "Blocking", plan: Path, preserve_throttles: bool, as_json: bool) -> None:
    """Compare the cluster with a plan; clear throttles when nothing moves. Exits with 1 until
    the plan is complete."""
    wanted = parse_reassignment(_text_of(plan))
    verification = cluster.run(operations.verify(cluster.admin, wanted))
    ongoing = cluster.run(cluster.admin.list_reassignments())
    cleared = not ongoing and not preserve_throttles
    if cleared:
        topics = {tp.topic for tp in wanted.replicas}
        cluster.run(operations.clear_throttles(cluster.admin, topics))
    if as_json:
        print_json(
            {
                "completed": verification.is_complete,
                "percent": verification.progress.percent,
                "throttles_cleared": cleared,
                "partitions": {str(tp): str(result) for tp, result in verification.results.items()},
            }
        )
    else:
        Listing(
            [{"tp": str(tp), "state": str(it)} for tp, it in verification.results.items()],
            {"partition": "tp", "state": "state"},
        ).show(as_json=False)
        if ongoing:
            click.echo(f"{verification.progress.percent:.0f} % of the bytes have arrived")
    if not verification.is_complete:
        click.get_current_context().exit(1)


@reassign.command(
    epilog=examples("odradek reassign cancel plan.json", "odradek reassign cancel --all")
)
@click.argument(
    "plan", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False
)
@click.option("--all", "everything", is_flag=True, help="Every partition that is being moved.")
@click.option("--preserve-throttles", is_flag=True, help="Leave throttles as they are.")
@with_cluster
def cancel(
    cluster: "Blocking", plan: Path | None, everything: bool, preserve_throttles: bool
) -> None:
    """Cancel reassignments; partitions return to the replicas they had."""
    if (plan is None) != everything:
        raise click.UsageError("name what to cancel: a plan file, or --all")
    tps = None if plan is None else parse_reassignment(_text_of(plan)).replicas
    cancelled = cluster.run(
        operations.cancel(cluster.admin, tps, preserve_throttles=preserve_throttles)
    )
    for tp, (replicas, error) in sorted(cancelled.items()):
        if error is None:
            click.echo(f"{tp} goes back to {numbers(replicas)}")
    if not cancelled:
        click.echo("nothing is being moved")
    finish({tp: error for tp, (_, error) in cancelled.items()})


@reassign.command("list", epilog=examples("odradek reassign list --json"))
@json_option
@with_cluster
def list_moves(cluster: "Blocking", as_json: bool) -> None:
    """List the partitions that are being moved."""
    Listing(
        [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "replicas": list(state.replicas),
                "adding": list(state.adding),
                "removing": list(state.removing),
            }
            for tp, state in sorted(cluster.run(cluster.admin.list_reassignments()).items())
        ],
        {
            "partition": lambda row: f"{row['topic']}-{row['partition']}",
            "replicas": "replicas",
            "adding": "adding",
            "removing": "removing",
        },
    ).show(as_json, empty="nothing is being moved")
