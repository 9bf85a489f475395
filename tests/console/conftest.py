from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from tests.broker.clusters import Cluster, cluster
from tests.console.consoles import Browser, bootstrap_of, console_on

from odradek.console.console import Console

HTTP = {"odradek_http_listener": "127.0.0.1:0"}


@pytest_asyncio.fixture
async def brokers(tmp_path: Path) -> AsyncIterator[Cluster]:
    """Three brokers with HTTP listeners, in this loop."""
    async with cluster(tmp_path / "brokers", 3, **HTTP) as made:
        yield made


@pytest_asyncio.fixture
async def seen(brokers: Cluster, tmp_path: Path) -> AsyncIterator[tuple[Console, Browser]]:
    """A console on these brokers, and a browser that is logged in."""
    async with console_on(bootstrap_of(brokers), tmp_path) as made:
        yield made
