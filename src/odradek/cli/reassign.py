"""`odradek reassign`: plan, cost, execute, progress, verify, cancel. BEHAVIOUR.md, section 1.4.

The files are those of kafka-reassign-partitions.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from odradek.cli import moving
from odradek.cli.output import (
    duration,
    examples,
    json_option,
    numbers,
    parse_size,
    print_json,
    print_table,
    progress,
    size,
)
from odradek.cli.session import finish, with_cluster
from odradek.placement import (
    Broker,
    Ongoing,
    Reassignment,
    format_reassignment,
    generate,
    move_map,
    parse_broker_list,
    parse_reassignment,
    parse_topics_to_move,
    plan_minimal,
)
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    from odradek.client import Blocking

WATCH_S = 0.5

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
    """The callback of an option that takes bytes a second."""
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
@click.option("--brokers", "-B", help="The brokers to use, 1,2,3; all that live unless given.")
@click.option("--topic", "-t", "topics", multiple=True, help="May be repeated; otherwise all.")
@click.option(
    "--topics-file", type=click.Path(exists=True, path_type=Path), help="Kafka's JSON of topics."
)
@click.option("--replication-factor", "-r", type=click.IntRange(1), help="Change it, too.")
@click.option(
    "--anew", is_flag=True, help="Place everything anew, as Kafka's tool does: much will move."
)
@click.option("--disable-rack-aware", is_flag=True, help="Take no notice of racks.")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Write the plan to a file.")
@json_option
@with_cluster
def generate_plan(
    cluster: "Blocking",
    brokers: str | None,
    topics: tuple[str, ...],
    topics_file: Path | None,
    replication_factor: int | None,
    anew: bool,
    disable_rack_aware: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    """Make a plan that levels the brokers with the fewest moves, and say what it costs."""
    if topics_file is not None:
        topics = (*topics, *parse_topics_to_move(_text_of(topics_file)))
    names = list(topics) or cluster.run(cluster.admin.list_topics(internal=True))
    metadata = cluster.run(cluster.client.require_topics(names))
    chosen = sorted(metadata.nodes) if brokers is None else parse_broker_list(brokers)
    racks = {node.id: node.rack for node in metadata.nodes.values()}
    targets = [Broker(id, None if disable_rack_aware else racks.get(id)) for id in chosen]
    current = moving.assignment_of(metadata, names)
    if anew:
        proposed = generate(
            current,
            targets,
            rack_aware=not disable_rack_aware,
            replication_factor=replication_factor,
        )
        changes = {part: to for part, to in proposed.items() if to != current[part]}
    else:
        changes = plan_minimal(current, targets, replication_factor=replication_factor).changes
    cost = _cost(cluster, current, changes)
    text = format_reassignment(changes)
    if output is not None:
        output.write_text(text + "\n")
    if as_json:
        print_json(
            {
                "current": json.loads(
                    format_reassignment({part: current[part] for part in changes})
                ),
                "proposed": json.loads(text),
                "cost": cost.rows(),
            }
        )
        return
    if not changes:
        click.echo("nothing has to move")
        return
    print_table(
        ["partition", "from", "to"],
        [[part, numbers(current[part]), numbers(to)] for part, to in sorted(changes.items())],
    )
    _print_cost(cost)
    click.echo(f"plan written to {output}" if output is not None else text)


def _cost(
    cluster: "Blocking",
    current: Mapping[TopicPartition, Sequence[int]],
    proposed: Mapping[TopicPartition, Sequence[int]],
) -> moving.Cost:
    known = cluster.run(moving.sizes(cluster.admin, proposed)) if proposed else {}
    metadata = cluster.client.metadata
    leaders = {
        part: metadata.topics[part.topic].partitions[part.partition].leader for part in proposed
    }
    return moving.cost_of(current, proposed, known, leaders)


def _print_cost(cost: moving.Cost) -> None:
    print_table(
        ["broker", "gains", "loses", "receives", "sends"],
        [
            [
                row["broker"],
                row["gains"],
                row["loses"],
                size(row["receives_bytes"]),
                size(row["sends_bytes"]),
            ]
            for row in cost.rows()
        ],
    )
    click.echo(f"{sum(cost.gained.values())} copies to make, {size(cost.total_bytes)} to move")


@reassign.command(
    epilog=examples("odradek reassign execute plan.json --throttle 50MB --rollback back.json")
)
@plan_argument
@click.option("--throttle", callback=_rate, metavar="RATE", help="Bytes a second, such as 50MB.")
@click.option("--additional", is_flag=True, help="Although others are being moved already.")
@click.option("--rollback", type=click.Path(path_type=Path), help="Write the way back to a file.")
@click.option("--wait/--no-wait", default=True, help="Show progress until all has arrived.")
@with_cluster
def execute(
    cluster: "Blocking",
    plan: Path,
    throttle: int | None,
    additional: bool,
    rollback: Path | None,
    wait: bool,
) -> None:
    """Carry out a plan, throttled if wanted, and show how it comes along."""
    wanted = parse_reassignment(_text_of(plan))
    names = {partition.topic for partition in wanted.replicas}
    metadata = cluster.run(cluster.client.require_topics(names))
    current = moving.assignment_of(metadata, sorted(names))
    moving.require(metadata, current, wanted.replicas)
    ongoing = cluster.run(cluster.admin.list_reassignments())
    if ongoing and not additional:
        raise click.ClickException(
            f"{len(ongoing)} partitions are being moved already; see `odradek reassign list`, "
            "or say --additional"
        )
    _print_cost(_cost(cluster, current, wanted.replicas))
    back = format_reassignment({part: current[part] for part in wanted.replicas})
    if rollback is not None:
        rollback.write_text(back + "\n")
    click.echo(f"the way back: {rollback or back}")
    if throttle is not None:
        moves = move_map(current, wanted.replicas, ongoing)
        cluster.run(moving.set_throttles(cluster.admin, moves, throttle))
        click.echo(f"throttled to {size(throttle)}/s")
    finish(cluster.run(cluster.admin.alter_reassignments(wanted.replicas)))
    cluster.run(moving.move_directories(cluster.admin, wanted.log_dirs, cluster.client.timeout_s))
    if not wait:
        click.echo(f"under way; see `odradek reassign verify {plan}`")
        return
    try:
        seconds = cluster.run(_watch(cluster, list(wanted.replicas)))
    except KeyboardInterrupt:
        click.echo(
            f"still under way; watch it with `odradek reassign verify {plan}`, or stop it with "
            f"`odradek reassign cancel {plan}`",
            err=True,
        )
        raise
    if throttle is not None and not cluster.run(cluster.admin.list_reassignments()):
        cluster.run(moving.clear_throttles(cluster.admin, names))
    click.echo(f"{len(wanted.replicas)} partitions moved in {duration(seconds)}")


async def _watch(cluster: "Blocking", partitions: Iterable[TopicPartition]) -> float:
    """Show progress until none of these is being moved any more; the seconds it took."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    partitions = list(partitions)
    with progress() as shown:
        task = shown.add_task("moving", total=None)
        arrived = total = 0
        while ongoing := await cluster.admin.list_reassignments(partitions):
            state = await moving.remaining(cluster.admin, ongoing)
            # A partition that is done leaves the list, and one that is written to grows.
            missing = state.total_bytes - state.done_bytes
            total = max(total, arrived + missing)
            arrived = total - missing
            shown.update(
                task,
                description=f"{state.partitions} partitions left",
                completed=arrived,
                total=total or None,
            )
            await asyncio.sleep(WATCH_S)
    return loop.time() - started


