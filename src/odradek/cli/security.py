"""`odradek security`: what a secured cluster on one machine needs, in one step."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from odradek.cli.output import examples

if TYPE_CHECKING:
    from odradek.security.development import DevelopmentSecurity

PORT = 9092


@click.group(epilog=examples("odradek security init --data ./data", "odradek up --secure"))
def security() -> None:
    """Certificates and users for a cluster with TLS, logins and permissions."""


@security.command(epilog=examples("odradek security init --data ./data", "odradek up --secure"))
@click.option(
    "--data",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="The cluster's directory; the files are made in DIR/security.",
)
@click.option(
    "--store", help="The metadata, if not in the directory: zookeeper://HOST:PORT[/CHROOT]."
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="Another name or address of the brokers, for their certificate; may be repeated.",
)
@click.option("--port", type=click.IntRange(1, 65535), default=PORT, show_default=True)
def init(data: Path, store: str | None, hosts: tuple[str, ...], port: int) -> None:
    """Make a development CA, certificates, users and settings, and say how to use them.

    Users: admin, who may do everything, and broker, which the brokers log in as. Passwords are
    random and in the files, which only you can read. What exists already is left as it is.
    """
    from odradek.cli.offline import offline_errors, store_address
    from odradek.security.development import CryptographyMissing
    from odradek.testing.secure import LOCAL_HOSTS, prepare_security, security_of

    address, made = store_address(str(data), store), security_of(data)
    try:
        with offline_errors():
            names = (*LOCAL_HOSTS, *hosts)
            asyncio.run(prepare_security(made, address, names))
    except CryptographyMissing as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from None
    click.echo(explanation(made, data, f"localhost:{port}"))


def explanation(made: "DevelopmentSecurity", data: Path, bootstrap: str) -> str:
    """How to run such a cluster and to connect to it; the passwords stay in the files."""
    admin = made.administrator()
    settings = "".join(
        f'    "{name}": "{value}",\n' for name, value in admin.items() if name != "sasl.password"
    )
    return f"""\
Security of the cluster is in {made.directory} (development only: the CA's key is there, too).

Run all brokers on this machine:
  odradek up --secure --data {data}
or one of them:
  odradek broker --id 1 --data {data} --config {made.broker_file} --port 9092

Command line:
  export ODRADEK_COMMAND_CONFIG={made.client_file}
  odradek topics list
  odradek users add alice
  odradek acls add --allow-principal User:alice --producer --topic '*'

kcat:
  kcat -F {made.librdkafka_file} -b {bootstrap} -L

librdkafka (confluent_kafka), with the password from {made.librdkafka_file.name}:
  {{
    "bootstrap.servers": "{bootstrap}",
{settings}    "sasl.password": "...",
  }}

Java: the client's properties are in
  {made.client_file}

Spark:
  spark.readStream.format("odradek")
    .option("kafka.bootstrap.servers", "{bootstrap}")
    .option("kafka.odradek.config.file", "{made.client_file}")"""
