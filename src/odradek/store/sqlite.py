"""The store in one SQLite file, shared by all brokers of one machine, each in its own process.

An operation is one short SQLite transaction on the loop. Every transaction first notes what others
changed (``sqlite_tree``), and the watches fire before the operation returns.
A session that only waits is woken by its bell (``sqlite_peers``); once in a while it looks for
itself, in case a writer was stopped between its commit and the ring.

A process that dies releases its lock and its bell: the session that notices ends the dead one, in
one transaction. A process that is frozen stops beating its heart and loses its session at the
time-out; it finds that out with the first transaction after it wakes.

The file may be deleted or replaced while brokers run. Every operation checks that the path still
leads to the file that is open, and fails with StoreUnavailable if it does not: a write into an
unlinked file would succeed and be lost at the next start. Every broker logs an error until the file
is back.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

from odradek.store.api import (
    DEFAULT_SESSION_TIMEOUT_MS,
    ConnectionLost,
    EventKind,
    Node,
    NoNode,
    Operation,
    Result,
    SessionEvent,
    SessionExpired,
    SessionListener,
    SingleWrites,
    Stat,
    StoreError,
    StoreUnavailable,
    Watch,
    WatchEvent,
    parent_of,
    wall_clock_ms,
)
from odradek.store.sqlite_peers import OtherSessions, Peer, Presence
from odradek.store.sqlite_tree import (
    CREATED,
    DELETED,
    EVENT_KINDS,
    SESSION_KINDS,
    Change,
    Session,
    SqliteTree,
)
from odradek.store.watches import Seen, SessionListeners, WatchTable, missed

FILE_MODE, DIRECTORY_MODE, OTHERS = 0o600, 0o700, 0o077

logger = logging.getLogger(__name__)
T = TypeVar("T")

LOOK_INTERVAL_MAX = 1.0
LOOKS_PER_TIMEOUT = 10
COMPLAINT_INTERVAL_S = 30.0
LOCK_PAUSE_MIN, LOCK_PAUSE_MAX = 0.0005, 0.01
READS_PER_TURN = 1000
MULTIS_PER_TURN = 100

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


class SqliteStore(SingleWrites):
    """One session with the store in a file."""

    def __init__(
        self,
        path: str | Path,
        *,
        session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS,
        clock: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._path = Path(path)
        self._directory = Path(f"{path}.sessions")
        self._timeout_ms = session_timeout_ms
        self._clock = clock
        self._look_interval = min(LOOK_INTERVAL_MAX, session_timeout_ms / 1000 / LOOKS_PER_TIMEOUT)
        self._watches = WatchTable()
        self._listeners = SessionListeners()
        self._peers = OtherSessions(self._directory, self._spawn_end)
        self._events: list[WatchEvent] = []  # noted, to be delivered
        self._sessions: list[Session] | None = None  # noted, if they changed
        self._session: Session | None = None
        self._presence: Presence | None = None
        self._connected = asyncio.Event()  # also set by close, so that no caller waits for ever
        self._closed = False
        self._turn = asyncio.Lock()  # operations happen in the order they were asked for
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._catching_up: asyncio.TimerHandle | None = None
        self._looked_at = 0.0
        self._complained_at: float | None = None
        self._operations = self._lock_waits = self._rung = 0

    # The interface

    @property
    def session_id(self) -> int:
        return self._session.id if self._session is not None else 0

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            self._path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            self._make_private()
        except OSError as error:
            raise StoreUnavailable(
                str(self._path), f"cannot make its directory: {error}"
            ) from error
        self._tree = await self._when_free(lambda: SqliteTree(self._path))
        await self._open_session()
        self._looked_at = self._loop.time()
        self._timer = self._loop.call_later(self._look_interval, self._look)

    def _make_private(self) -> None:
        """Credentials are in the file: its owner's from the first byte on. SQLite gives the files
        beside it the same mode."""
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, FILE_MODE))
        if os.stat(self._path).st_mode & OTHERS:
            logger.warning(
                "other users can read %s, in which credentials are kept: chmod 600", self._path
            )

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        async with self._turn:
            session, self._session = self._session, None
            if session is not None:
                try:
                    await self._when_free(lambda: self._end_in_file(session.id))
                except StoreUnavailable as error:
                    logger.warning("cannot close the session, other brokers will end it: %s", error)
                self._peers.ring()
            self._leave_peers()
            self._connected.set()
            if hasattr(self, "_tree"):
                self._tree.close()

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        return await self._write(
            lambda session: self._tree.apply(operations, session, self._clock())
        )

    async def multi_many(
        self, multis: Iterable[Sequence[Operation]]
    ) -> list[list[Result] | StoreError]:
        results: list[list[Result] | StoreError] = []
        rest = iter(multis)
        while batch := list(islice(rest, MULTIS_PER_TURN)):
            results += await self._write(partial(self._apply, batch))
            await asyncio.sleep(0)
        return results

    def _apply(
        self, multis: list[Sequence[Operation]], session: int
    ) -> list[list[Result] | StoreError]:
        """Many multis in one commit; one that fails leaves the others be."""
        results: list[list[Result] | StoreError] = []
        now_ms = self._clock()
        for operations in multis:
            try:
                results.append(self._tree.apply(operations, session, now_ms))
            except StoreError as error:
                results.append(error)
        return results

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        return await self._ask(
            SqliteTree.reading,
            lambda _: self._tree.get(path),
            lambda _: self._leave(Seen.DATA, path, watch),
        )

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        nodes: list[Node | None] = []
        for start in range(0, len(paths), READS_PER_TURN):
            some = paths[start : start + READS_PER_TURN]
            nodes += await self._ask(
                SqliteTree.reading,
                partial(self._get_some, some),
                partial(self._leave_some, some, watch),
            )
            await asyncio.sleep(0)
        return nodes

    def _get_some(self, paths: Sequence[str], _: int) -> list[Node | None]:
        nodes: list[Node | None] = []
        for path in paths:
            try:
                nodes.append(self._tree.get(path))
            except NoNode:
                nodes.append(None)
        return nodes

    def _leave_some(
        self, paths: Sequence[str], watch: Watch | None, nodes: Sequence[Node | None]
    ) -> None:
        for path, node in zip(paths, nodes, strict=True):
            if node is not None:
                self._leave(Seen.DATA, path, watch)

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return await self._ask(
            SqliteTree.reading,
            lambda _: self._tree.exists(path),
            lambda stat: self._leave(Seen.ABSENCE if stat is None else Seen.DATA, path, watch),
        )

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return await self._ask(
            SqliteTree.reading,
            lambda _: self._tree.children(path),
            lambda _: self._leave(Seen.CHILDREN, path, watch),
        )

    def unwatch(self, watch: Watch) -> None:
        self._watches.forget(watch)

    def on_session(self, listener: SessionListener) -> None:
        self._listeners.add(listener)

    def statistics(self) -> Mapping[str, int | float]:
        return {
            "session": self.session_id,
            "connected": int(self._connected.is_set() and not self._closed),
            "watches": len(self._watches),
            "operations": self._operations,
            "peers": len(self._peers),
            "lock_waits": self._lock_waits,
            "rung": self._rung,
        }

    # Operations

    async def _write(self, action: Callable[[int], T]) -> T:
        return await self._ask(SqliteTree.writing, action, lambda _: self._peers.ring())

    async def _ask(
        self,
        transaction: Callable[[SqliteTree], AbstractContextManager[None]],
        action: Callable[[int], T],
        then: Callable[[T], None],
    ) -> T:
        """Act for our session inside a transaction; report what it learnt; then the last step.

        A watch is left in the last step, after the reports: the read that left it saw all that.
        """
        self._operations += 1
        session = await self._until_connected()

        def attempt() -> T:
            self._check_in_place()
            with transaction(self._tree):
                self._note()
                # It may have ended while we waited for the lock.
                if session != self.session_id or self._over():
                    raise SessionExpired("", f"session {session} is over")
                return action(session)

        async with self._turn:
            if session != self.session_id:
                raise SessionExpired("", f"session {session} is over")
            try:
                result = await self._when_free(attempt)
            finally:
                self._tell()
            then(result)
            return result

    async def _until_connected(self) -> int:
        while not self._closed:
            await self._connected.wait()
            if self._session is not None:
                return self._session.id
        raise ConnectionLost("", "the store is closed")

    async def _when_free(self, action: Callable[[], T]) -> T:
        """Do it as soon as no other process is writing. The loop is not blocked."""
        pause, waited = LOCK_PAUSE_MIN, 0.0
        while True:
            try:
                return action()
            except sqlite3.Error as error:
                if not _is_busy(error):
                    raise unavailable(self._path, error) from error
            except OSError as error:
                raise StoreUnavailable(str(self._path), f"{self._path}: {error}") from error
            if waited > self._timeout_ms / 1000:
                raise StoreUnavailable(str(self._path), self._who_locks())
            self._lock_waits += 1
            await asyncio.sleep(pause)
            waited += pause
            pause = min(pause * 2, LOCK_PAUSE_MAX)

    def _check_in_place(self) -> None:
        """A file that was deleted or replaced still takes writes here, and no later start sees
        them: nothing may be read from it or written to it any more."""
        if not self._tree.is_in_place:
            raise StoreUnavailable(
                str(self._path),
                f"{self._path} was deleted or replaced while it was in use: stop all brokers, put"
                " the file back or restore a backup (odradek store restore), and start them again",
            )

    def _who_locks(self) -> str:
        seconds = self._timeout_ms / 1000
        frozen = [
            str(peer.process) for peer in self._peers if peer.silent > self._look_interval * 2
        ]
        advice = (
            f"process {', '.join(frozen)} seems stopped and may hold it: resume or end it"
            if frozen
            else f"find the process that holds it (fuser {self._path}) and end it"
        )
        return f"{self._path} has been locked for {seconds:g} s; {advice}"

    def _leave(self, seen: Seen, path: str, watch: Watch | None) -> None:
        if watch is not None:
            self._watches.leave(seen, path, watch)

    # News

    def _note(self) -> None:
        """Keep what others changed, to report it; inside the transaction that saw it."""
        changes = self._tree.take_news()
        gap_since = self._tree.take_gap()
        if gap_since is None:
            self._events += events_of(changes)
        else:
            for seen, path in self._watches.waiting():
                event = missed(seen, path, self._tree.marks(path), gap_since)
                if event is not None:
                    self._events.append(event)
        if gap_since is not None or any(change.kind in SESSION_KINDS for change in changes):
            self._sessions = self._tree.sessions()

    def _over(self) -> bool:
        """Whether our session was seen to be over."""
        return self._sessions is not None and self.session_id not in (
            session.id for session in self._sessions
        )

    def _tell(self) -> None:
        """Report what was noted: sessions first, for without ours there is no watch to call."""
        self._events += events_of(self._tree.take_news())
        events, self._events = self._events, []
        if self._session is None:
            # Between two sessions there is no watch to notify: another's was ended meanwhile.
            self._sessions = None
            return
        if self._over():
            self._lose_session()
            return
        if self._sessions is not None:
            self._peers.meet(self._sessions, self.session_id)
            self._sessions = None
        for event in events:
            self._watches.fire(event)

    def _on_bell(self, presence: Presence) -> None:
        presence.silence()
        self._rung += 1
        self._catch_up()

    def _catch_up(self) -> None:
        """Look for what others changed."""
        if self._session is None:
            return
        try:
            with self._tree.reading():
                self._note()
        except sqlite3.Error as error:
            # A lock lasts a moment. Anything worse, the next operation meets and reports.
            logger.debug("could not look for changes: %s", error)
            if self._catching_up is None:
                self._catching_up = self._loop.call_later(LOCK_PAUSE_MAX, self._catch_up_again)
        self._tell()

    def _catch_up_again(self) -> None:
        self._catching_up = None
        self._catch_up()

    # Sessions

    async def _open_session(self) -> None:
        session, presence = await self._when_free(self._open_in_file)
        self._session, self._presence = session, presence
        self._loop.add_reader(presence.bell, self._on_bell, presence)
        self._tell()
        self._peers.ring()
        self._connected.set()
        self._listeners.notify(SessionEvent.CONNECTED)

    def _open_in_file(self) -> tuple[Session, Presence]:
        """A new session; those that died unnoticed are ended in the same transaction."""
        presence: Presence | None = None
        self._check_in_place()
        try:
            with self._tree.writing():
                for other in self._tree.sessions():
                    peer = self._peers.of(other)
                    if peer.dead():
                        self._tree.end_session(other.id)
                        peer.bury()
                    peer.close()
                session = self._tree.open_session(self._timeout_ms, os.getpid())
                self._sessions = self._tree.sessions()
                # Within the transaction: no session is visible before it holds its lock.
                presence = Presence(self._directory, session.id)
        except OSError as error:
            raise StoreUnavailable(str(self._directory), f"no session: {error}") from error
        except BaseException:
            if presence is not None:
                presence.close()
            raise
        return session, presence

    def _lose_session(self) -> None:
        """Our session is over: we were silent too long. Say so, and open another."""
        session, self._session = self._session, None
        assert session is not None
        logger.warning("session %d expired: this process did not run for a while", session.id)
        self._connected.clear()
        self._sessions = None
        self._watches.clear()
        self._leave_peers()
        self._listeners.notify(SessionEvent.EXPIRED)
        self._spawn(self._reopen_session())

    async def _reopen_session(self) -> None:
        while True:
            try:
                await self._open_session()
                return
            except StoreUnavailable as error:
                logger.error("cannot open a new session, retrying: %s", error)
            await asyncio.sleep(self._look_interval)

    async def _end(self, peer: Peer, why: str) -> None:
        """End another's session, and remove what it left."""
        async with self._turn:
            try:
                ended = await self._when_free(partial(self._end_in_file, peer.id))
            except StoreUnavailable as error:
                logger.warning("session %d %s, but cannot be ended: %s", peer.id, why, error)
                peer.ending = False
                return
            self._tell()
            self._peers.ring()
            peer.bury()
        if ended:
            logger.info("ended session %d: its process %d %s", peer.id, peer.process, why)

    def _end_in_file(self, session_id: int) -> bool:
        self._check_in_place()
        with self._tree.writing():
            self._note()
            ended = self._tree.end_session(session_id)
            sessions = self._tree.sessions()
        # Not before it is committed: who dies while the disk is full is still there.
        self._sessions = sessions
        return ended

    def _leave_peers(self) -> None:
        self._peers.leave_all()
        if self._presence is not None:
            self._loop.remove_reader(self._presence.bell)
            self._presence.close()
            self._presence = None

    def _look(self) -> None:
        """Once in a while: beat the heart, look at the others', look for changes."""
        now = self._loop.time()
        passed = min(now - self._looked_at, 2 * self._look_interval)
        self._looked_at = now
        self._timer = self._loop.call_later(self._look_interval, self._look)
        if self._presence is not None:
            self._presence.beat()
        self._peers.look(passed)
        if self._is_in_place(now):
            self._catch_up()

    def _is_in_place(self, now: float) -> bool:
        """Whether the file is still the one that is open; if not, that is logged now and then."""
        try:
            self._check_in_place()
        except StoreUnavailable as error:
            if self._complained_at is None or now - self._complained_at >= COMPLAINT_INTERVAL_S:
                self._complained_at = now
                logger.error("%s", error)
            return False
        if self._complained_at is not None:
            self._complained_at = None
            logger.warning("%s is in its place again", self._path)
        return True

    def _spawn_end(self, peer: Peer, why: str) -> None:
        if not peer.ending:
            peer.ending = True
            self._spawn(self._end(peer, why))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def events_of(changes: Iterable[Change]) -> Iterator[WatchEvent]:
    """What watches see of changes: the node's own event, and its parent's if it came or went."""
    for kind, path in changes:
        if kind in SESSION_KINDS:
            continue
        yield WatchEvent(EVENT_KINDS[kind], path)
        if kind in (CREATED, DELETED):
            yield WatchEvent(EventKind.CHILDREN, parent_of(path))


def _is_busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _BUSY


def unavailable(path: Path, error: sqlite3.Error) -> StoreUnavailable:
    """What SQLite complains of, and what to do about it."""
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:
        case sqlite3.SQLITE_FULL:
            advice = "the disk is full: free some space on it, nothing was written"
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            advice = "this user must be able to write the file and its directory"
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            advice = "the file is damaged or no store: move it away and restore a copy"
        case sqlite3.SQLITE_IOERR:
            advice = "the disk failed: look at the system's log"
        case _:
            advice = "look at the file and its disk"
    return StoreUnavailable(str(path), f"{path}: {error}; {advice}")
