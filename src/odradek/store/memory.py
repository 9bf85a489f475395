"""The store in memory, for the simulator and for tests: sessions over one shared tree.

``MemoryServer`` plays the ensemble: it owns the tree and the sessions. ``MemoryStore`` is one
client of it. Between them run two queues, one each way, first in first out; answers and watch
events come back on the same one, so their order is ZooKeeper's. All time is the loop's.

What a simulation turns: ``server.delay`` (how many seconds a message travels), ``disconnect`` and
``reconnect`` of a client, ``expire`` of its session. A client beats its heart on the loop, in the
context it was started in: a simulated process that is paused or killed loses its session by itself
at the time-out.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from odradek.store.api import (
    DEFAULT_SESSION_TIMEOUT_MS,
    ConnectionLost,
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
    Watch,
    WatchEvent,
)
from odradek.store.tree import Tree
from odradek.store.watches import Seen, SessionListeners, WatchTable

T = TypeVar("T")

BEATS_PER_TIMEOUT = 3


class _Queue:
    """Messages one way. Each arrives after the delay, never before one that was sent earlier."""

    def __init__(self, context: contextvars.Context, delay: Callable[[], float]) -> None:
        self._loop = asyncio.get_running_loop()
        self._context = context
        self._delay = delay
        self._messages: deque[tuple[float, Callable[[], None], bool]] = deque()
        self._timer: asyncio.Handle | None = None
        self._cut = False

    def put(self, message: Callable[[], None], *, lasting: bool = False) -> None:
        """A lasting message waits out a cut; any other is lost in it."""
        if self._cut and not lasting:
            return
        last = self._messages[-1][0] if self._messages else 0.0
        self._messages.append((max(last, self._loop.time() + self._delay()), message, lasting))
        self._schedule()

    def cut(self) -> None:
        self._cut = True
        self._messages = deque(message for message in self._messages if message[2])
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def mend(self) -> None:
        self._cut = False
        self._schedule()

    def clear(self) -> None:
        self._messages.clear()

    def _schedule(self) -> None:
        if self._cut or self._timer is not None or not self._messages:
            return
        due = self._messages[0][0]
        if due <= self._loop.time():
            self._timer = self._loop.call_soon(self._arrive, context=self._context)
        else:
            self._timer = self._loop.call_at(due, self._arrive, context=self._context)

    def _arrive(self) -> None:
        self._timer = None
        while self._messages and self._messages[0][0] <= self._loop.time() and not self._cut:
            self._messages.popleft()[1]()
        self._schedule()


class _Session:
    """What the server knows of one session."""

    def __init__(self, session_id: int, client: MemoryStore, timeout: float) -> None:
        self.id = session_id
        self.client = client
        self.timeout = timeout
        self.heard = asyncio.get_running_loop().time()
        self.watches = WatchTable()
        self.timer: asyncio.TimerHandle | None = None


class MemoryServer:
    """The ensemble: one tree and its sessions. Made on the loop it will run on."""

    def __init__(
        self,
        *,
        clock: Callable[[], int] | None = None,
        delay: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.tree = Tree()
        self.delay = delay
        self.context = contextvars.copy_context()
        self._loop = asyncio.get_running_loop()
        self._clock = clock or (lambda: int(self._loop.time() * 1000))
        self._sessions: dict[int, _Session] = {}
        self._sessions_opened = 0

    # What a simulation turns

    def disconnect(self, client: MemoryStore) -> None:
        """Cut a client off. Requests and answers on their way are lost; events are not."""
        client.cut()

    def reconnect(self, client: MemoryStore) -> None:
        client.mend()

    def expire(self, client: MemoryStore) -> None:
        """End a client's session now, as if it had been silent for its time-out."""
        if (session := self._sessions.get(client.session_id)) is not None:
            self._expire(session)

    def statistics(self) -> Mapping[str, int | float]:
        return {
            "nodes": len(self.tree),
            "sessions": len(self._sessions),
            "transaction": self.tree.transaction,
            "watches": sum(len(session.watches) for session in self._sessions.values()),
        }

    # What a client sends

    def open(self, client: MemoryStore, timeout: float) -> None:
        self._sessions_opened += 1
        session = _Session(self._sessions_opened, client, timeout)
        self._sessions[session.id] = session
        self._judge(session)
        client.answer(partial(client.opened, session))

    def hear(self, session: _Session) -> None:
        session.heard = self._loop.time()

    def knows(self, session: _Session) -> bool:
        return session.id in self._sessions

    def handle(
        self, session: _Session, action: Callable[[_Session], object], answer: asyncio.Future[Any]
    ) -> None:
        """Do what a client asks, and send the answer back on its queue."""
        try:
            if not self.knows(session):
                raise SessionExpired("", f"session {session.id} is over")
            self.hear(session)
            outcome = partial(_resolve, answer, action(session))
        except (StoreError, ValueError) as error:
            outcome = partial(_reject, answer, error)
        session.client.answer(outcome)

    def write(self, operations: Sequence[Operation], session: _Session) -> list[Result]:
        results, events = self.tree.apply(operations, session.id, self._clock())
        self._publish(events)
        return results

    def end(self, session: _Session) -> None:
        """The session is over: its ephemeral nodes go, in one transaction."""
        del self._sessions[session.id]
        if session.timer is not None:
            session.timer.cancel()
        self._publish(self.tree.expire(session.id))

    def _judge(self, session: _Session) -> None:
        """End a session that was silent for its time-out, or come back when that may be."""
        due = session.heard + session.timeout
        if self._loop.time() >= due:
            self._expire(session)
        else:
            session.timer = self._loop.call_at(due, self._judge, session, context=self.context)

    def _expire(self, session: _Session) -> None:
        self.end(session)
        session.client.answer(partial(session.client.expired, session), lasting=True)

    def _publish(self, events: Iterable[WatchEvent]) -> None:
        for event in events:
            for session in list(self._sessions.values()):
                for watch in session.watches.take(event):
                    deliver = partial(session.client.deliver, session, watch, event)
                    session.client.answer(deliver, lasting=True)


