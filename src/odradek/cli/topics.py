"""`odradek topics`: create, list, describe, alter, delete."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from odradek.cli.output import Listing, examples, json_option, plural, print_json
from odradek.cli.session import (
    INT16_MAX,
    INT32_MAX,
    assignments,
    complete_topics,
    finish,
    with_cluster,
)

if TYPE_CHECKING:
    from odradek.client import Blocking, ConfigEntry
    from odradek.client.metadata import Partition, Topic


OK = "ok"


@click.group(epilog=examples("odradek topics create orders --partitions 6 --replication-factor 3"))
def topics() -> None:
    """Create, list, describe, alter and delete topics."""


@topics.command(epilog=examples("odradek topics create orders -p 6 -r 3 -c retention.ms=3600000"))
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option(
    "--partitions", "-p", type=click.IntRange(1, INT32_MAX), help="Default: num.partitions."
)
@click.option(
    "--replication-factor",
    "-r",
    type=click.IntRange(1, INT16_MAX),
    help="Default: default.replication.factor.",
)
@click.option(
    "--replicas",
    metavar="1:2,2:3",
    help="The brokers of each partition instead, the preferred leader first.",
)
@click.option("--config", "-c", "configs", multiple=True, metavar="NAME=VALUE")
@click.option("--if-not-exists", is_flag=True, help="No error if the topic exists.")
@with_cluster
def create(
    cluster: "Blocking",
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    replicas: str | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
) -> None:
    """Create topics."""
    from odradek.client import NewTopic
    from odradek.wire.errors import ErrorCode

    if replicas is not None and (partitions or replication_factor):
        raise click.UsageError(
            "--replicas determines both counts: leave out --partitions and --replication-factor"
        )
    wanted = [
        NewTopic(
            name,
            partitions or -1,
            replication_factor or -1,
            _assignment(replicas) if replicas is not None else {},
            assignments(configs),
        )
        for name in names
    ]
    outcomes = cluster.run(cluster.admin.create_topics(wanted))
    for name, error in outcomes.items():
        if error is None:
            click.echo(f"created {name}")
        elif if_not_exists and error.error is ErrorCode.TOPIC_ALREADY_EXISTS:
            click.echo(f"{name} exists")
            outcomes[name] = None
    finish(outcomes)


def _assignment(text: str) -> dict[int, list[int]]:
    try:
        parts = [[int(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError:
        raise click.UsageError(f"--replicas looks like 1:2,2:3, not {text!r}") from None
    return dict(enumerate(parts))


@topics.command("list", epilog=examples("odradek topics list --json"))
@click.option("--internal", is_flag=True, help="Include internal topics.")
@json_option
@with_cluster
def list_topics(cluster: "Blocking", internal: bool, as_json: bool) -> None:
    """List the topics."""
    Listing(
        [
            _summary(topic)
            for topic in cluster.run(cluster.admin.describe_topics()).values()
            if internal or not topic.is_internal
        ],
        {
            "topic": "name",
            "partitions": "partitions",
            "replicas": "replication_factor",
            "under-replicated": "under_replicated",
            "offline": "offline",
        },
    ).show(as_json)


def _summary(topic: "Topic") -> dict[str, object]:
    partitions = topic.partitions.values()
    return {
        "name": topic.name,
        "partitions": len(topic.partitions),
        "replication_factor": max((len(one.replicas) for one in partitions), default=0),
        "under_replicated": sum(len(one.isr) < len(one.replicas) for one in partitions),
        "offline": sum(one.leader < 0 for one in partitions),
        "internal": topic.is_internal,
    }


@topics.command(
    epilog=examples("odradek topics describe orders", "odradek topics describe --unhealthy")
)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_topics)
@click.option("--unhealthy", is_flag=True, help="Only offline and under-replicated partitions.")
@click.option("--internal", is_flag=True, help="Include internal topics.")
@json_option
@with_cluster
def describe(
    cluster: "Blocking", names: tuple[str, ...], unhealthy: bool, internal: bool, as_json: bool
) -> None:
    """Show partitions with leader, replicas and ISR, and settings that are not the default."""
    from odradek.client import Resource, ResourceType

    found = cluster.run(cluster.admin.describe_topics(names or None))
    shown = {
        name: _partitions(topic.partitions.values(), unhealthy)
        for name, topic in found.items()
        if names or internal or unhealthy or not topic.is_internal
    }
    shown = {name: listing for name, listing in shown.items() if listing.rows or not unhealthy}
    settings = cluster.run(
        cluster.admin.describe_configs(Resource(ResourceType.TOPIC, name) for name in shown)
    )
    configs = {
        resource.name: _own(entries) if isinstance(entries, list) else {}
        for resource, entries in settings.items()
    }
    if as_json:
        print_json(
            [
                {
                    **_summary(found[name]),
                    "id": _id(found[name]),
                    "configs": configs.get(name, {}),
                    "partitions": listing.rows,
                }
                for name, listing in shown.items()
            ]
        )
        return
    for name, listing in shown.items():
        own = " ".join(f"{key}={value}" for key, value in configs.get(name, {}).items())
        count = plural(len(found[name].partitions), "partition")
        topic_id = _id(found[name])
        heading = [name, count, own, f"id {topic_id}" if topic_id else ""]
        click.echo("  ".join(filter(None, heading)))
        listing.show(as_json=False)
    if unhealthy and not shown:
        click.echo("every partition has a leader and all its replicas in sync")


def _id(topic: "Topic") -> str | None:
    """As Kafka's tools print it; None on a cluster without topic ids."""
    from odradek.wire.topic_ids import NO_TOPIC_ID, format_topic_id

    return None if topic.id == NO_TOPIC_ID else format_topic_id(topic.id)