@reassign.command(epilog=examples("odradek reassign verify plan.json"))
@plan_argument
@click.option("--preserve-throttles", is_flag=True, help="Leave throttles as they are.")
@json_option
@with_cluster
def verify(cluster: "Blocking", plan: Path, preserve_throttles: bool, as_json: bool) -> None:
    """Say how far a plan is; take the throttles away when all is done. Exits with 1 until then."""
    wanted = parse_reassignment(_text_of(plan))
    states, percent = cluster.run(_states(cluster, wanted))
    under_way = cluster.run(cluster.admin.list_reassignments())
    done = all(state == "completed" for state in states.values())
    cleared = not under_way and not preserve_throttles
    if cleared:
        topics = {partition.topic for partition in wanted.replicas}
        cluster.run(moving.clear_throttles(cluster.admin, topics))
    if as_json:
        print_json(
            {
                "completed": done,
                "percent": percent,
                "throttles_cleared": cleared,
                "partitions": {str(part): state for part, state in states.items()},
            }
        )
    else:
        print_table(["partition", "state"], [[part, state] for part, state in states.items()])
        if under_way:
            click.echo(f"{percent:.0f} % of the bytes have arrived")
    if not done:
        click.get_current_context().exit(1)


async def _states(
    cluster: "Blocking", wanted: Reassignment
) -> tuple[dict[TopicPartition, str], float]:
    """How each partition of a plan stands, and how much of the bytes has arrived."""
    partitions = sorted(wanted.replicas)
    ongoing = await cluster.admin.list_reassignments(partitions)
    metadata = await cluster.client.refresh({partition.topic for partition in partitions})
    names = [name for name in {part.topic for part in partitions} if name in metadata.topics]
    current = moving.assignment_of(metadata, names)
    unmoved = {
        TopicPartition(replica.topic, replica.partition)
        for replica in await moving.unmoved_directories(cluster.admin, wanted.log_dirs)
    }
    states = {}
    for part in partitions:
        if part in ongoing:
            states[part] = "in progress"
        elif part not in current:
            states[part] = "does not exist"
        elif list(current[part]) != list(wanted.replicas[part]):
            states[part] = f"not moving, and its replicas are {numbers(current[part])}"
        else:
            states[part] = "between directories" if part in unmoved else "completed"
    state = await moving.remaining(cluster.admin, ongoing)
    return states, 100.0 * state.done_bytes / state.total_bytes if state.total_bytes else 100.0


