"""What goes wrong around a store, and what it says about it."""

import asyncio
import contextlib
import errno
import logging
import os
import shutil
import signal
import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.store.conftest import Recorder, Spawn

from odradek.store import kazoo_bridge, open_store, sqlite_tree, zookeeper
from odradek.store.api import (
    AuthenticationFailed,
    ConnectionLost,
    Create,
    EventKind,
    SessionExpired,
    Set,
    StoreLogin,
    StoreUnavailable,
    WatchEvent,
)
from odradek.store.sqlite import SqliteStore
from odradek.store.sqlite_tree import SqliteTree


@pytest.mark.parametrize("url", ["", "sqlite:", "redis://h:1", "zookeeper:", "/just/a/path"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(ValueError, match="not the address of a store"):
        open_store(url)


async def logged(text: str) -> None:
    """Waits for a line in the store's log."""
    seen = asyncio.Event()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if text in record.getMessage():
                seen.set()

    handler = Handler()
    logging.getLogger("odradek.store").addHandler(handler)
    try:
        await seen.wait()
    finally:
        logging.getLogger("odradek.store").removeHandler(handler)


class TestSqlite:
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[SqliteStore]:
        store = SqliteStore(tmp_path / "m.db", session_timeout_ms=300)
        await store.start()
        await store.create("/a", b"0")
        yield store
        await store.close()

    async def test_a_file_that_is_no_database(self, tmp_path: Path) -> None:
        (tmp_path / "m.db").write_text("this is no database, it only looks like a file" * 100)
        with pytest.raises(StoreUnavailable, match="damaged or no store") as error:
            await SqliteStore(tmp_path / "m.db").start()
        assert str(tmp_path / "m.db") in str(error.value)

    @pytest.mark.parametrize("replaced", [False, True])
    async def test_a_file_that_was_deleted_or_replaced_takes_no_more_writes(
        self, store: SqliteStore, tmp_path: Path, caplog: pytest.LogCaptureFixture, replaced: bool
    ) -> None:
        (tmp_path / "m.db").rename(tmp_path / "moved")
        if replaced:
            shutil.copy(tmp_path / "moved", tmp_path / "m.db")
        for operation in (
            store.set("/a", b"1"),
            store.get("/a"),
            store.create("/b", None, ephemeral=True),
        ):
            with pytest.raises(StoreUnavailable, match="deleted or replaced while it was in use"):
                await operation
        # A session that only waits notices too, and says so once.
        await logged("deleted or replaced")
        (tmp_path / "m.db").unlink(missing_ok=True)
        (tmp_path / "moved").rename(tmp_path / "m.db")
        await logged("in its place again")
        assert (await store.get("/a"))[0] == b"0"
        await store.set("/a", b"1")
        assert caplog.text.count("deleted or replaced") == 1

    async def test_a_store_of_another_version(self, tmp_path: Path) -> None:
        with sqlite3.connect(tmp_path / "m.db") as other:
            other.execute("PRAGMA user_version = 99")
        other.close()
        with pytest.raises(StoreUnavailable, match="version 99"):
            await SqliteStore(tmp_path / "m.db").start()

    async def test_a_directory_that_cannot_be(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(StoreUnavailable, match="directory"):
            await SqliteStore(tmp_path / "file" / "m.db").start()

    async def test_a_full_disk_is_said_and_survived(self, store: SqliteStore) -> None:
        store._tree._sql.execute("PRAGMA max_page_count = 1")
        with pytest.raises(StoreUnavailable, match="the disk is full"):
            await store.multi([Set("/a", b"1"), Create("/b", bytes(10_000_000))])
        assert (await store.get("/a"))[0] == b"0"
        assert await store.exists("/b") is None
        store._tree._sql.execute("PRAGMA max_page_count = 1000000")
        assert (await store.set("/a", b"2")).version == 1

    async def test_a_short_lock_is_waited_for(self, store: SqliteStore, tmp_path: Path) -> None:
        other = sqlite3.connect(tmp_path / "m.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        writing = asyncio.create_task(store.set("/a", b"1"))
        reading = asyncio.create_task(store.get("/a"))
        for _ in range(3):
            await asyncio.sleep(0.001)
            assert not writing.done()
        other.execute("COMMIT")
        other.close()
        await writing
        assert (await reading)[0] == b"1", "operations happen in the order they were asked for"

    async def test_a_long_lock_is_reported(self, store: SqliteStore, tmp_path: Path) -> None:
        other = sqlite3.connect(tmp_path / "m.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match=r"locked for 0\.3 s; find the process"):
            await store.set("/a", b"1")
        assert (await store.get("/a"))[0] == b"0", "reading goes on"
        other.execute("COMMIT")
        other.close()
        await store.set("/a", b"1")

    @pytest.mark.process
    async def test_a_stopped_process_is_suspected_by_its_number(
        self, store: SqliteStore, tmp_path: Path, spawn: Spawn
    ) -> None:
        child = await spawn(f"sqlite:{tmp_path / 'm.db'}", 20_000)
        child.signal(signal.SIGSTOP)
        other = sqlite3.connect(tmp_path / "m.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        expected = f"process {child.pid} seems stopped and may hold it: resume or end it"
        with pytest.raises(StoreUnavailable, match=expected):
            await store.set("/a", b"1")
        other.close()

    async def test_changes_that_were_pruned_unseen_are_reported(
        self,
        store: SqliteStore,
        tmp_path: Path,
        recorder: type[Recorder],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(sqlite_tree, "CHANGES_KEPT", 10)
        monkeypatch.setattr(sqlite_tree, "CHANGES_PRUNED_EVERY", 5)
        deaf = SqliteStore(tmp_path / "m.db", session_timeout_ms=60_000)
        await deaf.start()
        await store.create("/b", None)
        await store.create("/c", None)
        changed, created, gone, children, nothing = (recorder() for _ in range(5))
        await deaf.get("/a", changed)
        await deaf.exists("/new", created)
        await deaf.get("/b", gone)
        await deaf.children("/c", children)
        await deaf.get("/c", nothing)
        assert deaf._presence is not None
        asyncio.get_running_loop().remove_reader(deaf._presence.bell)
        await store.set("/a", b"1")
        await store.create("/new", None)
        await store.delete("/b")
        await store.create("/c/d", None)
        await store.create("/noise", None)
        for number in range(50):
            await store.set("/noise", b"%d" % number)
        assert (await deaf.get("/noise"))[0] == b"49"
        assert changed.seen == [WatchEvent(EventKind.CHANGED, "/a")]
        assert created.seen == [WatchEvent(EventKind.CREATED, "/new")]
        assert gone.seen == [WatchEvent(EventKind.DELETED, "/b")]
        assert children.seen == [WatchEvent(EventKind.CHILDREN, "/c")]
        assert nothing.seen == []
        await deaf.close()

    async def test_the_log_of_changes_stays_small(
        self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sqlite_tree, "CHANGES_KEPT", 100)
        monkeypatch.setattr(sqlite_tree, "CHANGES_PRUNED_EVERY", 10)
        await store.multi_many([Set("/a", b"%d" % number)] for number in range(1000))
        (kept,) = store._tree._sql.execute("SELECT COUNT(*) FROM changes").fetchone()
        assert 100 <= kept <= 310

    async def test_a_session_killed_before_its_commit_blocks_no_other(
        self, store: SqliteStore, tmp_path: Path
    ) -> None:
        theirs = range(store.session_id + 1, store.session_id + 9)
        for number in theirs:
            os.mkfifo(tmp_path / "m.db.sessions" / f"{number}.bell")
            (tmp_path / "m.db.sessions" / f"{number}.lock").touch()
        other = SqliteStore(tmp_path / "m.db", session_timeout_ms=300)
        await other.start()
        assert other.session_id in theirs
        await other.set("/a", b"1")
        assert (await store.get("/a"))[0] == b"1"
        await other.close()

    async def test_a_process_out_of_descriptors_declares_no_other_dead(
        self, store: SqliteStore, tmp_path: Path, spawn: Spawn, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        really_open, refused = os.open, []

        def out_of_descriptors(path: object, flags: int, *more: int) -> int:
            if str(path).endswith((".lock", ".bell")):
                refused.append(path)
                raise OSError(errno.EMFILE, "too many open files")
            return really_open(path, flags, *more)  # type: ignore[arg-type]

        monkeypatch.setattr("odradek.store.sqlite_peers.os.open", out_of_descriptors)
        child = await spawn(f"sqlite:{tmp_path / 'm.db'}", 20_000)
        assert await child.ask("create /theirs ephemeral") == "/theirs"
        looks = {store._looked_at}
        while not refused or len(looks) < 4:
            looks.add(store._looked_at)
            await asyncio.sleep(0.01)
        assert await store.exists("/theirs") is not None
        monkeypatch.undo()
        (peer,) = store._peers
        while peer.bell is None:  # noqa: ASYNC110  # looks
            await asyncio.sleep(0.01)
        child.signal(signal.SIGKILL)  # and from now on it is known as any other
        while store._peers:  # noqa: ASYNC110  # looks
            await asyncio.sleep(0.01)
        assert await store.exists("/theirs") is None

    async def test_the_end_of_a_peer_between_two_sessions_of_ours_fires_nothing(
        self, store: SqliteStore, tmp_path: Path
    ) -> None:
        other = SqliteStore(tmp_path / "m.db", session_timeout_ms=20_000)
        await other.start()
        store._catch_up()
        (peer,) = store._peers
        lost, store._session = store._session, None
        await store._end(peer, "died")
        assert store._sessions is None
        store._session = lost
        await other.close()

    async def test_who_dies_while_the_disk_is_full_is_ended_when_there_is_room(
        self, store: SqliteStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = SqliteStore(tmp_path / "m.db", session_timeout_ms=20_000)
        await other.start()
        await other.create("/theirs", None, ephemeral=True)
        store._catch_up()
        (peer,) = store._peers
        writing = store._tree.writing

        @contextlib.contextmanager
        def full() -> Iterator[None]:
            with writing():
                yield
                raise sqlite3.OperationalError("database or disk is full")

        monkeypatch.setattr(store._tree, "writing", full)
        await store._end(peer, "died")
        store._catch_up()
        assert list(store._peers) == [peer]
        monkeypatch.undo()
        await store._end(peer, "died")
        assert await store.exists("/theirs") is None
        await other.close()

    async def test_what_waits_for_the_lock_does_not_outlive_its_session(
        self, store: SqliteStore, tmp_path: Path
    ) -> None:
        lock = sqlite3.connect(tmp_path / "m.db", isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        creating = asyncio.create_task(store.create("/mine", None, ephemeral=True))
        while not store.statistics()["lock_waits"]:  # noqa: ASYNC110  # looks
            await asyncio.sleep(0.001)
        lock.execute("COMMIT")
        lock.close()
        other = SqliteTree(tmp_path / "m.db")  # whoever ends sessions that were silent too long
        with other.writing():
            other.end_session(store.session_id)
        other.close()
        store._catch_up()
        with pytest.raises(SessionExpired):
            await creating
        assert await store.exists("/mine") is None

    async def test_looking_for_changes_is_retried_by_one_at_a_time(
        self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken() -> contextlib.AbstractContextManager[None]:
            raise sqlite3.OperationalError("disk I/O error")

        monkeypatch.setattr(store._tree, "reading", broken)
        for _ in range(5):
            store._catch_up()
        retry = store._catching_up
        assert retry is not None
        assert [h for h in store._loop._scheduled if "_catch_up" in repr(h)] == [retry]  # type: ignore[attr-defined]
        monkeypatch.undo()
        while store._catching_up is not None:  # noqa: ASYNC110  # looks
            await asyncio.sleep(0.01)

    async def test_a_crowd_that_died_together_is_cleared_by_the_next(self, tmp_path: Path) -> None:
        """No session closed in order: what they left behind goes with the first who comes."""
        dead = SqliteStore(tmp_path / "m.db")
        await dead.start()
        await dead.create("/mine", None, ephemeral=True)
        presence, dead._presence = dead._presence, None
        assert presence is not None and dead._timer is not None
        asyncio.get_running_loop().remove_reader(presence.bell)
        dead._timer.cancel()
        presence.close()
        dead._tree.close()
        late = SqliteStore(tmp_path / "m.db")
        await late.start()
        assert await late.exists("/mine") is None
        assert late.statistics()["peers"] == 0
        await late.close()
        assert list((tmp_path / "m.db.sessions").iterdir()) == []


@pytest.mark.process
class TestZooKeeper:
    async def test_an_unreachable_ensemble_is_logged_once_until_the_store_is_closed(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(zookeeper, "COMPLAIN_AFTER_S", 0.05)
        monkeypatch.setattr(zookeeper, "RETRY_DELAY_S", 0.01)
        store = open_store("zookeeper://127.0.0.1:1,127.0.0.1:2/c", session_timeout_ms=1000)

        assert isinstance(store, zookeeper.ZooKeeperStore)

        def warnings() -> list[str]:
            return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]

        with caplog.at_level(logging.DEBUG):
            starting = asyncio.create_task(store.start())
            while not warnings():  # noqa: ASYNC110  # looks
                await asyncio.sleep(0.005)
            for _ in range(3):  # attempts that fail, and of which nothing more is said
                store._last_warning.text = ""
                while not store._last_warning.text:  # noqa: ASYNC110  # looks
                    await asyncio.sleep(0.005)
            assert not starting.done()
            await store.close()
        with pytest.raises(ConnectionLost):
            await starting
        (line,) = warnings()
        assert line.startswith("cannot reach ZooKeeper at 127.0.0.1:1,127.0.0.1:2 (")
        assert "refused" in line

    async def test_credentials_guard_what_their_owner_created(self, zookeeper_address: str) -> None:
        url = f"zookeeper://{zookeeper_address}/guarded"
        alice = open_store(url, authentication=[StoreLogin("digest", "alice:secret")], set_acl=True)
        stranger = open_store(url)
        await alice.start()
        await stranger.start()
        for path in ("/controller", "/config", "/config/users", "/consumers"):
            await alice.create(path, b"0")
        await alice.create("/config/users/bob", b"0")
        assert (await stranger.get("/controller"))[0] == b"0"
        with pytest.raises(AuthenticationFailed):
            await stranger.set("/controller", b"1")
        with pytest.raises(AuthenticationFailed) as refused:
            await stranger.get("/config/users/bob")
        assert refused.value.path == "/config/users/bob"
        await stranger.set("/consumers", b"1")
        assert (await alice.get("/config/users/bob"))[0] == b"0"
        await alice.set("/controller", b"2")
        await alice.close()
        await stranger.close()

    async def test_a_server_that_cannot_read_in_bulk_is_asked_one_by_one(
        self, zookeeper_address: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(kazoo_bridge.MultiRead, "type", 99)
        store = open_store(f"zookeeper://{zookeeper_address}/old")
        await store.start()
        await store.create("/a", b"1")
        for _ in range(2):
            nodes = await store.get_many(["/a", "/no"] * 100)
            assert [node and node[0] for node in nodes] == [b"1", None] * 100
        await store.close()

    async def test_the_chroot_and_its_parents_are_null(self, zookeeper_address: str) -> None:
        store = open_store(f"zookeeper://{zookeeper_address}/deep/er/still")
        await store.start()
        await store.create("/a", b"x")
        await store.close()
        above = open_store(f"zookeeper://{zookeeper_address}/")
        await above.start()
        nodes = await above.get_many(["/deep", "/deep/er", "/deep/er/still", "/deep/er/still/a"])
        assert [node and node[0] for node in nodes] == [None, None, None, b"x"]
        await above.close()