def _partitions(partitions: "Iterable[Partition]", unhealthy: bool) -> Listing:
    return Listing(
        [
            {**partition._asdict(), "state": _state(partition)}
            for partition in partitions
            if not unhealthy or _state(partition) != OK
        ],
        {
            "partition": "id",
            "leader": lambda row: "none" if row["leader"] == -1 else row["leader"],
            "epoch": "leader_epoch",
            "replicas": "replicas",
            "isr": "isr",
            "state": "state",
        },
    )


def _state(partition: "Partition") -> str:
    if partition.leader < 0:
        return "offline"
    return "under-replicated" if len(partition.isr) < len(partition.replicas) else OK


def _own(entries: "Iterable[ConfigEntry]") -> dict[str, str | None]:
    """The settings made for the topic itself."""
    from odradek.client import ConfigSource

    return {entry.name: entry.value for entry in entries if entry.source is ConfigSource.TOPIC}


@topics.command(epilog=examples("odradek topics alter orders --partitions 12 -c retention.ms=1000"))
@click.argument("name", shell_complete=complete_topics)
@click.option(
    "--partitions", "-p", type=click.IntRange(1, INT32_MAX), help="The new number of partitions."
)
@click.option("--config", "-c", "configs", multiple=True, metavar="NAME=VALUE")
@click.option("--delete-config", "-d", "deleted", multiple=True, metavar="NAME")
@with_cluster
def alter(
    cluster: "Blocking",
    name: str,
    partitions: int | None,
    configs: tuple[str, ...],
    deleted: tuple[str, ...],
) -> None:
    """Add partitions to a topic, and change its settings."""
    from odradek.cli.configs import changes
    from odradek.client import NewPartitions, Resource, ResourceType, check

    if not (partitions or configs or deleted):
        raise click.UsageError("nothing to alter: give --partitions, --config or --delete-config")
    if partitions:
        check(cluster.run(cluster.admin.create_partitions({name: NewPartitions(partitions)})))
        click.echo(f"{name} has {plural(partitions, 'partition')}")
    if configs or deleted:
        wanted = changes(assignments(configs), deleted)
        topic = Resource(ResourceType.TOPIC, name)
        check(cluster.run(cluster.admin.alter_configs({topic: wanted})))
        click.echo(f"{name}: {plural(len(wanted), 'setting')} changed")


@topics.command(epilog=examples("odradek topics delete orders --yes"))
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_topics)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@with_cluster
def delete(cluster: "Blocking", names: tuple[str, ...], yes: bool) -> None:
    """Delete topics with all their records."""
    if not yes:
        click.confirm(f"Delete {', '.join(names)} with all records?", abort=True)
    outcomes = cluster.run(cluster.admin.delete_topics(names))
    for name, error in outcomes.items():
        if error is None:
            click.echo(f"deleted {name}")
    finish(outcomes)
