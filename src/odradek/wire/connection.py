"""The outgoing side of a Kafka connection: send a request, await its response.

Requests may be pipelined. A broker answers in the order of the requests, so the answers are matched
with a queue, and a correlation id that is not the oldest outstanding one is a fault of the peer. A
request that is not answered in time ends the connection, as in Kafka: everything behind it would
wait as well.

A connection may be secured: TLS below the frames (`wire/tls.py`), and a login before the first
request. A login that expires is repeated while the connection is held: requests that are started
meanwhile leave once it is done, since a broker takes nothing but the login then.
"""

import asyncio
import itertools
import os
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from odradek.wire.api import APIS
from odradek.wire.errors import DecodeError
from odradek.wire.frames import Buffer, FrameProtocol
from odradek.wire.header import decode_response, encode_request
from odradek.wire.tls import TlsLayer

if TYPE_CHECKING:
    from odradek.wire.schema import Message, Request

__all__ = ["Connection", "ConnectionSecurity", "HandshakeFailed"]

RESPONSE_BYTES_MAX = 128 * 1024 * 1024
TIMEOUT_S = 30.0


# What to look at when OpenSSL gives these reasons.
TLS_ADVICE = {
    "CERTIFICATE_VERIFY_FAILED": "check ssl.truststore.location, and that the broker's certificate"
    " names this host (ssl.endpoint.identification.algorithm)",
    "WRONG_VERSION_NUMBER": "this listener does not speak TLS; check security.protocol",
}
OTHER_TLS_ADVICE = "check ssl.keystore.location and ssl.enabled.protocols"


class HandshakeFailed(ConnectionError):
    """The peers do not agree on TLS: another attempt with the same settings ends the same way."""


R = TypeVar("R", bound="Message")


def _tls_reason(error: ssl.SSLError) -> str:
    detail = getattr(error, "verify_message", "")
    advice = TLS_ADVICE.get(error.reason or "", OTHER_TLS_ADVICE)
    return f"TLS: {error.reason or error}{f' ({detail})' if detail else ''}; {advice}"


def _no_op() -> None:
    pass


class _Pending(NamedTuple):
    correlation_id: int
    response_class: "type[Message]"
    version: int
    future: "asyncio.Future[Any]"
    deadline: float


class ConnectionSecurity(Protocol):
    """What protects a connection that we open; nothing does without one."""

    @property
    def tls(self) -> ssl.SSLContext | None: ...
    @property
    def login(self) -> "Callable[[Connection], Awaitable[None]] | None":
        """Logs in on a connection that has just been made."""


