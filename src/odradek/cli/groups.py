"""`odradek groups`: consumer groups with their members and lag; reset and delete."""

import asyncio
from typing import TYPE_CHECKING

import click

from odradek.cli.output import Listing, examples, json_option, print_json
from odradek.cli.session import complete_groups, finish, position_option, with_cluster
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    from odradek.client import Blocking
    from odradek.client.groups import GroupDescription, Lag
    from odradek.operations import Position


@click.group(epilog=examples("odradek groups describe billing"))
def groups() -> None:
    """List and describe consumer groups and their lag; reset and delete them."""


@groups.command("list", epilog=examples("odradek groups list --json"))
@json_option
@with_cluster
def list_groups(cluster: "Blocking", as_json: bool) -> None:
    """List all groups."""
    Listing(
        [group._asdict() for group in cluster.run(cluster.groups.list_groups())],
        {"group": "id", "type": "protocol_type", "state": "state", "coordinator": "coordinator"},
    ).show(as_json)


@groups.command(epilog=examples("odradek groups describe billing --json"))
@click.argument("group", shell_complete=complete_groups)
@json_option
@with_cluster
def describe(cluster: "Blocking", group: str, as_json: bool) -> None:
    """Show a group's members, their partitions, and the lag of each."""

    async def ask() -> tuple["GroupDescription", dict[TopicPartition, "Lag"]]:
        return await asyncio.gather(cluster.groups.describe_group(group), cluster.groups.lag(group))

    described, lags = cluster.run(ask())
    owners = {part: member for member in described.members for part in member.partitions}
    if as_json:
        print_json(
            {
                **described._asdict(),
                "members": [
                    {**member._asdict(), "partitions": [str(part) for part in member.partitions]}
                    for member in described.members
                ],
                "lag": {
                    str(part): {"committed": lag.committed, "end": lag.end, "lag": lag.records}
                    for part, lag in lags.items()
                },
            }
        )
        return
    total = sum(lag.records for lag in lags.values())
    click.echo(
        f"{group}: {described.state}, {len(described.members)} members, protocol "
        f"{described.protocol or 'none'}, coordinator {described.coordinator}, lag {total}"
    )
    rows = []
    for tp in sorted(lags.keys() | owners.keys()):
        lag, owner = lags.get(tp), owners.get(tp)
        rows.append(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "committed": lag.committed if lag else "-",
                "end": lag.end if lag else "-",
                "lag": lag.records if lag else "-",
                "client": owner.client_id if owner else "-",
                "host": owner.host if owner else "-",
            }
        )
    columns = ("topic", "partition", "committed", "end", "lag", "client", "host")
    Listing(rows, {name: name for name in columns}).show(as_json=False)


@groups.command(
    epilog=examples("odradek groups reset billing --topic orders --to 2024-05-01T12:00 --execute")
)
@click.argument("group", shell_complete=complete_groups)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME[:PARTITION,...]",
    help="What to reset; default: all that the group has committed.",
)
@position_option("--to", "position")
@click.option("--shift", type=int, help="Records to move forward by, or back if negative.")
@click.option("--execute", is_flag=True, help="Apply the change; without it, it is only shown.")
@json_option
@with_cluster
def reset(
    cluster: "Blocking",
    group: str,
    topics: tuple[str, ...],
    position: "Position | None",
    shift: int | None,
    execute: bool,
    as_json: bool,
) -> None:
    """Set the offsets of a group that has no members."""
    from odradek.operations import plan_reset

    if (position is None) == (shift is None):
        raise click.UsageError("choose the new offsets: --to POSITION, or --shift N")
    try:
        planned = cluster.run(
            plan_reset(cluster.groups, group, topics=topics, to=position, shift=shift or 0)
        )
    except ValueError as error:
        raise click.UsageError(f"--topic: {error}") from None
    if execute:
        finish(cluster.run(cluster.groups.alter_offsets(group, planned.after)))
    changed = Listing(
        [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "from": planned.before[tp],
                "to": offset,
            }
            for tp, offset in sorted(planned.after.items())
        ],
        {
            "topic": "topic",
            "partition": "partition",
            "from": lambda row: "-" if row["from"] is None else row["from"],
            "to": "to",
        },
    )
    if as_json:
        print_json({"group": group, "executed": execute, "offsets": changed.rows})
        return
    changed.show(as_json=False)
    if not execute:
        click.echo("nothing was changed; use --execute to do it", err=True)


@groups.command(epilog=examples("odradek groups delete billing --yes"))
@click.argument(
    "names", nargs=-1, required=True, metavar="GROUP...", shell_complete=complete_groups
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@with_cluster
def delete(cluster: "Blocking", names: tuple[str, ...], yes: bool) -> None:
    """Delete groups that have no members, with all they have committed."""
    if not yes:
        click.confirm(f"Delete {', '.join(names)}?", abort=True)
    outcomes = cluster.run(cluster.groups.delete_groups(names))
    for name, error in outcomes.items():
        if error is None:
            click.echo(f"deleted {name}")
    finish(outcomes)
