"""Watches: one event each, never lost, and never after its session could read the change."""

import asyncio

import pytest
from tests.store.conftest import Backend, Recorder

from odradek.store.api import Create, Delete, EventKind, NoNode, Set, Store, WatchEvent

CREATED, DELETED, CHANGED, CHILDREN = (
    EventKind.CREATED,
    EventKind.DELETED,
    EventKind.CHANGED,
    EventKind.CHILDREN,
)


@pytest.fixture
async def other(backend: Backend) -> Store:
    """The session that changes things."""
    return await backend.open()


async def flush(store: Store) -> None:
    """When this answers, every event of what happened before was delivered."""
    await store.create("/flush", None, sequential=True)


async def synced(watcher: Store, writer: Store, tell: type[Recorder]) -> None:
    """When this returns, the watcher has had the events of all that the writer did so far."""
    path = await writer.create("/synced-", None, sequential=True)
    watch = tell()
    if (await watcher.exists(path, watch)) is None:
        await watch.next()


async def test_a_watch_fires_once(store: Store, other: Store, recorder: type[Recorder]) -> None:
    await store.create("/a", b"0")
    seen = recorder()
    await store.get("/a", seen)
    await other.set("/a", b"1")
    assert await seen.next() == WatchEvent(CHANGED, "/a")
    await other.set("/a", b"2")
    await other.delete("/a")
    await synced(store, other, recorder)
    assert len(seen.seen) == 1


async def test_a_deletion_fires_every_watch_on_the_node(
    store: Store, other: Store, recorder: type[Recorder]
) -> None:
    await store.create("/a", None)
    data, there, children, parent = (recorder() for _ in range(4))
    await store.get("/a", data)
    await store.exists("/a", there)
    await store.children("/a", children)
    await store.children("/", parent)
    await other.delete("/a")
    for seen in (data, there, children):
        assert await seen.next() == WatchEvent(DELETED, "/a")
    assert await parent.next() == WatchEvent(CHILDREN, "/")


async def test_a_creation_fires_the_watch_on_a_missing_node(
    store: Store, other: Store, recorder: type[Recorder]
) -> None:
    seen, parent = recorder(), recorder()
    assert await store.exists("/a", seen) is None
    await store.children("/", parent)
    await other.create("/a", None)
    assert await seen.next() == WatchEvent(CREATED, "/a")
    assert await parent.next() == WatchEvent(CHILDREN, "/")


async def test_children_are_not_data(store: Store, other: Store, recorder: type[Recorder]) -> None:
    await store.create("/a", None)
    await store.create("/a/b", None)
    data, children = recorder(), recorder()
    await store.get("/a", data)
    await store.children("/a", children)
    await other.set("/a/b", b"")
    await other.create("/a/b/deep", None)
    await synced(store, other, recorder)
    assert data.seen == [] and children.seen == []
    await other.create("/a/c", None)
    assert await children.next() == WatchEvent(CHILDREN, "/a")
    await other.set("/a", b"")
    assert await data.next() == WatchEvent(CHANGED, "/a")


async def test_one_callback_left_twice_is_called_once(
    store: Store, other: Store, recorder: type[Recorder]
) -> None:
    await store.create("/a", None)
    seen = recorder()
    for _ in range(2):
        await store.get("/a", seen)
        await store.exists("/a", seen)
        await store.children("/a", seen)
    await other.delete("/a")
    await seen.next()
    await synced(store, other, recorder)
    assert seen.seen == [WatchEvent(DELETED, "/a")]


async def test_a_failed_read_leaves_no_watch(
    store: Store, other: Store, recorder: type[Recorder]
) -> None:
    seen = recorder()
    with pytest.raises(NoNode):
        await store.get("/a", seen)
    with pytest.raises(NoNode):
        await store.children("/a", seen)
    await other.create("/a", None)
    await other.set("/a", b"")
    await synced(store, other, recorder)
    assert seen.seen == []


async def test_a_change_made_before_the_read_fires_no_watch(
    store: Store, other: Store, recorder: type[Recorder]
) -> None:
    """A change made before the read that left the watch is no news to it."""
    await store.create("/a", b"0")
    for number in range(20):
        await other.set("/a", b"%d" % number)
        seen = recorder()
        _, stat = await store.get("/a", seen)
        if stat.version == number + 1:
            await synced(store, other, recorder)
            assert seen.seen == []
        else:  # an ensemble may answer from the past, but then it owes us the event
            await seen.next()


