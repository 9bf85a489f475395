"""`odradek tokens`: delegation tokens, which stand for a user for a while."""

import sys
from typing import TYPE_CHECKING

import click

from odradek.cli.output import Listing, examples, json_option, moment, print_json
from odradek.cli.session import with_cluster

if TYPE_CHECKING:
    from odradek.client import Blocking
    from odradek.client.tokens import Token
    from odradek.security.principal import Principal

HOUR_MS = 3_600_000


@click.group(epilog=examples("odradek tokens create --renewer User:scheduler"))
def tokens() -> None:
    """Create and manage delegation tokens.

    A client logs in with SCRAM, the token's id as user, its hmac as password and tokenauth=true.
    Brokers need delegation.token.secret.key. A token cannot create tokens.
    """


@tokens.command(epilog=examples("odradek tokens create --max-lifetime-hours 24 --json"))
@click.option("--owner", metavar="PRINCIPAL", help="For another user; needs CreateTokens.")
@click.option("--renewer", "renewers", multiple=True, metavar="PRINCIPAL", help="May renew it.")
@click.option("--max-lifetime-hours", type=click.FloatRange(0, min_open=True), metavar="HOURS")
@json_option
@with_cluster
def create(
    cluster: "Blocking",
    owner: str | None,
    renewers: tuple[str, ...],
    max_lifetime_hours: float | None,
    as_json: bool,
) -> None:
    """Create a token, for the caller by default. Its hmac is a secret."""
    made = cluster.run(
        cluster.tokens.create(
            owner=None if owner is None else _principal(owner),
            renewers=[_principal(each) for each in renewers],
            max_lifetime_ms=-1 if max_lifetime_hours is None else int(max_lifetime_hours * HOUR_MS),
        )
    )
    if as_json:
        print_json(made._asdict())
        return
    click.echo(f"id    {made.id}\nhmac  {made.hmac}\n{_times(made)}")


@tokens.command("list", epilog=examples("odradek tokens list --owner User:alice"))
@click.option("--owner", "owners", multiple=True, metavar="PRINCIPAL", help="Only of these.")
@json_option
@with_cluster
def list_tokens(cluster: "Blocking", owners: tuple[str, ...], as_json: bool) -> None:
    """Show the tokens that you may see, without their secrets."""
    found = cluster.run(cluster.tokens.describe([_principal(each) for each in owners]))
    if as_json:
        print_json([{**each._asdict(), "hmac": None} for each in found])
        return
    rows = [{"id": each.id, "owner": each.owner, "shown": _times(each)} for each in found]
    Listing(rows, {"id": "id", "owner": "owner", "times": "shown"}).show(False, empty="no tokens")


@tokens.command(epilog=examples("odradek tokens renew < hmac.txt"))
@click.option("--hours", type=click.FloatRange(0), help="From now on; default: the cluster's.")
@with_cluster
def renew(cluster: "Blocking", hours: float | None) -> None:
    """Let a token expire later. Its hmac is read from standard input."""
    period_ms = -1 if hours is None else int(hours * HOUR_MS)
    expires_ms = cluster.run(cluster.tokens.renew(_hmac(), period_ms))
    click.echo(f"expires {moment(expires_ms)}")


@tokens.command(epilog=examples("odradek tokens expire < hmac.txt"))
@with_cluster
def expire(cluster: "Blocking") -> None:
    """End a token now. Its hmac is read from standard input."""
    cluster.run(cluster.tokens.expire(_hmac()))
    click.echo("the token has expired")


def _hmac() -> str:
    """Of a token, from the input: a command line is seen by others."""
    import base64

    text = sys.stdin.readline().strip()
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        text = ""
    if not text:
        raise click.UsageError("give the token's hmac, base64, on standard input")
    return text


def _principal(text: str) -> "Principal":
    from odradek.security.principal import Principal

    try:
        return Principal.parse(text)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _times(token: "Token") -> str:
    return f"expires {moment(token.expires_ms)}, at the latest {moment(token.max_ms)}"