class MemoryStore(SingleWrites):
    """One client's session with a ``MemoryServer``."""

    def __init__(
        self, server: MemoryServer, *, session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS
    ) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._timeout = session_timeout_ms / 1000
        self._context = contextvars.copy_context()
        self._requests = _Queue(server.context, lambda: server.delay())
        self._answers = _Queue(self._context, lambda: server.delay())
        self._listeners = SessionListeners()
        self._session: _Session | None = None
        self._connected = asyncio.Event()  # also set by close, so that no caller waits for ever
        self._cut = False
        self._closed = False
        self._waiting: set[asyncio.Future[Any]] = set()
        self._unwatched: set[Watch] = set()  # forgotten while an event may be on its way
        self._beat: asyncio.TimerHandle | None = None
        self._operations = 0

    # The interface

    @property
    def session_id(self) -> int:
        return self._session.id if self._session is not None else 0

    async def start(self) -> None:
        self._open()
        await self._until_connected()

    async def close(self) -> None:
        if self._closed:
            return
        if self._session is not None and self._connected.is_set():
            try:
                await self._ask(self._server.end)
            except (ConnectionLost, SessionExpired):
                pass  # then the time-out ends it, or has
        self._closed = True
        self._session = None
        self._fail(ConnectionLost("", "the store was closed"))
        self._connected.set()
        if self._beat is not None:
            self._beat.cancel()

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        return await self._ask(partial(self._server.write, operations))

    async def multi_many(
        self, multis: Iterable[Sequence[Operation]]
    ) -> list[list[Result] | StoreError]:
        return await self._all(self.multi(multi) for multi in multis)

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        def read(session: _Session) -> Node:
            node = self._server.tree.get(path)
            self._leave(session, Seen.DATA, path, watch)
            return node

        return await self._ask(read)

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        nodes: list[Node | None] = []
        for node in await self._all(self.get(path, watch) for path in paths):
            if isinstance(node, StoreError) and not isinstance(node, NoNode):
                raise node
            nodes.append(None if isinstance(node, StoreError) else node)
        return nodes

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        def read(session: _Session) -> Stat | None:
            stat = self._server.tree.exists(path)
            self._leave(session, Seen.ABSENCE if stat is None else Seen.DATA, path, watch)
            return stat

        return await self._ask(read)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        def read(session: _Session) -> list[str]:
            names = self._server.tree.children(path)
            self._leave(session, Seen.CHILDREN, path, watch)
            return names

        return await self._ask(read)

    def unwatch(self, watch: Watch) -> None:
        if self._session is not None:
            self._session.watches.forget(watch)
            self._unwatched.add(watch)

    def on_session(self, listener: SessionListener) -> None:
        self._listeners.add(listener)

    def statistics(self) -> Mapping[str, int | float]:
        return {
            "session": self.session_id,
            "connected": int(self._connected.is_set() and not self._closed),
            "watches": len(self._session.watches) if self._session is not None else 0,
            "operations": self._operations,
        }

    # What the server sends

    def answer(self, message: Callable[[], None], *, lasting: bool = False) -> None:
        self._answers.put(message, lasting=lasting)

    def opened(self, session: _Session) -> None:
        if self._closed or self._session is not None:
            return  # the server will find that session silent
        self._session = session
        self._connected.set()
        self._keep_alive(session)
        self._listeners.notify(SessionEvent.CONNECTED)

    def deliver(self, session: _Session, watch: Watch, event: WatchEvent) -> None:
        if session is self._session and watch not in self._unwatched:
            WatchTable.call(watch, event)

    def expired(self, session: _Session) -> None:
        if session is not self._session or self._closed:
            return
        self._session = None
        self._unwatched.clear()
        self._connected.clear()
        self._fail(SessionExpired("", f"session {session.id} is over"))
        self._listeners.notify(SessionEvent.EXPIRED)
        self._open()

    def cut(self) -> None:
        self._cut = True
        self._requests.cut()
        self._answers.cut()
        self._loop.call_soon(self._on_cut, context=self._context)

    def mend(self) -> None:
        self._cut = False
        self._requests.mend()
        self._loop.call_soon(self._on_mended, context=self._context)

    def _on_cut(self) -> None:
        was_connected = self._connected.is_set() and not self._closed
        if was_connected:
            self._connected.clear()
        self._fail(ConnectionLost("", "the connection was lost"))
        if was_connected:
            self._listeners.notify(SessionEvent.DISCONNECTED)

    def _on_mended(self) -> None:
        if self._cut or self._closed:
            return
        session = self._session
        if session is None:
            self._answers.mend()
            self._open()
        elif self._server.knows(session):
            self._connected.set()
            self._listeners.notify(SessionEvent.CONNECTED)
            self._answers.mend()
        else:
            self._answers.clear()
            self._answers.mend()
            self.expired(session)

    # Inside

    def _open(self) -> None:
        self._requests.put(partial(self._server.open, self, self._timeout))

    def _keep_alive(self, session: _Session) -> None:
        if session is self._session and not self._closed:
            self._requests.put(partial(self._server.hear, session))
            self._beat = self._loop.call_later(
                self._timeout / BEATS_PER_TIMEOUT, self._keep_alive, session, context=self._context
            )

    async def _until_connected(self, asked_in: _Session | None = None) -> _Session:
        """Wait for the connection; what was asked in a session is not done in another."""
        while not self._closed:
            await self._connected.wait()
            if asked_in is not None and self._session is not asked_in and not self._closed:
                raise SessionExpired("", f"session {asked_in.id} is over")
            if self._session is not None:
                return self._session
        raise ConnectionLost("", "the store is closed")

    async def _ask(self, action: Callable[[_Session], T]) -> T:
        """Have the server act for our session; again after each lost connection."""
        self._operations += 1
        session = await self._until_connected(self._session)
        while True:
            answer: asyncio.Future[T] = self._loop.create_future()
            self._waiting.add(answer)
            self._requests.put(partial(self._server.handle, session, action, answer))
            try:
                return await answer
            except ConnectionLost:
                await self._until_connected(session)
            finally:
                self._waiting.discard(answer)

    async def _all(self, requests: Iterable[Any]) -> list[Any]:
        """Ask for many things at once; a store's refusal stands in the place of its answer."""
        results = await asyncio.gather(*requests, return_exceptions=True)
        for result in results:
            if isinstance(result, SessionExpired | ConnectionLost) or (
                isinstance(result, BaseException) and not isinstance(result, StoreError)
            ):
                raise result
        return results

    def _leave(self, session: _Session, seen: Seen, path: str, watch: Watch | None) -> None:
        if watch is not None:
            self._unwatched.discard(watch)
            session.watches.leave(seen, path, watch)

    def _fail(self, error: StoreError) -> None:
        for answer in list(self._waiting):
            _reject(answer, error)


def _resolve(answer: asyncio.Future[Any], result: object) -> None:
    if not answer.done():
        answer.set_result(result)


def _reject(answer: asyncio.Future[Any], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