class Connection(FrameProtocol):
    """One connection to one broker. Make it with `open`; a closed one stays closed."""

    trusts_sizes = True

    def __init__(self, client_id: str, max_response_bytes: int, timeout: float) -> None:
        super().__init__(max_response_bytes)
        self.client_id = client_id
        self.timeout = timeout
        self._correlation_ids = itertools.count()
        self._pending: deque[_Pending] = deque()
        # One for all requests, for no later than the first deadline: nearly all are answered long
        # before, and a timer for each would cost as much as its frame.
        self._timer: asyncio.TimerHandle | None = None
        self._failure: Exception | None = None
        # While a login is under way: what is sent after it, with the answers to wait for.
        self._held: list[tuple[list[Buffer], _Pending | None]] | None = None
        self._idle: asyncio.Future[None] | None = None
        self._connected: asyncio.Future[None] = self._loop.create_future()
        # Called when the connection is gone, whichever side ended it.
        self.on_lost: Callable[[], None] = _no_op

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str = "odradek",
        max_response_bytes: int = RESPONSE_BYTES_MAX,
        timeout: float = TIMEOUT_S,
        security: "ConnectionSecurity | None" = None,
    ) -> "Connection":
        """Connects, and logs in, within `timeout` seconds; each request has as long by default."""
        connection = cls(client_id, max_response_bytes, timeout)
        try:
            async with asyncio.timeout(timeout):
                await connection._connect(host, port, None if security is None else security.tls)
                if security is not None and security.login is not None:
                    await security.login(connection)
        except TimeoutError:
            connection.close()
            raise
        except HandshakeFailed:
            raise
        except ssl.SSLError as error:
            raise HandshakeFailed(
                f"cannot connect to {host}:{port}: {_tls_reason(error)}"
            ) from error
        except OSError as error:
            if isinstance(error, socket.gaierror):
                reason = error.strerror  # its number is the resolver's, not the system's
            else:
                reason = os.strerror(error.errno) if error.errno else str(error)
            kind = (
                ConnectionRefusedError
                if isinstance(error, ConnectionRefusedError)
                else ConnectionError
            )
            raise kind(f"cannot connect to {host}:{port}: {reason}") from error
        except BaseException:
            connection.close()
            raise
        return connection

    async def _connect(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        protocol: asyncio.BaseProtocol = self
        if tls is not None:
            protocol = TlsLayer(
                self, tls, server_side=False, host=host, on_failure=self._handshake_failed
            )
        await self._loop.create_connection(lambda: protocol, host, port)
        await self._connected

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if not self._connected.done():
            self._connected.set_result(None)

    def _handshake_failed(self, error: Exception) -> None:
        if not self._connected.done():
            self._connected.set_exception(error)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Waits until nothing is in flight, and keeps back what is started meanwhile.

        What the holder itself sends goes out through `request_now`.
        """
        assert self._held is None, "one login at a time"
        self._held = []
        try:
            if self._pending:
                self._idle = self._loop.create_future()
                await self._idle
            yield
        finally:
            kept, self._held = self._held, None
            self._idle = None
            for parts, pending in kept:
                self._send(parts, pending)

    async def request_now(self, message: "Request[R]", version: int) -> R:
        """A request of the holder of a held connection."""
        kept, self._held = self._held, None
        try:
            future = self.start(message, version)
        finally:
            self._held = kept
        return await future

    @property
    def closed(self) -> bool:
        return not self.is_open

    @property
    def in_flight(self) -> int:
        return len(self._pending)

    def start(
        self,
        message: "Request[R]",
        version: int,
        *,
        timeout: float | None = None,
        is_last: bool = False,
    ) -> "asyncio.Future[R]":
        """Sends a request now; the future is its response. For callers that pipeline: requests
        started in one turn of the loop leave together, at its end or with the one that `is_last`.
        """
        if not self.is_open:
            raise self._broken()
        correlation_id = next(self._correlation_ids) & 0x7FFFFFFF
        future: asyncio.Future[R] = self._loop.create_future()
        api = APIS[message.API_KEY]
        parts = encode_request(message, version, correlation_id, self.client_id)
        # Only now: what cannot be encoded is never sent, and no answer to it is late.
        seconds = self.timeout if timeout is None else timeout
        deadline = self._loop.time() + seconds
        pending = _Pending(correlation_id, api.response, version, future, deadline)
        self._send(parts, pending, is_last=is_last)
        if self._timer is None or deadline < self._timer.when():
            self._look_at(deadline)
        return future

    async def request(
        self, message: "Request[R]", version: int, *, timeout: float | None = None
    ) -> R:
        """The response to `message`. TimeoutError, or ConnectionError if the peer went away."""
        return await self.start(message, version, timeout=timeout)

    def send_no_response(self, message: "Message", version: int) -> None:
        """Sends a request that the broker never answers: Produce with acks=0."""
        if not self.is_open:
            raise self._broken()
        correlation_id = next(self._correlation_ids) & 0x7FFFFFFF
        self._send(encode_request(message, version, correlation_id, self.client_id), None)

    def _send(
        self, parts: list[Buffer], pending: _Pending | None, *, is_last: bool = False
    ) -> None:
        if self._held is not None:
            self._held.append((parts, pending))
            return
        if pending is not None:
            self._pending.append(pending)
        if is_last:
            self.send_now(parts)
        else:
            self.send(parts)

    def frame_received(self, frame: bytearray) -> None:
        if not self._pending:
            self._fail(ConnectionError(f"{self.peer} answered a request that was never sent"))
            return
        pending = self._pending.popleft()
        try:
            correlation_id, message = decode_response(
                pending.response_class, pending.version, frame
            )
        except DecodeError as error:
            if not pending.future.done():
                pending.future.set_exception(error)
            self._fail(ConnectionError(f"{self.peer} sent a response that cannot be read: {error}"))
            return
        if correlation_id != pending.correlation_id:
            failure = ConnectionError(
                f"{self.peer} answered request {correlation_id}, expected {pending.correlation_id}"
            )
            if not pending.future.done():
                pending.future.set_exception(failure)
            self._fail(failure)
            return
        if not pending.future.done():
            pending.future.set_result(message)
        if not self._pending and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def lost(self, error: Exception | None) -> None:
        self._abandon(error)
        if self._idle is not None and not self._idle.done():
            self._idle.set_exception(self._broken())
        self.on_lost()

    def close(self) -> None:
        super().close()
        self._abandon(None)

    def _look_at(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._look_for_late)

    def _look_for_late(self) -> None:
        self._timer = None
        waiting = self._unanswered()
        if not waiting:
            return
        first = min(waiting, key=lambda pending: pending.deadline)
        if first.deadline <= self._loop.time():
            self._time_out(first.future)
        else:
            self._look_at(first.deadline)

    def _unanswered(self) -> list[_Pending]:
        held = (pending for _, pending in self._held or () if pending is not None)
        return [*self._pending, *held]

    def _time_out(self, future: "asyncio.Future[Any]") -> None:
        if not future.done():
            future.set_exception(TimeoutError(f"no answer from {self.peer} in time"))
        self._fail(ConnectionError(f"{self.peer} did not answer an earlier request in time"))

    def _fail(self, failure: Exception) -> None:
        self._failure = failure
        self.close()

    def _broken(self) -> ConnectionError:
        kind = HandshakeFailed if isinstance(self._failure, HandshakeFailed) else ConnectionError
        return kind(str(self._failure or f"the connection to {self.peer} is closed"))

    def _abandon(self, error: Exception | None) -> None:
        if error is not None and self._failure is None:
            if isinstance(error, ssl.SSLError):
                self._failure = HandshakeFailed(f"{self.peer}: {_tls_reason(error)}")
            else:
                self._failure = ConnectionError(f"the connection to {self.peer} broke: {error}")
        unanswered = self._unanswered()
        self._pending.clear()
        if self._held is not None:
            self._held.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for pending in unanswered:
            if not pending.future.done():
                pending.future.set_exception(self._broken())
                # A caller that still waits gets the error; one that was cancelled does not need it.
                pending.future.exception()

    def statistics(self) -> dict[str, int]:
        return {
            "in_flight": len(self._pending),
            "bytes_sent": self.bytes_sent,
            "bytes_received": self.bytes_received,
        }
