"""`odradek users`: users that log in with a password (SCRAM)."""

import asyncio
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from odradek.cli.offline import store_config_option
from odradek.cli.output import Listing, examples, json_option, print_json
from odradek.cli.session import with_cluster

if TYPE_CHECKING:
    from odradek.client import Blocking

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16384

_mechanism_option = click.option(
    "--mechanism",
    "mechanisms",
    multiple=True,
    type=click.Choice(MECHANISMS, case_sensitive=False),
    help="For this mechanism only; default: both.",
)


@click.group(epilog=examples("odradek users add alice", "odradek users list --json"))
def users() -> None:
    """Manage users whose password credentials (SCRAM) are kept by the cluster.

    The cluster keeps what verifies a password, never the password. Users of PLAIN, OAUTHBEARER and
    of certificates are in the brokers' settings or elsewhere, and are not shown here.
    """


@users.command(
    epilog=examples(
        "odradek users add alice",
        "odradek users add alice --password-file alice.secret",
        "odradek users add broker --offline --data ./data",
    )
)
@click.argument("name")
@_mechanism_option
@click.option(
    "--iterations",
    type=click.IntRange(ITERATIONS_MIN, ITERATIONS_MAX),
    default=ITERATIONS_MIN,
    show_default=True,
    help="More make guessing slower, and logins too.",
)
@click.option(
    "--password-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Its first line is the password; default: a prompt, or the first line of standard input.",
)
@click.option("--offline", is_flag=True, help="Write to the store while no broker runs.")
@click.option(
    "--data", type=click.Path(file_okay=False), help="With --offline: the cluster's directory."
)
@click.option("--store", help="With --offline: sqlite:FILE or zookeeper://HOST:PORT[/CHROOT].")
@store_config_option
@with_cluster
def add(
    cluster: "Blocking",
    name: str,
    mechanisms: tuple[str, ...],
    iterations: int,
    password_file: Path | None,
    offline: bool,
    data: str | None,
    store: str | None,
    store_config: Path | None,
) -> None:
    """Add a user, or give one a new password.

    Brokers that log in to each other need their user before the first start: add it --offline.
    """
    if not name:
        raise click.UsageError("the user name is empty")
    wanted = mechanisms or MECHANISMS
    if not offline:
        if data or store or store_config:
            raise click.UsageError("--data, --store and --store-config go with --offline")
        password = _password(password_file)
        cluster.run(cluster.users.add(name, password, mechanisms=wanted, iterations=iterations))
    else:
        from odradek.broker.first_users import write_users
        from odradek.cli.offline import offline_errors, read_store_security, store_address

        address, passwords = store_address(data, store), {name: _password(password_file)}
        security = read_store_security(store_config)
        with offline_errors():
            asyncio.run(
                write_users(address, passwords, secrets.token_bytes, wanted, iterations, security)
            )
    click.echo(f"user {name}: password set for {' and '.join(wanted)}")


@users.command("list", epilog=examples("odradek users list --json"))
@json_option
@with_cluster
def list_users(cluster: "Blocking", as_json: bool) -> None:
    """Show the users, and the mechanisms they can log in with."""
    found = cluster.run(cluster.users.describe())
    if as_json:
        print_json([user._asdict() for user in found])
        return
    rows = [{"name": user.name, "mechanisms": ", ".join(user.mechanisms)} for user in found]
    Listing(rows, {"user": "name", "mechanisms": "mechanisms"}).show(False, empty="no users")


@users.command(epilog=examples("odradek users delete alice"))
@click.argument("name")
@_mechanism_option
@with_cluster
def delete(cluster: "Blocking", name: str, mechanisms: tuple[str, ...]) -> None:
    """Delete a user's credentials. Its permissions and quotas stay."""
    cluster.run(cluster.users.delete(name, mechanisms))
    click.echo(f"user {name}: credentials deleted")


def _password(file: Path | None) -> str:
    if file is not None:
        text = file.read_text().partition("\n")[0]
    elif sys.stdin.isatty():
        text = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        text = sys.stdin.readline().rstrip("\r\n")
    if not text:
        raise click.UsageError("a password has at least one character")
    return str(text)
