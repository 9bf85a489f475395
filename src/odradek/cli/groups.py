"""`odradek groups`: consumer groups with their members and lag; reset and delete."""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from odradek.cli.output import examples, json_option, print_json, print_table
from odradek.cli.positions import EXPLANATION, checked, resolve
from odradek.cli.session import complete_groups, finish, with_cluster
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    from odradek.client import Blocking
    from odradek.client.groups import GroupDescription, Lag


@click.group(epilog=examples("odradek groups describe billing"))
def groups() -> None:
    """Look at consumer groups and their lag; reset and delete them."""


@groups.command("list", epilog=examples("odradek groups list --json"))
@json_option
@with_cluster
def list_groups(cluster: "Blocking", as_json: bool) -> None:
    """List all groups."""
    found = cluster.run(cluster.groups.list_groups())
    if as_json:
        print_json([group._asdict() for group in found])
        return
    print_table(
        ["group", "type", "state", "coordinator"],
        [[group.id, group.protocol_type, group.state, group.coordinator] for group in found],
    )


@groups.command(epilog=examples("odradek groups describe billing --json"))
@click.argument("group", shell_complete=complete_groups)
@json_option
@with_cluster
def describe(cluster: "Blocking", group: str, as_json: bool) -> None:
    """Show who reads what in a group, and how far behind it is."""

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
    for part in sorted(lags.keys() | owners.keys()):
        lag, owner = lags.get(part), owners.get(part)
        rows.append(
            [
                *part,
                lag.committed if lag else "-",
                lag.end if lag else "-",
                lag.records if lag else "-",
                owner.client_id if owner else "-",
                owner.host if owner else "-",
            ]
        )
    print_table(["topic", "partition", "committed", "end", "lag", "client", "host"], rows)


@groups.command(
    epilog=examples("odradek groups reset billing --topic orders --to 2024-05-01T12:00 --execute")
)
@click.argument("group", shell_complete=complete_groups)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME[:PARTITION,...]",
    help="What to reset; all that the group has committed unless named.",
)
@click.option("--to", "position", metavar="POSITION", callback=checked, help=EXPLANATION)
@click.option("--shift", type=int, help="So many records forward, or back if negative.")
@click.option("--execute", is_flag=True, help="Do it; otherwise it is only shown.")
@json_option
@with_cluster
def reset(
    cluster: "Blocking",
    group: str,
    topics: tuple[str, ...],
    position: str | None,
    shift: int | None,
    execute: bool,
    as_json: bool,
) -> None:
    """Set where a group without members goes on reading."""
    if (position is None) == (shift is None):
        raise click.UsageError("say where to: --to POSITION, or --shift N")
    before, after = cluster.run(_targets(cluster, group, topics, position, shift))
    if execute:
        finish(cluster.run(cluster.groups.alter_offsets(group, after)))
    if as_json:
        changed = [
            {"topic": part.topic, "partition": part.partition, "from": before[part], "to": offset}
            for part, offset in sorted(after.items())
        ]
        print_json({"group": group, "executed": execute, "offsets": changed})
        return
    print_table(
        ["topic", "partition", "from", "to"],
        [[*part, _shown(before[part]), offset] for part, offset in sorted(after.items())],
    )
    if not execute:
        click.echo("nothing was changed; say --execute to do it", err=True)


def _shown(offset: int | None) -> str:
    return "-" if offset is None else str(offset)


async def _targets(
    cluster: "Blocking",
    group: str,
    topics: tuple[str, ...],
    position: str | None,
    shift: int | None,
) -> tuple[dict[TopicPartition, int | None], dict[TopicPartition, int]]:
    """Where the group is and where it shall be, by partition."""
    from odradek.wire.errors import ErrorCode, KafkaError

    committed = await cluster.groups.offsets(group)
    partitions = await _selected(cluster, topics) if topics else sorted(committed)
    if not partitions:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"group {group!r} has committed nothing: name topics with --topic",
        )
    before = {part: committed[part].offset if part in committed else None for part in partitions}
    if position is not None:
        return before, await resolve(cluster.client, position, partitions)
    starts = await resolve(cluster.client, "earliest", partitions)
    ends = await resolve(cluster.client, "latest", partitions)
    after = {}
    for part, offset in before.items():
        here = starts[part] if offset is None else offset
        after[part] = min(max(here + (shift or 0), starts[part]), ends[part])
    return before, after


async def _selected(cluster: "Blocking", topics: Iterable[str]) -> list[TopicPartition]:
    """The partitions behind NAME or NAME:0,1."""
    selected: list[TopicPartition] = []
    for text in topics:
        name, _, wanted = text.partition(":")
        metadata = await cluster.client.require_topics([name])
        try:
            parts = [int(part) for part in wanted.split(",")] if wanted else None
        except ValueError:
            raise click.UsageError(
                f"--topic looks like orders or orders:0,1, not {text!r}"
            ) from None
        selected += (
            metadata.partitions_of([name])
            if parts is None
            else [TopicPartition(name, part) for part in parts]
        )
    return selected


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