@reassign.command(
    epilog=examples("odradek reassign cancel plan.json", "odradek reassign cancel --all")
)
@click.argument(
    "plan", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False
)
@click.option("--all", "everything", is_flag=True, help="Whatever is being moved.")
@click.option("--preserve-throttles", is_flag=True, help="Leave throttles as they are.")
@with_cluster
def cancel(
    cluster: "Blocking", plan: Path | None, everything: bool, preserve_throttles: bool
) -> None:
    """Stop moving, and go back to the replicas there were."""
    if (plan is None) != everything:
        raise click.UsageError("say what to cancel: a plan file, or --all")
    ongoing = cluster.run(cluster.admin.list_reassignments())
    if plan is not None:
        wanted = parse_reassignment(_text_of(plan)).replicas
        ongoing = {part: state for part, state in ongoing.items() if part in wanted}
    outcomes = cluster.run(cluster.admin.alter_reassignments(dict.fromkeys(ongoing)))
    if not preserve_throttles:
        cluster.run(moving.clear_throttles(cluster.admin, {part.topic for part in ongoing}))
    for part, error in sorted(outcomes.items()):
        if error is None:
            click.echo(f"{part} goes back to {numbers(_origin(ongoing[part]))}")
    if not ongoing:
        click.echo("nothing is being moved")
    finish(outcomes)


def _origin(state: Ongoing) -> list[int]:
    return [broker for broker in state.replicas if broker not in state.adding]


@reassign.command("list", epilog=examples("odradek reassign list --json"))
@json_option
@with_cluster
def list_moves(cluster: "Blocking", as_json: bool) -> None:
    """List the partitions that are being moved."""
    ongoing = cluster.run(cluster.admin.list_reassignments())
    if as_json:
        print_json(
            [
                {
                    "topic": part.topic,
                    "partition": part.partition,
                    "replicas": list(state.replicas),
                    "adding": list(state.adding),
                    "removing": list(state.removing),
                }
                for part, state in sorted(ongoing.items())
            ]
        )
        return
    if not ongoing:
        click.echo("nothing is being moved")
        return
    print_table(
        ["partition", "replicas", "adding", "removing"],
        [
            [part, numbers(state.replicas), numbers(state.adding), numbers(state.removing)]
            for part, state in sorted(ongoing.items())
        ],
    )
