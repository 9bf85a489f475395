"""`odradek configs set --offline`: a way back for settings that keep everybody out."""

import asyncio
from pathlib import Path

from tests.cli.conftest import CommandLine

from odradek.store import open_store
from odradek.store.api import wall_clock_ms
from odradek.store.cluster import ClusterStore
from odradek.store.paths import DEFAULT_ENTITY, ConfigKind
from odradek.store.payloads import BrokerRegistration, Endpoint

NOWHERE = CommandLine("127.0.0.1:1")


async def opened(address: str) -> ClusterStore:
    store = ClusterStore(open_store(address), wall_clock_ms)
    await store.session.start()
    await store.prepare()
    return store


def test_a_setting_is_changed_in_the_store_while_no_broker_runs(tmp_path: Path) -> None:
    address = f"sqlite:{tmp_path / 'metadata.db'}"

    async def lock_out() -> None:
        store = await opened(address)
        written = {"max.connections": "1", "log.retention.ms": "5"}
        await store.configs.set_offline(ConfigKind.BROKERS, DEFAULT_ENTITY, written)
        await store.session.close()

    async def found() -> dict[str, str]:
        store = await opened(address)
        try:
            return dict(await store.configs.get(ConfigKind.BROKERS, DEFAULT_ENTITY))
        finally:
            await store.session.close()

    asyncio.run(lock_out())
    command = ("configs", "set", "--all-brokers", "--offline", address)
    assert "would be changed" in NOWHERE(*command, "-d", "max.connections", "--dry-run")
    assert asyncio.run(found())["max.connections"] == "1"
    assert "1 setting changed" in NOWHERE(*command, "-d", "max.connections")
    assert asyncio.run(found()) == {"log.retention.ms": "5"}
    assert "could not connect any more" in NOWHERE.refused(*command, "max.connections=1")


def test_it_is_refused_while_a_broker_runs(tmp_path: Path) -> None:
    address = f"sqlite:{tmp_path / 'metadata.db'}"

    async def story() -> str:
        store = await opened(address)
        endpoints = (Endpoint("127.0.0.1", 9092, "PLAINTEXT"),)
        await store.register_broker(BrokerRegistration(7, -1, endpoints=endpoints, rack=None))
        command = ("configs", "set", "--all-brokers", "--offline", address, "log.retention.ms=5")
        try:
            return await asyncio.to_thread(NOWHERE.refused, *command)
        finally:
            await store.session.close()

    assert "brokers 7 are running" in asyncio.run(story())
