"""The store on a ZooKeeper ensemble, through kazoo.

kazoo keeps the connection and the session. This adds what the interface promises: answers and
events on the loop in the order of the wire (``kazoo_bridge``), watches that outlive a lost
connection (kazoo drops them; here each is set again and notified of what it missed), operations
that wait for the connection to return, null data, many requests in flight for bulk operations.
docs/spec/interchange-with-apache-kafka.md section C.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.protocol import serialization
from kazoo.protocol.states import EventType, KazooState, KeeperState, WatchedEvent, ZnodeStat
from kazoo.retry import KazooRetry
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from odradek.store.api import (
    DEFAULT_SESSION_TIMEOUT_MS,
    AuthenticationFailed,
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    EventKind,
    NoChildrenForEphemerals,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    Result,
    SessionEvent,
    SessionExpired,
    SessionListener,
    Set,
    SingleWrites,
    Stat,
    StoreError,
    StoreLogin,
    Watch,
    WatchEvent,
    parent_of,
    validate_path,
)
from odradek.store.kazoo_bridge import LoopHandler, MultiRead, quiet_logger
from odradek.store.watches import Marks, Seen, SessionListeners, WatchTable, missed

logger = logging.getLogger(__name__)
T = TypeVar("T")

# kazoo is woken for each request by a byte in a socket, which would block the loop once full.
REQUESTS_IN_FLIGHT = 128
READS_PER_REQUEST = 100
RETRY_DELAY_S, RETRY_DELAY_MAX_S = 0.1, 2.0
COMPLAIN_AFTER_S = 1.0  # how long an ensemble may be unreachable before a warning

# Where ACLs are set, every client may read all but these; old consumers add their own to the last.
SENSITIVE = ("/config/users", "/config/brokers", "/delegation_token/tokens")
OPEN = "/consumers"
SASL = "sasl"

_EVENT_KINDS = {
    EventType.CREATED: EventKind.CREATED,
    EventType.DELETED: EventKind.DELETED,
    EventType.CHANGED: EventKind.CHANGED,
    EventType.CHILD: EventKind.CHILDREN,
}


class _NotServed(StoreError):
    """The server does not know this kind of request."""


_ERRORS: dict[type[Exception], type[StoreError]] = {
    kazoo_errors.NoNodeError: NoNode,
    kazoo_errors.NodeExistsError: NodeExists,
    kazoo_errors.BadVersionError: BadVersion,
    kazoo_errors.NotEmptyError: NotEmpty,
    kazoo_errors.NoChildrenForEphemeralsError: NoChildrenForEphemerals,
    kazoo_errors.SessionExpiredError: SessionExpired,
    kazoo_errors.ConnectionClosedError: ConnectionLost,
    kazoo_errors.ConnectionLoss: ConnectionLost,
    kazoo_errors.AuthFailedError: AuthenticationFailed,
    kazoo_errors.NoAuthError: AuthenticationFailed,
    kazoo_errors.UnimplementedError: _NotServed,
}
_NOT_THE_CAUSE = (kazoo_errors.RolledBackError, kazoo_errors.RuntimeInconsistency)


@dataclass(frozen=True, slots=True)
class _Request(Generic[T]):
    """Something to ask, as often as it takes: how to send it and what its answer means."""

    path: str
    submit: Callable[[], Any]
    decode: Callable[[Any], T]


class ZooKeeperStore(SingleWrites):
    """One session with an ensemble, under a chroot that is created on first use."""

    def __init__(
        self,
        hosts: str,
        chroot: str = "/",
        *,
        session_timeout_ms: int = DEFAULT_SESSION_TIMEOUT_MS,
        authentication: Sequence[StoreLogin] = (),
        tls: ssl.SSLContext | None = None,
        set_acl: bool = False,
    ) -> None:
        self._hosts = hosts
        self._chroot = chroot.rstrip("/")
        validate_path(self._chroot or "/")
        self._timeout_ms = session_timeout_ms
        self._authentication = authentication
        self._tls = tls
        self._set_acl = set_acl
        self._watches = WatchTable()
        self._listeners = SessionListeners()
        self._client: Any = None  # kazoo has no types
        self._session = 0
        self._since: int | None = None  # the last transaction seen before the connection broke
        self._connected = asyncio.Event()  # also set by close, so that no caller waits for ever
        self._closed = False
        self._refused = False
        self._room = asyncio.Semaphore(REQUESTS_IN_FLIGHT)
        self._reads_in_bulk = True
        self._unrestored = 0
        self._complaint: asyncio.TimerHandle | None = None
        self._connection = 0  # counts the connections lost
        self._restoring: asyncio.Task[None] | None = None
        self._operations = 0

    # The interface

    @property
    def session_id(self) -> int:
        return self._session

    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        handler = LoopHandler(self._loop, self._tls)
        kazoo_log, self._last_warning = quiet_logger()
        retry = KazooRetry(
            max_tries=-1,
            delay=RETRY_DELAY_S,
            max_delay=RETRY_DELAY_MAX_S,
            sleep_func=handler.sleep_func,
        )
        self._client = KazooClient(
            hosts=self._hosts,
            timeout=self._timeout_ms / 1000,
            handler=handler,
            auth_data=[tuple(each) for each in self._authentication if each.scheme != SASL],
            sasl_options=_sasl_options(self._authentication),
            connection_retry=retry,
            logger=kazoo_log,
        )
        self._client.add_listener(self._on_kazoo_state)
        self._await_connection()
        self._client.start_async()
        await self._until_connected()
        await self._make_chroot()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._stop_complaining()
        self._watches.clear()
        if self._restoring is not None:
            self._restoring.cancel()
        if self._client is not None:
            await self._loop.run_in_executor(None, self._client.stop)  # joins kazoo's thread
            self._client.close()
        self._session = 0
        self._connected.set()

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        return await self._ask(self._multi(operations))

    async def multi_many(
        self, multis: Iterable[Sequence[Operation]]
    ) -> list[list[Result] | StoreError]:
        return await self._ask_many(map(self._multi, multis))

    async def get(self, path: str, watch: Watch | None = None) -> Node:
        return await self._ask(self._get(path, watch))

    async def get_many(self, paths: Sequence[str], watch: Watch | None = None) -> list[Node | None]:
        if watch is None and self._reads_in_bulk:
            try:
                return await self._get_in_bulk(paths)
            except _NotServed:
                self._reads_in_bulk = False  # a server before 3.6
        nodes: list[Node | None] = []
        for node in await self._ask_many(self._get(path, watch) for path in paths):
            if isinstance(node, StoreError) and not isinstance(node, NoNode):
                raise node
            nodes.append(None if isinstance(node, StoreError) else node)
        return nodes

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        def decode(found: ZnodeStat | None) -> Stat | None:
            self._leave(Seen.ABSENCE if found is None else Seen.DATA, path, watch)
            return None if found is None else _stat(found)

        return await self._ask(self._read("exists_async", path, watch, decode))

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        def decode(names: list[str]) -> list[str]:
            self._leave(Seen.CHILDREN, path, watch)
            return sorted(names)

        return await self._ask(self._read("get_children_async", path, watch, decode))

    def unwatch(self, watch: Watch) -> None:
        self._watches.forget(watch)

    def on_session(self, listener: SessionListener) -> None:
        self._listeners.add(listener)

    def statistics(self) -> Mapping[str, int | float]:
        return {
            "session": self._session,
            "connected": int(self._connected.is_set() and not self._closed),
            "watches": len(self._watches),
            "operations": self._operations,
            "connections_lost": self._connection,
        }

    # Requests

    def _get(self, path: str, watch: Watch | None) -> _Request[Node]:
        def decode(found: tuple[bytes | None, ZnodeStat]) -> Node:
            self._leave(Seen.DATA, path, watch)
            return found[0], _stat(found[1])

        return self._read("get_async", path, watch, decode)

    async def _get_in_bulk(self, paths: Sequence[str]) -> list[Node | None]:
        nodes: list[Node | None] = []
        batches = [
            paths[start : start + READS_PER_REQUEST]
            for start in range(0, len(paths), READS_PER_REQUEST)
        ]
        for answer in await self._ask_many(map(self._multi_read, batches)):
            if isinstance(answer, StoreError):
                raise answer
            nodes += answer
        return nodes

    def _multi_read(self, paths: Sequence[str]) -> _Request[list[Node | None]]:
        for path in paths:
            validate_path(path)
        read = MultiRead([self._full(path) for path in paths])

        def submit() -> Any:
            result = self._client.handler.async_result()
            self._client._call(read, result)  # there is no public way for a request of our own
            return result

        def decode(results: list[Any]) -> list[Node | None]:
            nodes: list[Node | None] = []
            for path, found in zip(paths, results, strict=True):
                if isinstance(found, Exception) and not isinstance(found, kazoo_errors.NoNodeError):
                    raise _error(found, path)
                nodes.append(None if isinstance(found, Exception) else (found[0], _stat(found[1])))
            return nodes

        return _Request(paths[0], submit, decode)

    def _read(
        self, method: str, path: str, watch: Watch | None, decode: Callable[[Any], T]
    ) -> _Request[T]:
        """A read. kazoo always gets the same watcher, and so notifies us once of each change."""
        validate_path(path)
        watcher = None if watch is None else self._on_watch
        return _Request(
            path, lambda: getattr(self._client, method)(self._full(path), watcher), decode
        )

    def _multi(self, operations: Sequence[Operation]) -> _Request[list[Result]]:
        encoded = [self._encode(operation) for operation in operations]

        def submit() -> Any:
            transaction = self._client.transaction()
            transaction.operations = encoded  # its own methods refuse null data
            return transaction.commit_async()

        return _Request(operations[0].path, submit, partial(self._decode_multi, operations))

    def _encode(self, operation: Operation) -> Any:
        match operation:
            case Create(path, data, ephemeral, sequential):
                validate_path(path + "0" if sequential else path)
                flags = ephemeral | sequential << 1
                return serialization.Create(self._full(path), data, self._acl(path), flags)
            case Set(path, data, version):
                return serialization.SetData(self._full(path), data, version)
            case Delete(path, version):
                if path == "/":
                    raise ValueError("the root cannot be deleted")
                return serialization.Delete(self._full(path), version)
            case Check(path, version):
                return serialization.CheckVersion(self._full(path), version)

    def _decode_multi(self, operations: Sequence[Operation], results: list[Any]) -> list[Result]:
        for operation, result in zip(operations, results, strict=False):
            if isinstance(result, Exception) and not isinstance(result, _NOT_THE_CAUSE):
                raise _error(result, operation.path)
        decoded: list[Result] = []
        for operation, result in zip(operations, results, strict=True):
            if isinstance(operation, Create):
                decoded.append(self._local(result))
            else:
                decoded.append(_stat(result) if isinstance(operation, Set) else None)
        return decoded

    def _acl(self, path: str) -> list[ACL]:
        if not self._set_acl or path == OPEN:
            return OPEN_ACL_UNSAFE  # type: ignore[no-any-return]  # kazoo has no types
        if _is_at_or_below(path, SENSITIVE):
            return CREATOR_ALL_ACL  # type: ignore[no-any-return]
        return CREATOR_ALL_ACL + READ_ACL_UNSAFE  # type: ignore[no-any-return]

    def _full(self, path: str) -> str:
        return self._chroot + path if path != "/" else self._chroot or "/"

    def _local(self, path: str) -> str:
        return path.removeprefix(self._chroot) or "/"

    async def _ask(self, request: _Request[T]) -> T:
        """Send a request, again after each lost connection, as long as the session lasts."""
        self._operations += 1
        session = await self._until_connected(self._session)
        return await self._insist(request, session, await self._send(request))

    async def _insist(self, request: _Request[T], session: int, sent: asyncio.Future[T]) -> T:
        while True:
            try:
                return await sent
            except ConnectionLost:
                await self._until_connected(session)
            sent = await self._send(request)

    async def _ask_many(self, requests: Iterable[_Request[T]]) -> list[T | StoreError]:
        """Many requests in flight; a refusal stands in the place of its answer."""
        session = await self._until_connected(self._session)
        sent = [(request, await self._send(request)) for request in requests]
        self._operations += len(sent)
        answers: list[T | StoreError] = []
        for request, answer in sent:
            try:
                answered: T = await self._insist(request, session, answer)
                answers.append(answered)
            except (SessionExpired, ConnectionLost, AuthenticationFailed):
                raise
            except StoreError as error:
                answers.append(error)
        return answers

    async def _send(self, request: _Request[T]) -> asyncio.Future[T]:
        """Put a request into kazoo's queue, when there is room in it."""
        await self._room.acquire()
        answer: asyncio.Future[T] = self._loop.create_future()
        if self._connected.is_set() and not self._closed:
            result = request.submit()
            result.rawlink(partial(self._on_answer, request, answer, self._connection))
        else:
            self._room.release()
            answer.set_exception(ConnectionLost(request.path, "the connection was lost"))
        return answer

    def _on_answer(
        self, request: _Request[T], answer: asyncio.Future[T], connection: int, result: Any
    ) -> None:
        self._room.release()
        if answer.done():
            return  # the caller was cancelled
        if connection != self._connection:
            # It waited out the loss in kazoo's queue and overtook the restoring of the watches:
            # it may be newer than what they were notified of.
            answer.set_exception(ConnectionLost(request.path, "the connection was lost"))
            return
        if result.exception is not None:
            answer.set_exception(_error(result.exception, request.path))
            return
        try:
            answer.set_result(request.decode(result.value))
        except StoreError as error:
            answer.set_exception(error)

    async def _until_connected(self, asked_in: int = 0) -> int:
        """Wait for the connection; what was asked in a session is not done in another."""
        while not self._closed and not self._refused:
            await self._connected.wait()
            if asked_in and self._session not in (0, asked_in):
                raise SessionExpired("", f"session {asked_in:#x} is over")
            if self._session:
                return self._session
        if self._refused:
            raise AuthenticationFailed("", f"ZooKeeper at {self._hosts} refuses our credentials")
        raise ConnectionLost("", "the store is closed")

    async def _make_chroot(self) -> None:
        missing = [self._chroot] if self._chroot else []
        while missing:
            create = serialization.Create(missing[-1], None, self._acl(missing[-1]), 0)

            def submit(create: Any = create) -> Any:
                transaction = self._client.transaction()
                transaction.operations = [create]
                return transaction.commit_async()

            try:
                await self._ask(_Request(missing[-1], submit, _raise_first))
            except NoNode:
                missing.append(parent_of(missing[-1]))
                continue
            except NodeExists:
                pass  # that is what was wanted
            missing.pop()

    # Watches

    def _leave(self, seen: Seen, path: str, watch: Watch | None) -> None:
        if watch is not None:
            self._watches.leave(seen, path, watch)

    def _on_watch(self, event: WatchedEvent) -> None:
        kind = _EVENT_KINDS.get(event.type)
        if kind is not None and not self._closed:
            self._watches.fire(WatchEvent(kind, self._local(event.path)))

    async def _restore(self) -> None:
        """Leave every watch again on the new connection, and notify each of what it missed.

        No other request is sent before all of these: so no caller reads a change before its watch
        has fired.
        """
        since = self._since
        assert since is not None, "the connection was lost before it returned"
        waiting = list(self._watches.waiting())
        self._unrestored = len(waiting)
        if not waiting:
            self._since = None
        for seen, path in waiting:
            await self._room.acquire()
            if seen is Seen.CHILDREN:
                result = self._client.get_children_async(self._full(path), self._on_watch, True)
            else:
                result = self._client.exists_async(self._full(path), self._on_watch)
            restored = partial(self._on_restored, seen, path, since, self._connection)
            result.rawlink(restored)
        self._resume()

    def _on_restored(self, seen: Seen, path: str, since: int, connection: int, result: Any) -> None:
        self._room.release()
        if connection != self._connection:
            return
        marks = None
        if result.exception is None:
            stat = result.value[1] if seen is Seen.CHILDREN else result.value
            marks = None if stat is None else Marks(stat.czxid, stat.mzxid, stat.pzxid)
        elif not isinstance(result.exception, kazoo_errors.NoNodeError):
            return  # lost again: the next connection restores all of them, from the same past
        self._unrestored -= 1
        if self._unrestored == 0:
            self._since = None
        event = missed(seen, path, marks, since)
        if event is not None:
            self._watches.fire(event)

    # The session

    def _on_kazoo_state(self, state: str) -> None:
        """On kazoo's thread: note what is true now, and pass it on."""
        client = self._client
        session = client.client_id[0] if client.client_id else 0
        refused = client.client_state == KeeperState.AUTH_FAILED
        client.handler.completion_queue.put(
            partial(self._on_state, state, session, client.last_zxid, refused)
        )

    def _on_state(self, state: str, session: int, last_transaction: int, refused: bool) -> None:
        if self._closed:
            return
        if state == KazooState.CONNECTED:
            self._stop_complaining()
            if session == self._session:
                self._restoring = self._loop.create_task(self._restore())
            else:
                self._session = session
                self._resume()
        elif state == KazooState.SUSPENDED:
            self._connected.clear()
            self._connection += 1
            if self._restoring is not None:
                self._restoring.cancel()
            if self._since is None:
                self._since = last_transaction
            self._await_connection()
            self._listeners.notify(SessionEvent.DISCONNECTED)
        elif refused:
            self._session = 0
            self._refused = True
            self._connected.set()
        else:
            logger.warning("the session with ZooKeeper expired")
            self._session = 0
            self._since = None
            self._watches.clear()
            self._listeners.notify(SessionEvent.EXPIRED)

    def _resume(self) -> None:
        self._connected.set()
        self._listeners.notify(SessionEvent.CONNECTED)

    def _await_connection(self) -> None:
        if self._complaint is None:
            self._complaint = self._loop.call_later(COMPLAIN_AFTER_S, self._complain)

    def _complain(self) -> None:
        logger.warning(
            "cannot reach ZooKeeper at %s (%s); retrying until the broker stops",
            self._hosts,
            self._last_warning.text,
        )

    def _stop_complaining(self) -> None:
        if self._complaint is not None:
            self._complaint.cancel()
            self._complaint = None


def _stat(of: ZnodeStat) -> Stat:
    return Stat(of.czxid, of.mzxid, of.version, of.ephemeralOwner, of.numChildren, of.ctime)


def _error(error: Exception, path: str) -> StoreError:
    for kind in type(error).__mro__:
        if kind in _ERRORS:
            return _ERRORS[kind](path, f"{path}: {error or kind.__name__}")
    return StoreError(path, f"{path}: {error!r}")


def _raise_first(results: list[Any]) -> None:
    for result in results:
        if isinstance(result, Exception):
            raise _error(result, "")


def _sasl_options(logins: Sequence[StoreLogin]) -> dict[str, str] | None:
    """kazoo's, of the one SASL login there may be."""
    for login in logins:
        if login.scheme == SASL:
            user, _, password = login.credential.partition(":")
            return {"mechanism": "DIGEST-MD5", "username": user, "password": password}
    return None


def _is_at_or_below(path: str, roots: Sequence[str]) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in roots)
