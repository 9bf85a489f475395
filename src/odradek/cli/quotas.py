"""`odradek quotas`: how much users and clients may ask of each broker."""

from typing import TYPE_CHECKING

import click

from odradek.cli.output import examples, json_option, parse_size, print_json, print_table
from odradek.cli.session import assignments, nearest, with_cluster

if TYPE_CHECKING:
    from odradek.client import Blocking
    from odradek.client.quotas import QuotaEntity

# What each quota is, and its unit where one may be written.
QUOTAS = {
    "producer_byte_rate": "bytes a second",
    "consumer_byte_rate": "bytes a second",
    "request_percentage": "% of a broker's time",
    "controller_mutation_rate": "partitions a second",
}
SIZES = frozenset({"producer_byte_rate", "consumer_byte_rate"})


@click.group(
    epilog=examples("odradek quotas set --client-id etl producer_byte_rate=5MB"),
)
def quotas() -> None:
    """Look at and set how much clients may ask of each broker.

    \b
    producer_byte_rate        bytes a second that may be written
    consumer_byte_rate        bytes a second that may be read
    request_percentage        how much of a broker's time requests may take
    controller_mutation_rate  partitions a second to create and delete

    The most specific quota counts: of a user and client id, of a user, of a client id. Who goes
    over is slowed down; creating and deleting too many partitions is refused, to be tried again
    later. Without authentication every user is ANONYMOUS.
    """


def _entity_options(command: click.decorators.FC) -> click.decorators.FC:
    for option in (
        click.option("--default-client-id", is_flag=True, help="Each client id without its own."),
        click.option("--client-id", metavar="ID", help="A client id."),
        click.option("--default-user", is_flag=True, help="Each user without a quota of its own."),
        click.option("--user", metavar="NAME", help="A user."),
    ):
        command = option(command)
    return command


def _entity(
    user: str | None, default_user: bool, client_id: str | None, default_client_id: bool
) -> "QuotaEntity":
    from odradek.client.quotas import DEFAULT, QuotaEntity

    if (user is not None and default_user) or (client_id is not None and default_client_id):
        raise click.UsageError("a name, or the default, but not both")
    return QuotaEntity(
        DEFAULT if default_user else user, DEFAULT if default_client_id else client_id
    )


@quotas.command("list", epilog=examples("odradek quotas list --client-id etl --json"))
@_entity_options
@json_option
@with_cluster
def list_quotas(
    cluster: "Blocking",
    user: str | None,
    default_user: bool,
    client_id: str | None,
    default_client_id: bool,
    as_json: bool,
) -> None:
    """Show the quotas that are set, of all or of those named."""
    only = _entity(user, default_user, client_id, default_client_id)
    found = cluster.run(cluster.quotas.describe(only))
    if as_json:
        print_json([{**entity._asdict(), "quotas": values} for entity, values in found.items()])
        return
    print_table(
        ["user", "client id", "quota", "limit", "unit"],
        [
            [entity.user or "", entity.client_id or "", name, f"{value:.15g}", QUOTAS.get(name, "")]
            for entity, values in sorted(found.items(), key=lambda item: str(item[0]))
            for name, value in sorted(values.items())
        ],
    )


@quotas.command(
    "set",
    epilog=examples(
        "odradek quotas set --client-id etl producer_byte_rate=5MB",
        "odradek quotas set --default-user --client-id etl -d producer_byte_rate",
    ),
)
@click.argument("limits", nargs=-1, metavar="[QUOTA=LIMIT]...")
@_entity_options
@click.option("--delete", "-d", "deleted", multiple=True, metavar="QUOTA", help="No limit.")
@click.option("--dry-run", is_flag=True, help="Only check whether the cluster would take it.")
@with_cluster
def set_quotas(
    cluster: "Blocking",
    limits: tuple[str, ...],
    user: str | None,
    default_user: bool,
    client_id: str | None,
    default_client_id: bool,
    deleted: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Set and remove quotas; those that are not named stay as they are."""
    entity = _entity(user, default_user, client_id, default_client_id)
    if not entity.parts:
        raise click.UsageError("say whose quota: --user, --client-id, or the default of either")
    wanted: dict[str, float | None] = {
        _known(name): _limit(name, text) for name, text in assignments(limits, "a quota").items()
    }
    wanted.update(dict.fromkeys(map(_known, deleted)))
    if not wanted:
        raise click.UsageError("say what to set: QUOTA=LIMIT, or --delete QUOTA")
    cluster.run(cluster.quotas.alter(entity, wanted, validate_only=dry_run))
    click.echo(f"{entity}: {len(wanted)} quotas {'would be' if dry_run else 'were'} changed")


def _known(name: str) -> str:
    if name not in QUOTAS:
        raise click.UsageError(f"no quota is called {name!r}{nearest(name, QUOTAS)}")
    return name


def _limit(name: str, text: str) -> float:
    try:
        return parse_size(text) if name in SIZES else float(text)
    except ValueError:
        looks = "5MB or 1048576" if name in SIZES else "a number"
        raise click.UsageError(f"{name} looks like {looks}, not {text!r}") from None
