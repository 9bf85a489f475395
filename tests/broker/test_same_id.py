"""Two processes with one broker id, on different disks: the second is refused and has changed
nothing; and where the first was paused and has lost its session, it is the one that must go."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import confluent_kafka.admin
import pytest
from tests.broker.processes import BrokerProcess

from odradek.store import open_store
from odradek.store.cluster import ClusterStore
from odradek.store.payloads import LeaderAndIsr
from odradek.store.zookeeper_server import ZooKeeperServer
from odradek.wire.topics import TopicPartition

pytestmark = pytest.mark.process

SESSION_MS = 2000
PARTITIONS = [TopicPartition("t", number) for number in range(4)]
SETTINGS = (f"zookeeper.session.timeout.ms={SESSION_MS}", "auto.leader.rebalance.enable=false")


@pytest.fixture(params=["sqlite", "zookeeper"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:{tmp_path}/metadata.db"
        return
    request.getfixturevalue("zookeeper_is_here")
    server = ZooKeeperServer(tmp_path / "zookeeper", port=0, tick_ms=200)
    server.start()
    yield f"zookeeper://{server.address}"
    server.stop()


def process(tmp_path: Path, name: str, broker_id: int, store_url: str) -> BrokerProcess:
    made = BrokerProcess(tmp_path / name, *SETTINGS, broker_id=broker_id)
    made.options = ("--store", store_url)
    return made


@pytest.fixture
def brokers(tmp_path: Path, store_url: str) -> Iterator[list[BrokerProcess]]:
    """Two brokers with a topic of four partitions on both."""
    made = [process(tmp_path, f"broker-{id}", id, store_url) for id in (1, 2)]
    try:
        for each in made:
            each.start()
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": made[0].bootstrap})
        admin.create_topics([confluent_kafka.admin.NewTopic("t", len(PARTITIONS), 2)])["t"].result(
            20
        )
        yield made
    finally:
        for each in made:
            if each.is_running:
                each.resume()
                each.kill()


def asked(url: str, question: Callable[[ClusterStore], Awaitable[bool]]) -> None:
    """Waits until the store answers yes."""

    async def ask() -> None:
        store = open_store(url, session_timeout_ms=SESSION_MS)
        await store.start()
        try:
            async with asyncio.timeout(60):
                while not await question(ClusterStore(store)):  # noqa: ASYNC110  # another process
                    await asyncio.sleep(0.05)
        finally:
            await store.close()

    asyncio.run(ask())


def states(url: str) -> dict[TopicPartition, LeaderAndIsr]:
    found: dict[TopicPartition, LeaderAndIsr] = {}

    async def are_in_sync(store: ClusterStore) -> bool:
        found.update(await store.partition_states(PARTITIONS))
        return len(found) == len(PARTITIONS) and all(len(s.isr) == 2 for s in found.values())

    asked(url, are_in_sync)
    return found


def test_a_second_broker_of_an_id_changes_nothing_and_is_refused(
    tmp_path: Path, store_url: str, brokers: list[BrokerProcess]
) -> None:
    before = states(store_url)
    second = subprocess.run(
        [
            *(sys.executable, "-m", "odradek", "broker", "--id", "2", "--port", "0"),
            *("--data", str(tmp_path / "empty"), "--store", store_url),
            *("--set", SETTINGS[0]),
        ],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert second.returncode == 1, second.stderr
    assert "broker 2 waits up to 2 s for session" in second.stderr
    assert "broker id 2 is in use" in second.stderr and "another id" in second.stderr
    assert f"127.0.0.1:{brokers[1].port}" in second.stderr
    assert "removed from the ISR" not in second.stderr
    assert states(store_url) == before
    assert brokers[1].is_running


def test_a_paused_broker_whose_id_was_taken_writes_nothing_and_ends(
    tmp_path: Path, store_url: str, brokers: list[BrokerProcess]
) -> None:
    states(store_url)
    first = brokers[1]
    first.pause()
    second = process(tmp_path, "empty", 2, store_url)
    brokers.append(second)
    second.start()

    async def is_copied(store: ClusterStore) -> bool:
        return all(len(s.isr) == 2 for s in (await store.partition_states(PARTITIONS)).values())

    asked(store_url, is_copied)
    before = states(store_url)
    first.resume()
    assert first.wait() == 1
    assert any("broker id 2 is in use" in line for line in first.log), "\n".join(first.log)
    assert states(store_url) == before
    assert second.is_running
