"""What the death of a broker costs a real cluster whose store would take long to notice."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek import Cluster
from odradek.client import Admin, Client, NewTopic, Producer, check
from odradek.store import open_store
from odradek.store.zookeeper_server import ZooKeeperServer

pytestmark = [pytest.mark.process, pytest.mark.timeout(90)]

# ZooKeeper grants sessions of 2 to 20 ticks: none here ends while a test runs.
TICK_MS = 30_000
SESSION_MS = 20 * TICK_MS


@pytest.fixture
def cluster(zookeeper_is_here: None, tmp_path: Path) -> Iterator[Cluster]:
    server = ZooKeeperServer(tmp_path, port=0, tick_ms=TICK_MS)
    server.start()
    config = {"zookeeper.session.timeout.ms": SESSION_MS}
    try:
        with Cluster(brokers=3, store=f"zookeeper://{server.address}", config=config) as running:
            yield running
    finally:
        server.stop()


async def registered(cluster: Cluster) -> list[str]:
    store = open_store(cluster.store)
    await store.start()
    try:
        return sorted(await store.children("/brokers/ids"))
    finally:
        await store.close()


def test_a_dead_leader_is_replaced_while_its_session_lives(cluster: Cluster) -> None:
    controller = cluster.controller_id()
    assert controller is not None
    victim, other = [id for id in cluster.ids if id != controller]
    topic = NewTopic("t", assignment={0: [victim, other, controller]})

    async def story() -> list[int]:
        async with Client(cluster.bootstrap_servers) as client:
            check(await Admin(client).create_topics([topic]))
            async with Producer(client) as producer:
                first = await (await producer.send("t", b"before"))
                cluster.kill(victim)
                second = await (await producer.send("t", b"after"))
            assert str(victim) in await registered(cluster)
            return [first.offset, second.offset]

    assert asyncio.run(story()) == [0, 1]
    assert cluster.leader("t") == other
