"""Golden transcripts: every situation the controller must master, on every store.

The files hold commands and what came of them, so a failover can be read as prose. All stores must
give the same transcript, and so must puppets and real brokers.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.controller.scenarios.cluster import PuppetCluster
from tests.controller.scenarios.real import play_with_real_brokers, without_what_real_brokers_add
from tests.controller.scenarios.runner import Runner, replay
from tests.store.conftest import Backend, MemoryBackend, SqliteBackend, ZooKeeperBackend

SCENARIOS = sorted(Path(__file__).parent.glob("*.txt"))
SESSION_TIMEOUT_MS = 10_000
STORES = ["memory", "sqlite", pytest.param("zookeeper", marks=pytest.mark.process)]


async def play(make: Callable[[], Backend], scenario: str) -> str:
    backend = make()
    runner = Runner(
        lambda config: PuppetCluster(
            lambda: backend.open(SESSION_TIMEOUT_MS), config, backend.expire
        )
    )
    try:
        return await replay(scenario, runner)
    finally:
        await runner.close()
        await backend.close()


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, store: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    def make() -> Backend:
        if store == "memory":
            return MemoryBackend()
        if store == "sqlite":
            return SqliteBackend(tmp_path)
        return ZooKeeperBackend(address)

    address = request.getfixturevalue("zookeeper_address") if store == "zookeeper" else ""
    transcript = asyncio.run(play(make, path.read_text()))
    if request.config.getoption("--rewrite-scenarios", default=False):
        path.write_text(transcript)
    assert transcript == path.read_text()


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario_with_real_brokers(path: Path) -> None:
    scenario = path.read_text()
    transcript = play_with_real_brokers(scenario)
    expected = without_what_real_brokers_add(scenario)
    assert without_what_real_brokers_add(transcript) == expected
