"""`odradek quotas`: client quotas."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.output import Listing, examples, json_option, parse_size, plural, print_json
from odradek.cli.session import assignments, with_cluster

if TYPE_CHECKING:
    from odradek.client import Blocking
    from odradek.client.quotas import QuotaEntity

# What each quota is, and its unit where one may be written.
QUOTAS = {
    "producer_byte_rate": "bytes/s",
    "consumer_byte_rate": "bytes/s",
    "request_percentage": "% of a broker's time",
    "controller_mutation_rate": "partitions/s",
    "connection_creation_rate": "connections/s",
}
SIZES = frozenset({"producer_byte_rate", "consumer_byte_rate"})


@click.group(
    epilog=examples("odradek quotas set --client-id etl producer_byte_rate=5MB"),
)
def quotas() -> None:
    """Show and set client quotas, which each broker enforces.

    \b
    producer_byte_rate        bytes per second that may be written
    consumer_byte_rate        bytes per second that may be read
    request_percentage        share of a broker's time that requests may take
    controller_mutation_rate  partitions per second created and deleted
    connection_creation_rate  connections per second from one address

    The most specific quota applies: of a user and client id, of a user, of a client id. A client
    over its quota is throttled; creating and deleting too many partitions is refused, to be
    retried later. Without authentication every user is ANONYMOUS. An address over its rate of
    connections is disconnected.
    """


def _with_entity(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that name a quota's owner, and the owner as `entity`."""

    @functools.wraps(command)
    def named(
        *args: Any,
        user: str | None,
        default_user: bool,
        client_id: str | None,
        default_client_id: bool,
        ip: str | None,
        default_ip: bool,
        **options: Any,
    ) -> None:
        entity = _entity((user, default_user), (client_id, default_client_id), (ip, default_ip))
        command(*args, entity=entity, **options)

    wrapped: Callable[..., None] = named
    for option in (
        click.option("--default-ip", is_flag=True, help="Each address without its own."),
        click.option("--ip", metavar="ADDRESS", help="An address that clients connect from."),
        click.option("--default-client-id", is_flag=True, help="Each client id without its own."),
        click.option("--client-id", metavar="ID", help="A client id."),
        click.option("--default-user", is_flag=True, help="Each user without a quota of its own."),
        click.option("--user", metavar="NAME", help="A user."),
    ):
        wrapped = option(wrapped)
    return wrapped


def _entity(*written: tuple[str | None, bool]) -> "QuotaEntity":
    """From the name and the default of a user, of a client id and of an address."""
    from odradek.client.quotas import DEFAULT, QuotaEntity

    if any(name is not None and is_default for name, is_default in written):
        raise click.UsageError("give a name or the default, not both")
    entity = QuotaEntity(*(DEFAULT if is_default else name for name, is_default in written))
    if entity.ip is not None and entity != QuotaEntity(ip=entity.ip):
        raise click.UsageError("--ip stands alone: an address has quotas apart from its users")
    return entity


@quotas.command("list", epilog=examples("odradek quotas list --client-id etl --json"))
@_with_entity
@json_option
@with_cluster
def list_quotas(
    cluster: "Blocking",
    entity: "QuotaEntity",
    as_json: bool,
) -> None:
    """Show the quotas that are set, of all or of those named."""
    found = cluster.run(cluster.quotas.describe(entity))
    if not entity.parts:
        found |= cluster.run(cluster.quotas.describe_addresses())
    if as_json:
        print_json([{**entity._asdict(), "quotas": values} for entity, values in found.items()])
        return
    # A row for each quota; in JSON those of an entity belong together.
    Listing(
        [
            {**entity._asdict(), "quota": name, "limit": value}
            for entity, values in sorted(found.items(), key=lambda item: str(item[0]))
            for name, value in sorted(values.items())
        ],
        {
            "user": "user",
            "client id": "client_id",
            "ip": "ip",
            "quota": "quota",
            "limit": lambda row: f"{row['limit']:.15g}",
            "unit": lambda row: QUOTAS.get(str(row["quota"]), ""),
        },
    ).show(as_json=False)


@quotas.command(
    "set",
    epilog=examples(
        "odradek quotas set --client-id etl producer_byte_rate=5MB",
        "odradek quotas set --default-user --client-id etl -d producer_byte_rate",
    ),
)
@click.argument("limits", nargs=-1, metavar="[QUOTA=LIMIT]...")
@_with_entity
@click.option("--delete", "-d", "deleted", multiple=True, metavar="QUOTA", help="No limit.")
@click.option("--dry-run", is_flag=True, help="Only validate.")
@with_cluster
def set_quotas(
    cluster: "Blocking",
    limits: tuple[str, ...],
    entity: "QuotaEntity",
    deleted: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Set and remove quotas; those that are not named stay as they are."""
    if not entity.parts:
        raise click.UsageError(
            "name the quota's owner: --user, --client-id, --ip, or the default of one"
        )
    wanted: dict[str, float | None] = {
        _known(name): _limit(name, text) for name, text in assignments(limits, "a quota").items()
    }
    wanted.update(dict.fromkeys(map(_known, deleted)))
    if not wanted:
        raise click.UsageError("nothing to set: give QUOTA=LIMIT, or --delete QUOTA")
    cluster.run(cluster.quotas.alter(entity, wanted, validate_only=dry_run))
    verb = "would be changed" if dry_run else "changed"
    click.echo(f"{entity}: {plural(len(wanted), 'quota')} {verb}")


def _known(name: str) -> str:
    if name not in QUOTAS:
        from odradek.operations import did_you_mean

        raise click.UsageError(f"there is no quota {name!r}{did_you_mean(name, QUOTAS)}")
    return name


def _limit(name: str, text: str) -> float:
    try:
        return parse_size(text) if name in SIZES else float(text)
    except ValueError:
        looks = "5MB or 1048576" if name in SIZES else "a number"
        raise click.UsageError(f"{name} looks like {looks}, not {text!r}") from None
