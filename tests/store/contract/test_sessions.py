"""Sessions: what ends with them, and what a lost connection does not end."""

import asyncio

import pytest
from tests.store.conftest import Backend, Recorder, RemoteBackend

from odradek.store.api import (
    ConnectionLost,
    EventKind,
    SessionEvent,
    SessionExpired,
    Store,
    WatchEvent,
)

CONNECTED, DISCONNECTED, EXPIRED = (
    SessionEvent.CONNECTED,
    SessionEvent.DISCONNECTED,
    SessionEvent.EXPIRED,
)


async def test_close_takes_the_ephemeral_nodes_along(
    backend: Backend, store: Store, recorder: type[Recorder]
) -> None:
    other = await backend.open()
    await other.create("/stays", None)
    await other.create("/mine", None, ephemeral=True)
    await other.create("/stays/too", None, ephemeral=True)
    gone, children = recorder(), recorder()
    await store.exists("/mine", gone)
    await store.children("/stays", children)
    await other.close()
    assert await gone.next() == WatchEvent(EventKind.DELETED, "/mine")
    assert await children.next() == WatchEvent(EventKind.CHILDREN, "/stays")
    assert await store.children("/stays") == []
    await other.close()


async def test_a_closed_store_refuses_every_operation(
    backend: Backend, recorder: type[Recorder]
) -> None:
    store = await backend.open()
    await store.create("/a", None)
    seen = recorder()
    await store.get("/a", seen)
    await store.close()
    for attempt in (store.get("/a"), store.set("/a", b""), store.get_many(["/a"])):
        with pytest.raises(ConnectionLost):
            await attempt
    assert seen.seen == [] and store.session_id == 0


async def test_an_expired_session_is_reported_and_replaced(
    backend: Backend, store: Store, recorder: type[Recorder]
) -> None:
    victim = await backend.open()
    events, watch, gone = recorder(), recorder(), recorder()
    victim.on_session(events)
    await victim.create("/mine", None, ephemeral=True)
    await victim.create("/ours", None)
    await victim.get("/ours", watch)
    await store.exists("/mine", gone)
    old = victim.session_id
    await backend.expire(victim)
    assert await gone.next() == WatchEvent(EventKind.DELETED, "/mine")
    await events.until(EXPIRED)
    await events.until(CONNECTED)
    assert victim.session_id not in (0, old)
    assert events.seen[-2:] == [EXPIRED, CONNECTED]
    # The new session works, owns nothing yet, and old watches are dead.
    await store.set("/ours", b"")
    await victim.create("/mine", None, ephemeral=True)
    stat = await victim.exists("/mine")
    assert stat is not None and stat.owner == victim.session_id
    assert (await victim.get("/ours"))[0] == b""
    assert watch.seen == []


async def test_an_operation_does_not_slip_from_one_session_into_the_next(
    backend: Backend, recorder: type[Recorder]
) -> None:
    victim = await backend.open()
    events = recorder()
    victim.on_session(events)
    await victim.create("/a", None)
    await backend.expire(victim)
    attempt = asyncio.gather(
        *(victim.create("/mine-", None, ephemeral=True, sequential=True) for _ in range(3)),
        return_exceptions=True,
    )
    results = await attempt
    await events.until(CONNECTED)
    current = victim.session_id
    for result in results:
        if isinstance(result, str):  # asked so late that the new session was there
            stat = await victim.exists(result)
            assert stat is not None and stat.owner == current
        else:
            assert isinstance(result, SessionExpired)


