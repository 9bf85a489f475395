"""`odradek console`: a web console for a cluster."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.session import bootstrap_option, client_settings, command_config_option

if TYPE_CHECKING:
    from odradek.console.options import Options

PORT = 8092


@click.command(epilog="Example: odradek console --bootstrap-server localhost:9092")
@bootstrap_option("Where to find the cluster.")
@command_config_option
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=PORT, show_default=True)
@click.option("--name", "names", multiple=True, help="Another host name by which clients reach it.")
@click.option("--cert", type=click.Path(exists=True, path_type=Path), help="TLS certificate, PEM.")
@click.option("--key", type=click.Path(exists=True, path_type=Path), help="Its key, PEM.")
@click.option("--behind-proxy", metavar="ADDRESS", help="The proxy that does TLS and login.")
@click.option(
    "--users",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file of users, made with --add-user.",
)
@click.option("--add-user", metavar="NAME", help="Add a user to --users and exit.")
@click.option(
    "--role",
    type=click.Choice(["viewer", "operator", "admin"]),
    default="viewer",
    show_default=True,
    help="The role of --add-user.",
)
@click.option("--records", multiple=True, metavar="PREFIX", help="Topics --add-user may read.")
@click.option("--read-only", is_flag=True, help="Refuse every change.")
@click.option("--metrics-only", is_flag=True, help="Serve /metrics of the cluster and no console.")
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where token and audit are kept; default: ~/.local/state/odradek.",
)
@click.option("--held-by", type=int, hidden=True, help="A socket to the brokers' holder.")
@click.option("--http-token", envvar="ODRADEK_HTTP_TOKEN", help="The brokers' odradek.http.token.")
def console(**given: Any) -> None:
    """Serve a web console until Ctrl-C, and print the link that opens it.

    It listens on this machine alone. On another address it wants --users and --cert, or a proxy
    that does both. With --metrics-only it wants --cert there, and what reads the metrics sends the
    token of the file console-PORT.token in --state.
    """
    from odradek.cli.extras import needs_console
    from odradek.security.client_settings import InvalidSecurity

    with needs_console():
        from odradek.console.accounts import AccountsError
        from odradek.console.options import InvalidOptions
        from odradek.console.server import run

    if given["add_user"] is not None:
        _add_user(given)
        return
    try:
        options = console_options(given)
        options.check()
        what = "metrics" if options.metrics_only else "console"
        run(options, lambda link: click.echo(f"{what}: {link}"))
    except (InvalidOptions, AccountsError) as error:
        raise click.UsageError(str(error)) from None
    except (InvalidSecurity, ValueError) as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise click.ClickException(
            f"{given['host']}:{given['port']}: {error.strerror or error}"
        ) from None


def console_options(given: Mapping[str, Any]) -> "Options":
    from odradek.console.options import Options

    state = given["state"] or _state_directory()
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    return Options(
        given["bootstrap_server"],
        client_settings(given["command_config"], ()),
        host=given["host"],
        port=given["port"],
        names=given["names"],
        certificate=given["cert"],
        key=given["key"],
        proxy=given["behind_proxy"],
        users=given["users"],
        token_file=state / f"console-{given['port']}.token",
        audit_file=state / f"console-{given['port']}.audit",
        broker_token=given["http_token"],
        read_only=given["read_only"],
        metrics_only=given["metrics_only"],
        holder=given["held_by"],
    )


def _state_directory() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "odradek"


def _add_user(given: Mapping[str, Any]) -> None:
    from odradek.console.accounts import add_user

    if given["users"] is None:
        raise click.UsageError("--add-user needs --users FILE")
    password = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    add_user(given["users"], given["add_user"], password, given["role"], given["records"])
    click.echo(f"{given['add_user']} may log in as {given['role']}")