async def test_watches_on_own_writes_fire_before_the_write_returns(
    store: Store, recorder: type[Recorder]
) -> None:
    await store.create("/a", b"")
    seen = recorder()
    await store.get("/a", seen)
    await store.set("/a", b"1")
    assert seen.seen == [WatchEvent(CHANGED, "/a")]


async def test_no_value_is_read_before_its_watch_fires(
    store: Store, other: Store, recorder: type[Recorder]
) -> None:
    await store.create("/a", b"0")

    async def write() -> None:
        for number in range(1, 200):
            await other.set("/a", b"%d" % number)

    writing = asyncio.create_task(write())
    last = -1
    while last < 199:
        seen = recorder()
        _, left = await store.get("/a", seen)
        while not seen.seen and left.version < 199:
            _, stat = await store.get("/a")
            assert stat.version == left.version or seen.seen, "read a change before its event"
            await asyncio.sleep(0)
        last = left.version
    await writing


async def test_events_come_in_the_order_of_the_changes(
    store: Store, other: Store, recorder: type[Recorder]
) -> None:
    await store.create("/p", None)
    paths = [f"/p/{number}" for number in range(10)]
    order = recorder()
    for path in reversed(paths):
        await store.exists(path, order)
    for path in paths[:5]:
        await other.create(path, None)
    await other.multi([Create(path, None) for path in paths[5:]])
    assert [await order.next_path() for _ in paths] == paths


async def test_a_multi_tells_what_each_operation_did(
    store: Store, other: Store, recorder: type[Recorder]
) -> None:
    await store.create("/a", None)
    await store.create("/b", None)
    order = recorder()
    await store.get("/a", order)
    await store.get("/b", order)
    await store.exists("/c", order)
    await other.multi([Set("/b", b""), Create("/c", None), Delete("/a")])
    assert [await order.next() for _ in range(3)] == [
        WatchEvent(CHANGED, "/b"),
        WatchEvent(CREATED, "/c"),
        WatchEvent(DELETED, "/a"),
    ]


async def test_a_multi_that_fails_tells_nothing(
    store: Store, other: Store, recorder: type[Recorder]
) -> None:
    await store.create("/a", None)
    seen = recorder()
    await store.get("/a", seen)
    with pytest.raises(NoNode):
        await other.multi([Set("/a", b""), Delete("/no")])
    await synced(store, other, recorder)
    assert seen.seen == []


async def test_many_reads_leave_a_watch_on_each_node_there_is(
    store: Store, other: Store, recorder: type[Recorder]
) -> None:
    for name in "abc":
        await store.create(f"/{name}", None)
    seen = recorder()
    await store.get_many(["/a", "/b", "/missing", "/c"], seen)
    await other.create("/missing", None)
    for name in "abc":
        await other.set(f"/{name}", b"")
    assert [await seen.next_path() for _ in range(3)] == ["/a", "/b", "/c"]


async def test_a_watch_can_be_taken_back(
    store: Store, other: Store, recorder: type[Recorder]
) -> None:
    await store.create("/a", None)
    gone, stays = recorder(), recorder()
    for watch in (gone, stays):
        await store.get("/a", watch)
        await store.children("/a", watch)
    store.unwatch(gone)
    await other.set("/a", b"")
    await stays.next()
    await other.create("/a/b", None)
    await stays.next()
    assert gone.seen == []
    await store.get("/a", gone)
    await other.set("/a", b"1")
    await gone.next()


async def test_a_watch_that_fails_does_not_silence_the_others(
    store: Store, other: Store, recorder: type[Recorder]
) -> None:
    await store.create("/a", None)
    seen = recorder()

    def broken(_: WatchEvent) -> None:
        raise RuntimeError("a mistake of the watcher's")

    await store.get("/a", broken)
    await store.get("/a", seen)
    await other.set("/a", b"")
    await seen.next()


async def test_a_follower_who_only_watches_ends_with_the_last_value(
    store: Store, other: Store, recorder: type[Recorder]
) -> None:
    """The loop every user of watches writes: read, wait, read again. Nothing may be lost in it."""
    await store.create("/a", b"0")

    async def follow() -> bytes:
        while True:
            seen = recorder()
            data, _ = await store.get("/a", seen)
            if data == b"end":
                return data
            await seen.next()

    following = asyncio.create_task(follow())
    for number in range(100):
        await other.set("/a", b"%d" % number)
    await other.set("/a", b"end")
    assert await asyncio.wait_for(following, 60) == b"end"