async def test_a_lost_connection_is_reported_and_watches_survive(
    remote: RemoteBackend, recorder: type[Recorder]
) -> None:
    store, other = await remote.open(timeout_ms=10_000), await remote.open()
    events, data, absence, children, untouched = (recorder() for _ in range(5))
    store.on_session(events)
    await store.create("/a", None)
    await store.create("/b", None)
    await store.create("/mine", None, ephemeral=True)
    await store.get("/a", data)
    await store.exists("/new", absence)
    await store.children("/b", children)
    await store.get("/b", untouched)
    session = store.session_id
    await remote.disconnect(store)
    await events.until(DISCONNECTED)
    await other.set("/a", b"1")
    await other.set("/a", b"2")
    await other.create("/new", None)
    await other.create("/b/c", None)
    await remote.reconnect(store)
    await events.until(CONNECTED)
    assert await data.next() == WatchEvent(EventKind.CHANGED, "/a")
    assert await absence.next() == WatchEvent(EventKind.CREATED, "/new")
    assert await children.next() == WatchEvent(EventKind.CHILDREN, "/b")
    assert store.session_id == session and await other.exists("/mine") is not None
    assert untouched.seen == []
    await other.set("/b", b"")
    assert await untouched.next() == WatchEvent(EventKind.CHANGED, "/b")
    assert [len(each.seen) for each in (data, absence, children)] == [1, 1, 1]


async def test_nodes_deleted_while_disconnected_are_reported(
    remote: RemoteBackend, recorder: type[Recorder]
) -> None:
    store, other = await remote.open(timeout_ms=10_000), await remote.open()
    events, data, children = recorder(), recorder(), recorder()
    store.on_session(events)
    await store.create("/a", None)
    await store.create("/b", None)
    await store.get("/a", data)
    await store.children("/b", children)
    await remote.disconnect(store)
    await events.until(DISCONNECTED)
    await other.delete("/a")
    await other.delete("/b")
    await remote.reconnect(store)
    assert await data.next() == WatchEvent(EventKind.DELETED, "/a")
    assert await children.next() == WatchEvent(EventKind.DELETED, "/b")


async def test_operations_wait_for_the_connection(
    remote: RemoteBackend, recorder: type[Recorder]
) -> None:
    store, other = await remote.open(timeout_ms=10_000), await remote.open()
    events = recorder()
    store.on_session(events)
    await store.create("/a", b"0")
    await remote.disconnect(store)
    writing = asyncio.create_task(store.set("/a", b"1"))
    reading = asyncio.create_task(store.get("/a"))
    reading_many = asyncio.create_task(store.get_many(["/a", "/no"]))
    await events.until(DISCONNECTED)
    assert (await other.get("/a"))[0] == b"0"
    assert not any((writing.done(), reading.done(), reading_many.done()))
    await remote.reconnect(store)
    written, read, (there, missing) = await asyncio.wait_for(
        asyncio.gather(writing, reading, reading_many), 60
    )
    assert written.version >= 1 and read[0] == b"1"
    assert there is not None and there[0] == b"1" and missing is None


async def test_a_session_is_lost_by_silence(
    remote: RemoteBackend, recorder: type[Recorder]
) -> None:
    store, other = await remote.open(timeout_ms=500), await remote.open()
    events, gone = recorder(), recorder()
    store.on_session(events)
    await store.create("/mine", None, ephemeral=True)
    await other.exists("/mine", gone)
    await remote.disconnect(store)
    waiting = asyncio.create_task(store.get("/"))
    assert await gone.next() == WatchEvent(EventKind.DELETED, "/mine")
    await remote.reconnect(store)
    await events.until(EXPIRED)
    await events.until(CONNECTED)
    with pytest.raises(SessionExpired):
        await waiting
    await store.create("/mine", None, ephemeral=True)


async def test_close_ends_the_waiting(remote: RemoteBackend, recorder: type[Recorder]) -> None:
    store = await remote.open(timeout_ms=10_000)
    events = recorder()
    store.on_session(events)
    await remote.disconnect(store)
    await events.until(DISCONNECTED)
    waiting = asyncio.create_task(store.get("/"))
    await asyncio.sleep(0)
    await store.close()
    with pytest.raises(ConnectionLost):
        await waiting
