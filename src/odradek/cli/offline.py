"""The metadata store, opened by a command while no broker runs."""

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from odradek.store.cluster import ClusterStore

DIRECTORY_MODE = 0o700


@asynccontextmanager
async def offline_store(address: str) -> "AsyncIterator[ClusterStore]":
    """The store at this address; refused while brokers are running."""
    from odradek.broker.first_users import offline_store

    with offline_errors():
        async with offline_store(address) as store:
            yield store


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
    os.makedirs(directory, mode=DIRECTORY_MODE, exist_ok=True)
    return f"sqlite:{directory}/{STORE_FILE}"
