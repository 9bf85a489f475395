"""What only the in-memory store has: messages that travel, and faults on order."""

import asyncio
import random
from collections.abc import Callable

import pytest
from tests.store.conftest import Recorder

from odradek.store.api import EventKind, NodeExists, SessionEvent, WatchEvent
from odradek.store.memory import MemoryServer, MemoryStore


@pytest.fixture
async def server() -> MemoryServer:
    return MemoryServer(delay=lambda: 0.02)


async def start(server: MemoryServer, **settings: int) -> MemoryStore:
    store = MemoryStore(server, **settings)
    await store.start()
    return store


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # nobody can tell us: we look at the server's inside
        await asyncio.sleep(0)


async def test_messages_take_their_time_each_way(server: MemoryServer) -> None:
    store = await start(server)
    loop = asyncio.get_running_loop()
    started = loop.time()
    await store.create("/a", None)
    assert loop.time() - started >= 0.04


async def test_messages_never_overtake_each_other(server: MemoryServer) -> None:
    rng = random.Random(1)
    store, other = await start(server), await start(server)
    server.delay = lambda: rng.uniform(0, 0.01)
    await store.create("/a", b"")
    for number in range(20):
        delivered: list[WatchEvent] = []
        _, stat = await store.get("/a", delivered.append)
        writing = asyncio.create_task(other.set("/a", b"%d" % number))
        while (await store.get("/a"))[1].version == stat.version:
            pass
        assert delivered, "the answer came before the event"
        await writing


async def test_an_event_on_its_way_outlives_the_cut(
    server: MemoryServer, recorder: type[Recorder]
) -> None:
    store, other = await start(server), await start(server)
    await other.create("/a", None)
    seen, events = recorder(), recorder()
    store.on_session(events)
    await store.get("/a", seen)
    writing = asyncio.create_task(other.set("/a", b""))
    await until(lambda: server.tree.get("/a")[1].version == 1)
    server.disconnect(store)
    await writing
    await events.until(SessionEvent.DISCONNECTED)
    assert seen.seen == []
    server.reconnect(store)
    assert await seen.next() == WatchEvent(EventKind.CHANGED, "/a")


async def test_an_answer_on_its_way_is_lost_and_the_operation_meets_itself(
    server: MemoryServer,
) -> None:
    store = await start(server)
    creating = asyncio.create_task(store.create("/a", None))
    await until(lambda: server.tree.exists("/a") is not None)
    server.disconnect(store)
    await asyncio.sleep(0)
    server.reconnect(store)
    with pytest.raises(NodeExists):
        await creating


async def test_a_request_on_its_way_is_lost_and_sent_again(server: MemoryServer) -> None:
    store = await start(server)
    creating = asyncio.create_task(store.create("/a", None))
    await asyncio.sleep(0)
    server.disconnect(store)
    assert server.tree.exists("/a") is None
    server.reconnect(store)
    assert await creating == "/a"


async def test_statistics(server: MemoryServer) -> None:
    store = await start(server)
    await store.create("/a", None)
    await store.get("/a", lambda _: None)
    assert store.statistics() == {
        "session": store.session_id,
        "connected": 1,
        "watches": 1,
        "operations": 2,
    }
    assert server.statistics() == {"nodes": 2, "sessions": 1, "transaction": 1, "watches": 1}
    await store.close()
    assert server.statistics()["sessions"] == 0
