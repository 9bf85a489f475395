"""Several processes on one store: death, frost, and contention."""

import asyncio
import random
import signal

import pytest
from tests.store.conftest import Recorder, SharedBackend, Spawn

from odradek.store.api import EventKind, WatchEvent

pytestmark = pytest.mark.process

GONE = WatchEvent(EventKind.DELETED, "/brokers-1")


async def test_a_killed_process_takes_its_ephemeral_nodes_along(
    shared: SharedBackend, spawn: Spawn, recorder: type[Recorder]
) -> None:
    store = await shared.open(timeout_ms=18_000)
    loop = asyncio.get_running_loop()
    took = []
    for _ in range(3):
        child = await spawn(shared.url, 1000)
        assert await child.ask("create /brokers-1 ephemeral") == "/brokers-1"
        gone = recorder()
        assert await store.exists("/brokers-1", gone) is not None
        killed_at = loop.time()
        child.signal(signal.SIGKILL)
        assert await gone.next() == GONE
        took.append(loop.time() - killed_at)
    # A file lock tells at once, on a machine that is not too busy; an ensemble waits for the
    # session's time-out.
    assert min(took) < (0.1 if shared.name == "sqlite" else 10.0)


async def test_a_frozen_process_loses_its_session_and_learns_it_when_it_wakes(
    shared: SharedBackend, spawn: Spawn, recorder: type[Recorder]
) -> None:
    store = await shared.open()
    child = await spawn(shared.url, 600)
    await child.ask("create /brokers-1 ephemeral")
    gone = recorder()
    await store.exists("/brokers-1", gone)
    child.signal(signal.SIGSTOP)
    assert await gone.next() == GONE
    child.signal(signal.SIGCONT)
    heard = [await child.hear()]
    while heard[-1] != "session connected":
        heard.append(await child.hear())
    assert "session expired" in heard
    assert await child.ask("create /brokers-1 ephemeral") == "/brokers-1"


async def test_sequential_names_are_unique_under_contention(
    shared: SharedBackend, spawn: Spawn
) -> None:
    store = await shared.open()
    await store.create("/q", None)
    children = [await spawn(shared.url, 20_000) for _ in range(3)]
    for child in children:
        await child.say("sequential /q/n- 50")
    assert [await child.hear() for child in children] == ["done"] * 3
    assert await store.children("/q") == [f"n-{number:010d}" for number in range(150)]


async def test_no_conditional_write_is_lost_or_doubled(shared: SharedBackend, spawn: Spawn) -> None:
    store = await shared.open()
    await store.create("/n", b"0")
    children = [await spawn(shared.url, 20_000) for _ in range(3)]
    for child in children:
        await child.say("count /n 50")
    assert [await child.hear() for child in children] == ["done"] * 3
    data, stat = await store.get("/n")
    assert data == b"150" and stat.version == 150


async def test_a_watcher_in_another_process_sees_the_end(
    shared: SharedBackend, spawn: Spawn
) -> None:
    store = await shared.open()
    await store.create("/n", b"start")
    child = await spawn(shared.url, 20_000)
    assert await child.ask("watch /n") == "start"
    for number in range(100):
        await store.set("/n", b"%d" % number)
    await store.set("/n", b"stop")
    heard = "start"
    while heard != "stop":
        heard = await child.hear()


async def test_death_at_any_instruction_leaves_a_whole_tree(
    shared: SharedBackend, spawn: Spawn
) -> None:
    store = await shared.open()
    await store.create("/p", None)
    await store.create("/p/left", b"0")
    await store.create("/p/right", b"0")
    rng = random.Random(7)
    loop = asyncio.get_running_loop()
    for _ in range(4):
        child = await spawn(shared.url, 2000)
        await child.say("pairs /p")
        deadline = loop.time() + rng.uniform(0.05, 0.2)
        while loop.time() < deadline:
            left, right = await store.get_many(["/p/left", "/p/right"])
            if shared.name == "sqlite":  # one read of both is one moment there
                assert left is not None and right is not None and left[0] == right[0]
        child.signal(signal.SIGKILL)
        await child.end()
        left, right = await store.get_many(["/p/left", "/p/right"])
        assert left is not None and right is not None
        assert left[0] == right[0] and left[1].modified == right[1].modified
        log = [name for name in await store.children("/p") if name.startswith("log-")]
        stat = await store.exists("/p")
        assert stat is not None and stat.children == len(log) + 2
