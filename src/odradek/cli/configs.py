"""`odradek configs`: the settings of topics and brokers."""

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from odradek.cli.offline import store_config_option
from odradek.cli.output import Listing, examples, json_option, plural
from odradek.cli.session import assignments, complete_topics, explain, with_cluster

if TYPE_CHECKING:
    from odradek.client import Blocking, ConfigChange, ConfigEntry, Resource

SECRET = "********"


@click.group(epilog=examples("odradek configs get --topic orders"))
def configs() -> None:
    """Show and change the settings of topics and brokers."""


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

    count = [topic is not None, broker is not None, all_brokers].count(True)
    if count != 1:
        problem = "give" if count == 0 else "give only one of"
        raise click.UsageError(f"{problem} --topic NAME, --broker ID or --all-brokers")
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
@click.option("--all", "everything", is_flag=True, help="Include defaults.")
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
    from odradek.operations import did_you_mean
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
        hint = did_you_mean(missing[0], (entry.name for entry in entries)) or "; see --all"
        raise click.ClickException(f"there is no setting {', '.join(missing)}{hint}")
    Listing(
        [_fields(entry) for entry in shown], {"name": "name", "value": "value", "from": "source"}
    ).show(as_json)


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
@click.option(
    "--delete", "-d", "deleted", multiple=True, metavar="NAME", help="Reset to the default."
)
@click.option("--dry-run", is_flag=True, help="Only validate.")
@click.option(
    "--offline",
    metavar="STORE",
    help="Write to this metadata store while all brokers are down, e.g. sqlite:DIR/metadata.db.",
)
@store_config_option
@with_cluster
def set_configs(
    cluster: "Blocking",
    settings: tuple[str, ...],
    topic: str | None,
    broker: int | None,
    all_brokers: bool,
    deleted: tuple[str, ...],
    dry_run: bool,
    offline: str | None,
    store_config: Path | None,
) -> None:
    """Change settings; those that are not named stay as they are."""
    from odradek.wire.errors import ErrorCode

    owner = _owner(topic, broker, all_brokers)
    wanted = changes(assignments(settings, "a setting"), deleted)
    if not wanted:
        raise click.UsageError("nothing to set: give NAME=VALUE, or --delete NAME")
    if offline is not None:
        asyncio.run(_set_offline(offline, store_config, owner, wanted, dry_run))
        click.echo(f"{plural(len(wanted), 'setting')} {'would be ' if dry_run else ''}changed")
        return
    unset = _unset(cluster, owner, deleted)
    error = cluster.run(cluster.admin.alter_configs({owner: wanted}, validate_only=dry_run))[owner]
    if error is not None:
        text = explain(error)
        if error.error is ErrorCode.INVALID_CONFIG and "Unknown" in text and "?" not in text:
            text += f"; see `odradek configs get {_option(owner)} --all`"
        raise click.ClickException(text)
    for name in unset:
        click.echo(f"{name} was not set")
    verb = "would be changed" if dry_run else "changed"
    click.echo(f"{plural(len(wanted) - len(unset), 'setting')} {verb}")


def _unset(cluster: "Blocking", owner: "Resource", names: Iterable[str]) -> list[str]:
    """Of the settings to delete, those that have no value of their own."""
    from odradek.client import ConfigSource, ResourceType

    if not names:
        return []
    own = (
        {ConfigSource.TOPIC}
        if owner.type is ResourceType.TOPIC
        else {ConfigSource.BROKER if owner.name else ConfigSource.BROKER_DEFAULT}
    )
    entries = cluster.run(cluster.admin.describe_configs([owner]))[owner]
    if not isinstance(entries, list):
        return []
    known = {entry.name: entry.source for entry in entries}
    return [name for name in names if name in known and known[name] not in own]


def _option(owner: "Resource") -> str:
    from odradek.client import ResourceType

    if owner.type is ResourceType.TOPIC:
        return f"--topic {owner.name}"
    return f"--broker {owner.name}" if owner.name else "--all-brokers"


async def _set_offline(
    address: str,
    store_config: Path | None,
    owner: "Resource",
    wanted: "list[ConfigChange]",
    dry_run: bool,
) -> None:
    """For settings that keep brokers from starting, or clients from connecting to them."""
    from odradek.broker.config import BrokerConfig, validate_dynamic, validate_topic
    from odradek.cli.offline import offline_store
    from odradek.client import ConfigOperation, ResourceType
    from odradek.store.paths import DEFAULT_ENTITY, ConfigKind

    async with offline_store(address, store_config) as store:
        is_topic = owner.type is ResourceType.TOPIC
        kind = ConfigKind.TOPICS if is_topic else ConfigKind.BROKERS
        entity = owner.name or DEFAULT_ENTITY
        if is_topic and await store.topic(entity) is None:
            raise click.ClickException(f"there is no topic {entity}")
        settings = dict(await store.configs.get(kind, entity))
        for change in wanted:
            if change.operation is ConfigOperation.DELETE:
                settings.pop(change.name, None)
            else:
                settings[change.name] = change.value or ""
        named = {change.name for change in wanted} & settings.keys()
        if is_topic:
            validate_topic(BrokerConfig(), {name: settings[name] for name in named})
        else:
            validate_dynamic({name: settings[name] for name in named}, bool(owner.name))
        if not dry_run:
            await store.configs.set_offline(kind, entity, settings)
