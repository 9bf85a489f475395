"""`odradek configs`: the settings of topics and brokers."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import click

from odradek.cli.output import examples, json_option, print_json, print_table
from odradek.cli.session import assignments, complete_topics, nearest, with_cluster

if TYPE_CHECKING:
    from odradek.client import Blocking, ConfigChange, ConfigEntry, Resource

SECRET = "********"


@click.group(epilog=examples("odradek configs get --topic orders"))
def configs() -> None:
    """Look at and change the settings of topics and brokers."""


def _owner_options(command: click.decorators.FC) -> click.decorators.FC:
    for option in (
        click.option("--all-brokers", is_flag=True, help="The default of all brokers."),
        click.option("--broker", type=click.IntRange(0), help="A broker's settings."),
        click.option("--topic", help="A topic's settings.", shell_complete=complete_topics),
    ):
        command = option(command)
    return command


def _owner(topic: str | None, broker: int | None, all_brokers: bool) -> "Resource":
    from odradek.client import Resource, ResourceType

    if [topic is not None, broker is not None, all_brokers].count(True) != 1:
        raise click.UsageError("say whose settings: --topic NAME, --broker ID or --all-brokers")
    if topic is not None:
        return Resource(ResourceType.TOPIC, topic)
    return Resource(ResourceType.BROKER, "" if broker is None else str(broker))


def changes(wanted: Mapping[str, str], deleted: Iterable[str]) -> "list[ConfigChange]":
    """The changes that set some settings and give others back to their default."""
    from odradek.client import ConfigChange, ConfigOperation

    return [
        *(ConfigChange(name, value) for name, value in wanted.items()),
        *(ConfigChange(name, None, ConfigOperation.DELETE) for name in deleted),
    ]


@configs.command(
    "get",
    epilog=examples(
        "odradek configs get --topic orders retention.ms", "odradek configs get --broker 1 --all"
    ),
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@_owner_options
@click.option("--all", "everything", is_flag=True, help="Also what was never set.")
@json_option
@with_cluster
def get(
    cluster: "Blocking",
    names: tuple[str, ...],
    topic: str | None,
    broker: int | None,
    all_brokers: bool,
    everything: bool,
    as_json: bool,
) -> None:
    """Show settings: those that were set somewhere, the named ones, or --all."""
    from odradek.client import ConfigSource
    from odradek.wire.errors import KafkaError

    owner = _owner(topic, broker, all_brokers)
    entries = cluster.run(cluster.admin.describe_configs([owner], documentation=True))[owner]
    if isinstance(entries, KafkaError):
        raise entries
    unset = (ConfigSource.DEFAULT,)
    shown = [
        entry
        for entry in sorted(entries, key=lambda entry: entry.name)
        if entry.name in names or (not names and (everything or entry.source not in unset))
    ]
    if missing := sorted(set(names) - {entry.name for entry in shown}):
        hint = nearest(missing[0], (entry.name for entry in entries)) or "; see --all"
        raise click.ClickException(f"no setting is called {', '.join(missing)}{hint}")
    if as_json:
        print_json([_fields(entry) for entry in shown])
        return
    print_table(
        ["name", "value", "from"],
        [[item["name"], item["value"], item["source"]] for item in map(_fields, shown)],
    )


def _fields(entry: "ConfigEntry") -> dict[str, object]:
    return {
        "name": entry.name,
        "value": SECRET if entry.is_sensitive else entry.value,
        "source": entry.source.name.lower().replace("_", " "),
        "read_only": entry.is_read_only,
        "documentation": entry.documentation,
    }


@configs.command(
    "set",
    epilog=examples("odradek configs set --topic orders retention.ms=60000 -d cleanup.policy"),
)
@click.argument("settings", nargs=-1, metavar="[NAME=VALUE]...")
@_owner_options
@click.option("--delete", "-d", "deleted", multiple=True, metavar="NAME", help="Back to default.")
@click.option("--dry-run", is_flag=True, help="Only check whether the cluster would take it.")
@with_cluster
def set_configs(
    cluster: "Blocking",
    settings: tuple[str, ...],
    topic: str | None,
    broker: int | None,
    all_brokers: bool,
    deleted: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Change settings; those that are not named stay as they are."""
    from odradek.client import check

    owner = _owner(topic, broker, all_brokers)
    wanted = changes(assignments(settings, "a setting"), deleted)
    if not wanted:
        raise click.UsageError("say what to set: NAME=VALUE, or --delete NAME")
    check(cluster.run(cluster.admin.alter_configs({owner: wanted}, validate_only=dry_run)))
    click.echo(f"{len(wanted)} settings {'would be' if dry_run else 'were'} changed")
