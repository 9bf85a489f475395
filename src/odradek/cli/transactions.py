"""`odradek transactions`: what is open, in which state, and what hangs."""

import time
from typing import TYPE_CHECKING

import click

from odradek.cli.output import Listing, examples, json_option
from odradek.cli.session import with_cluster
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    from odradek.client import Blocking
    from odradek.client.transactions import OpenTransaction

MINUTE_MS = 60_000


@click.group(epilog=examples("odradek transactions list"))
def transactions() -> None:
    """List and describe transactions; find those that hang, and abort them."""


@transactions.command("list", epilog=examples("odradek transactions list --json"))
@json_option
@with_cluster
def list_transactions(cluster: "Blocking", as_json: bool) -> None:
    """List all transactional ids."""
    Listing(
        [each._asdict() for each in cluster.run(cluster.transactions.list_transactions())],
        {
            "transactional id": "transactional_id",
            "coordinator": "coordinator",
            "producer": "producer_id",
            "state": "state",
        },
    ).show(as_json)


@transactions.command(epilog=examples("odradek transactions describe billing-1"))
@click.argument("transactional_id")
@json_option
@with_cluster
def describe(cluster: "Blocking", transactional_id: str, as_json: bool) -> None:
    """Show one transactional id, and the partitions of its transaction that have no marker yet."""
    found = cluster.run(cluster.transactions.describe(transactional_id))
    names = [str(tp) for tp in found.partitions]
    row = {**found._asdict(), "partitions": names}
    Listing(
        [row],
        {
            "transactional id": "transactional_id",
            "state": "state",
            "producer": "producer_id",
            "epoch": "producer_epoch",
            "timeout ms": "timeout_ms",
            "started ms": "started_ms",
            "partitions": lambda row: ", ".join(names),
        },
    ).show(as_json)


def _rows(found: list["OpenTransaction"]) -> list[dict[str, object]]:
    return [
        {
            **each._asdict(),
            "topic": each.partition.topic,
            "partition": each.partition.partition,
        }
        for each in found
    ]


@transactions.command(
    "find-hanging", epilog=examples("odradek transactions find-hanging --topic orders")
)
@click.option("--topic", required=True, help="Look into the partitions of this topic.")
@click.option(
    "--max-transaction-timeout",
    "minutes",
    default=15,
    show_default=True,
    help="Ignore transactions that were active within this many minutes.",
)
@json_option
@with_cluster
def find_hanging(cluster: "Blocking", topic: str, minutes: int, as_json: bool) -> None:
    """Find transactions that are open in a log and that no coordinator knows of."""

    async def find() -> list["OpenTransaction"]:
        metadata = await cluster.client.require_topics([topic])
        partitions = [TopicPartition(topic, n) for n in metadata.topics[topic].partitions]
        before_ms = int(time.time() * 1000) - minutes * MINUTE_MS
        return await cluster.transactions.find_hanging(partitions, before_ms)

    Listing(
        _rows(cluster.run(find())),
        {
            "topic": "topic",
            "partition": "partition",
            "producer": "producer_id",
            "epoch": "producer_epoch",
            "coordinator epoch": "coordinator_epoch",
            "start offset": "start_offset",
            "last timestamp": "last_timestamp_ms",
        },
    ).show(as_json, empty="no transaction hangs")


@transactions.command(
    epilog=examples("odradek transactions abort --topic orders --partition 0 --start-offset 42")
)
@click.option("--topic", required=True)
@click.option("--partition", required=True, type=int)
@click.option("--start-offset", required=True, type=int, help="As find-hanging shows it.")
@with_cluster
def abort(cluster: "Blocking", topic: str, partition: int, start_offset: int) -> None:
    """Abort a transaction that hangs in one partition.

    Only for what find-hanging has found: the coordinator of a live transaction is not asked.
    """

    async def carry_out() -> "OpenTransaction | None":
        tp = TopicPartition(topic, partition)
        for each in await cluster.transactions.open_in([tp]):
            if each.start_offset == start_offset:
                await cluster.transactions.abort(each)
                return each
        return None

    found = cluster.run(carry_out())
    if found is None:
        raise click.ClickException(
            f"{topic}-{partition} has no open transaction that begins at offset {start_offset}"
        )
    click.echo(f"{topic}-{partition}: aborted the transaction of producer {found.producer_id}")
