"""The metadata store, opened by a command while no broker runs."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from odradek.broker.store_security import StoreSecurity
    from odradek.store.cluster import ClusterStore

DIRECTORY_MODE = 0o700


store_config_option = click.option(
    "--store-config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="With --offline: a broker's file, for its login and TLS with ZooKeeper.",
)


@asynccontextmanager
async def offline_store(address: str, config: Path | None = None) -> "AsyncIterator[ClusterStore]":
    """The store at this address; refused while brokers are running."""
    from odradek.broker.first_users import offline_store

    with offline_errors():
        async with offline_store(address, read_store_security(config)) as store:
            yield store


def read_store_security(file: Path | None) -> "StoreSecurity":
    """How a broker with this file connects to its store."""
    from odradek.broker.config import BrokerConfig
    from odradek.broker.store_security import NO_STORE_SECURITY, store_security
    from odradek.wire.errors import KafkaError
    from odradek.wire.properties import decode_properties

    if file is None:
        return NO_STORE_SECURITY
    try:
        settings = BrokerConfig(decode_properties(file.read_text(encoding="latin-1")))
        return store_security(settings, lambda path: Path(path).read_bytes())
    except KafkaError as error:
        raise click.ClickException(f"{file}: {error.message}") from None


@contextmanager
def offline_errors() -> Iterator[None]:
    from odradek.broker.first_users import BrokersRunning
    from odradek.store.api import StoreError

    try:
        yield
    except BrokersRunning as error:
        raise click.ClickException(f"{error}: stop them, or leave out --offline") from None
    except StoreError as error:
        raise click.ClickException(str(error)) from None
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def store_address(data: str | None, store: str | None) -> str:
    """Where the store is, by a cluster's directory or by its own address."""
    from odradek.cli.broker import STORE_FILE

    if store is not None:
        return store
    if data is None:
        raise click.UsageError("--offline needs --data DIR or --store ADDRESS")
    directory = os.path.abspath(data)
    try:
        os.makedirs(directory, mode=DIRECTORY_MODE, exist_ok=True)
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from None
    return f"sqlite:{directory}/{STORE_FILE}"
