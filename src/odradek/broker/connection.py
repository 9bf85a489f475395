"""The incoming side of a connection: a frame becomes a request, a handler's answer becomes a frame.

Rules
1. Answers leave in the order of the requests, whatever order they are found in.
2. A handler that answers at once is answered at once. One that waits (Produce, Fetch) lets the
   requests behind it start, and is answered when the requests that found its answer are served
   (`FoundAnswers`). A coroutine does not: while it runs, the connection starts nothing else, as
   with Kafka, where a connection has one request under way.
3. A connection has bounds: requests under way, their bytes, and bytes of answers that its client
   has not yet taken. At a bound it stops reading, so that the client's own buffers fill and it
   waits. All connections together have bounds as well (`memory`).
4. A connection starts a few requests per turn of the loop, however many a read has brought, so that
   a client that sends thousands at once delays the others by a few.
5. What cannot be understood ends this connection, with a line in the log, and no other. What goes
   wrong in a handler is logged with its trace and answered with UNKNOWN_SERVER_ERROR.
"""

import asyncio
import logging
import socket
from collections import deque
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.broker.authentication import Close, Verdict
from odradek.broker.authorization import Permissions
from odradek.broker.control import NotBelieved
from odradek.broker.identity import Identity, NotIdentified
from odradek.broker.routes import CONTROL, RequestContext, Route, Routes, refuse
from odradek.broker.served_apis import unsupported_version
from odradek.store.api import StoreError
from odradek.wire.api import ApiKey
from odradek.wire.errors import DecodeError, EncodeError, ErrorCode, KafkaError
from odradek.wire.frames import Buffer, FrameProtocol
from odradek.wire.header import decode_request_header, encode_response
from odradek.wire.reply import Later, Now, Reply
from odradek.wire.schema import Message

if TYPE_CHECKING:
    from odradek.broker.connections import Connections
    from odradek.broker.security import ListenerSecurity

__all__ = ["ClientConnection", "FoundAnswers"]

# Answers that wait for the client, or for an answer before them; one more may be added to these.
HELD_BYTES_MAX = 16 * 1024 * 1024
# The same for answers that are still waited for, as large as they may get.
EXPECTED_BYTES_MAX = 128 * 1024 * 1024

# Requests whose answers are waited for; one more may be added to these. Followers of a log that a
# client is further ahead of would find nothing of it in memory any more (log/tail.py).
UNANSWERED_BYTES_MAX = 8 * 1024 * 1024

# A request of this size other than Produce, whose records stay in their buffer, becomes so many
# small objects that the allocator keeps megabytes of pages for their like.
MANY_OBJECTS_BYTES = 100_000

# Requests of one connection that start in one turn of the loop.
STARTS_PER_TURN = 4

# A client that has not logged in by then is disconnected. Its TLS handshake counts.
LOGIN_TIMEOUT_S = 30.0

# API key, version and correlation id: what every version of every header begins with.
_START = Struct(">hhi")

logger = logging.getLogger(__name__)


_CONTROL = frozenset(int(key).to_bytes(2, "big") for key in CONTROL)


def _is_control(frame: bytearray) -> bool:
    return bytes(frame[:2]) in _CONTROL


class _Waiting(NamedTuple):
    """A request whose answer is waited for."""

    reply: Later[Message | None]
    route: Route
    request: Message
    context: RequestContext


class _Slot:
    """The place of an answer in the queue, empty until it is `ready`."""

    __slots__ = ("parts", "ready", "size_bytes", "waiting")

    def __init__(self, waiting: _Waiting | None = None) -> None:
        self.waiting = waiting
        self.parts: list[Buffer] = []
        self.ready = False
        self.size_bytes = 0


class FoundAnswers:
    """Answers that were waited for and have been found, of all connections.

    What finds them is in the middle of its own work: a produce that wakes the followers, a fetch
    that moves the high watermark. So they are sent when the requests that found them are served,
    in the same turn of the loop; those that no request has found, in the next.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._found: deque[tuple[ClientConnection, _Slot, Any]] = deque()
        self._is_due = False

    def add(self, connection: "ClientConnection", slot: _Slot, value: Any) -> None:
        self._found.append((connection, slot, value))
        if not self._is_due:
            self._deliver_soon()

    def expect(self) -> None:
        """Requests are being served: the caller calls `deliver` when they are."""
        self._is_due = True

    def deliver(self) -> None:
        left = len(self._found)
        while left and self._found:
            left -= 1
            connection, slot, value = self._found.popleft()
            try:
                connection.answer_found(slot, value)
            except Exception:
                logger.exception("%s: closing, an answer cannot be sent", connection.peer)
                connection.abort()
        self._is_due = False
        if self._found:
            # By requests that could start because of these answers: not in this turn (rule 4).
            self._deliver_soon()

    def _deliver_soon(self) -> None:
        self._is_due = True
        self._loop.call_soon(self.deliver)


class ClientConnection(FrameProtocol):
    """One client, or another broker, that talks to us."""

    def __init__(
        self, connections: "Connections", routes: Routes, security: "ListenerSecurity"
    ) -> None:
        super().__init__(connections.request_bytes_max, connections.scratch)
        self.listener = security.listener.name
        self.host = ""
        self._security = security
        self._identity: Identity | None = None
        self._login_timer: asyncio.TimerHandle | None = None
        self.last_active = 0.0
        self.requests = 0
        self._connections = connections
        self._routes = routes
        self._slots: deque[_Slot] = deque()
        self._held_bytes = 0
        self._expected_bytes = 0
        self._unanswered_bytes = 0
        self._waiting: deque[bytearray] = deque()
        self._task: asyncio.Task[None] | None = None
        self._muted: asyncio.TimerHandle | None = None
        self._stopped_reading = False
        # Waits for its turn to receive more, because the budget for requests is spent.
        self._may_not_grow = False
        self._started = 0
        self._turn: asyncio.Handle | None = None
        # Bytes of the broker's budgets in use, and since when.
        self.request_bytes = 0
        self.requests_since = 0.0
        self.response_bytes = 0
        self.blocked_since: float | None = None

    # The life of a connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.host = self.peer.rpartition(":")[0]
        self.last_active = self._loop.time()
        sock = transport.get_extra_info("socket")
        if sock is not None:
            for option, size_bytes in self._connections.socket_buffers.items():
                sock.setsockopt(socket.SOL_SOCKET, option, size_bytes)
        self._connections.admit(self)
        self._identify(transport)

    def lost(self, error: Exception | None) -> None:
        for slot in self._slots:
            if slot.waiting is not None and slot.waiting.reply.abandon is not None:
                slot.waiting.reply.abandon()
        if self._muted is not None:
            self._muted.cancel()
        if self._turn is not None:
            self._turn.cancel()
        if self._login_timer is not None:
            self._login_timer.cancel()
        self._waiting.clear()
        self._slots.clear()
        self._change_request_bytes(-self.request_bytes)
        self._connections.response_budget.change(-self.response_bytes)
        self.response_bytes = 0
        self._connections.forget(self)

    # The login

    def _identify(self, transport: asyncio.BaseTransport) -> None:
        connections, authorizer = self._connections, self._routes.broker.authorizer
        tls = transport.get_extra_info("ssl_object")
        try:
            self._identity = Identity(self._security, authorizer, self.peer, self.host, tls)
        except NotIdentified as error:
            logger.warning("%s: closing, %s", self.peer, error)
            self.close()
            return
        if not self._identity.is_known:
            assert self._security.sasl is not None
            self.frame_bytes_max = self._security.sasl.frame_bytes_max
            since = connections.connecting_since(self)
            self._login_timer = self._loop.call_at(since + LOGIN_TIMEOUT_S, self._login_too_slow)

    @property
    def is_known(self) -> bool:
        """Whether TLS and login, as far as the listener asks for them, are done."""
        return self._identity is not None and self._identity.is_known

    @property
    def permissions(self) -> Permissions:
        """What the client may do."""
        assert self._identity is not None
        return self._identity.permissions

    def _login_too_slow(self) -> None:
        self._login_timer = None
        logger.info("%s: closing, no login within %d s", self.peer, LOGIN_TIMEOUT_S)
        self.close()

    def _apply(self, verdict: Verdict) -> None:
        """What a login says to one of its frames; a refusal leaves, if at all, after a delay."""
        if self._identity is not None and self._identity.is_known and self._login_timer is not None:
            self._login_timer.cancel()
            self._login_timer = None
            self.frame_bytes_max = self._connections.request_bytes_max
        if verdict.close is Close.LATE:
            self._loop.call_later(self._connections.login_delay_s, self._end_login, verdict.parts)
            return
        if verdict.parts:
            self._put(verdict.parts)
        if verdict.close is Close.NOW:
            self.close()

    def _end_login(self, parts: list[Buffer]) -> None:
        if self.is_open:
            if parts:
                self._put(parts)
            self.close()

    @property
    def is_idle(self) -> bool:
        return not (self._slots or self._waiting or self._task)

    @property
    def held_bytes(self) -> int:
        """Answers that have not left for the client."""
        in_transport = 0
        if self.transport is not None:
            in_transport = self.transport.get_write_buffer_size()
        return self._held_bytes + self.outgoing_bytes + in_transport

    def mute(self, seconds: float) -> None:
        """Takes no request for a while: the client went over its quota (KIP-219)."""
        until = self._loop.time() + seconds
        if self._muted is not None:
            if self._muted.when() >= until:
                return
            self._muted.cancel()
        self._muted = self._loop.call_at(until, self._unmute)

    def _unmute(self) -> None:
        self._muted = None
        self.pump()

    # Memory

    def receiving_changed(self, byte_count: int) -> None:
        self._change_request_bytes(byte_count)
        if byte_count < 0:
            self._connections.turns.done(self)
        elif not self._connections.turns.may_grow(self):
            self._may_not_grow = True
            self.pause_reading()

    def grow_on(self) -> None:
        self._may_not_grow = False
        if not self._stopped_reading:
            self.resume_reading()

    def _change_request_bytes(self, byte_count: int) -> None:
        if self.request_bytes == 0:
            self.requests_since = self._loop.time()
        self.request_bytes += byte_count
        self._connections.request_budget.change(byte_count)

    def outgoing_changed(self) -> None:
        held = self._held_bytes + self.outgoing_bytes
        if self._blocked and self.transport is not None:
            held += self.transport.get_write_buffer_size()
        if held != self.response_bytes:
            change, self.response_bytes = held - self.response_bytes, held
            self._connections.response_budget.change(change)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.blocked_since = self._loop.time()

    def resume_writing(self) -> None:
        self.blocked_since = None
        super().resume_writing()

    # Requests

    def frame_received(self, frame: bytearray) -> None:
        if self._waiting or self._started >= STARTS_PER_TURN or not self._may_start(frame):
            self._waiting.append(frame)
            self._change_request_bytes(len(frame))
            if not self._stopped_reading:
                self._stopped_reading = True
                self.pause_reading()
            return
        self._start(frame)

    def buffer_updated(self, count: int) -> None:
        found = self._connections.found
        found.expect()
        try:
            super().buffer_updated(count)
        finally:
            found.deliver()

    def read_finished(self) -> None:
        self._started = 0
        if self._waiting:
            self._take_turn_soon()

    def _take_turn_soon(self) -> None:
        if self._turn is None:
            self._turn = self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn = None
        found = self._connections.found
        found.expect()
        try:
            self.pump()
        finally:
            found.deliver()

    def _may_start(self, frame: bytearray | None = None) -> bool:
        return not (
            self._task is not None
            or self._muted is not None
            or self._blocked
            or self._held_bytes + self.outgoing_bytes > HELD_BYTES_MAX
            or self._expected_bytes > EXPECTED_BYTES_MAX
            or self._unanswered_bytes > UNANSWERED_BYTES_MAX
            or (self.response_bytes and self._connections.response_budget.is_spent)
            or len(self._slots) >= self._connections.in_flight_max
            or not (self._connections.is_serving or frame is None or self._is_early(frame))
        )

    def _is_early(self, frame: bytearray) -> bool:
        """Whether it is taken before the broker serves clients: the controller's, and a login."""
        return _is_control(frame) or (self._identity is not None and not self._identity.is_known)

    def pump(self) -> None:
        """Starts what had to wait, as far as it now may, and reads on if nothing is left."""
        if self._turn is not None:
            return
        self._started = 0
        while self._waiting and self.is_open and self._may_start(self._waiting[0]):
            if self._started >= STARTS_PER_TURN:
                self._take_turn_soon()
                break
            frame = self._waiting.popleft()
            self._change_request_bytes(-len(frame))
            self._start(frame)
        self._started = 0
        if self._stopped_reading and not self._waiting and self.is_open and self._may_start():
            self._stopped_reading = False
            if not self._may_not_grow:
                self.resume_reading()

    def drained(self) -> None:
        if self._stopped_reading:
            self.pump()

    def _start(self, frame: bytearray) -> None:
        self.requests += 1
        self._started += 1
        self.last_active = self._loop.time()
        verdict = None if self._identity is None else self._identity.receive(frame)
        if verdict is not None:
            self._apply(verdict)
            return
        try:
            if len(frame) < _START.size:
                raise DecodeError(f"a frame of {len(frame)} bytes")
            key, version, correlation_id = _START.unpack_from(frame)
            route = self._routes.find(key, version)
            if route is None:
                self._unsupported(key, version, correlation_id)
                return
            header, offset = decode_request_header(frame)
            if len(frame) > MANY_OBJECTS_BYTES and key != ApiKey.PRODUCE:
                self._connections.trim_later()  # also of one that has too many elements
            request = route.decode(memoryview(frame)[offset:])
        except DecodeError as error:
            logger.warning("%s: closing, a request that cannot be read: %s", self.peer, error)
            self.close()
            return
        context = RequestContext(header, self, len(frame), self.last_active)
        try:
            reply = self._routes.serve(route, request, context)
        except Exception as error:
            self._answer_now(route, self._refused(route, request, context, error), context)
            return
        # By type, not by instance: an abstract class takes ten times as long to say no.
        if type(reply) is Now:
            self._answer_now(route, reply.value, context)
        elif type(reply) is Later:
            slot = _Slot(_Waiting(reply, route, request, context))
            self._slots.append(slot)
            self._expected_bytes += reply.bytes_max
            self._unanswered_bytes += context.size_bytes
            reply.future.hand_to(partial(self._connections.found.add, self, slot))
            route.worked(context, self._loop.time() - context.started)
        else:
            self._run(reply, route, request, context)

    def _unsupported(self, key: int, version: int, correlation_id: int) -> None:
        """ApiVersions is answered in its first version, so that the client can choose another."""
        if key == ApiKey.API_VERSIONS:
            self._put(encode_response(unsupported_version(), 0, correlation_id))
            return
        logger.warning("%s: closing, API %d version %d is not served", self.peer, key, version)
        self.close()

    def _refused(
        self, route: Route, request: Message, context: RequestContext, error: BaseException
    ) -> Message | None:
        """The answer when a handler failed, or none, and then the connection is closed."""
        if isinstance(error, NotBelieved):
            logger.warning("%s: closing, %s", context.sender, error)
            context.close_after = True
            return None
        if isinstance(error, StoreError):
            logger.warning("%s from %s failed: %s", route.name, self.peer, error)
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the metadata store: {error}")
        elif not isinstance(error, KafkaError):
            logger.error("%s from %s failed", route.name, self.peer, exc_info=error)
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        answer = refuse(route, request, context, error)
        if answer is None:
            context.close_after = True
        return answer

    # Answers

    def _answer_now(self, route: Route, answer: Message | None, context: RequestContext) -> None:
        route.answered(answer, context, context.started, self._loop.time())
        if answer is None:
            self._unanswered(context)
            return
        parts = self._encoded(answer, context)
        if parts is not None:
            self._put(parts)

    def _put(self, parts: list[Buffer]) -> None:
        """An answer that was found at once."""
        if not self._slots:
            self.send(parts)
            return
        slot = _Slot()
        self._fill(slot, parts)
        self._slots.append(slot)

    def _fill(self, slot: _Slot, parts: list[Buffer]) -> None:
        slot.parts = parts
        slot.ready = True
        slot.size_bytes = sum(map(len, parts))
        self._held_bytes += slot.size_bytes
        self.outgoing_changed()

    def answer_found(self, slot: _Slot, value: Any) -> None:
        """What was waited for has come."""
        if not self.is_open:
            return
        assert slot.waiting is not None
        reply, route, request, context = slot.waiting
        self._expected_bytes -= reply.bytes_max
        self._unanswered_bytes -= context.size_bytes
        resumed = self._loop.time()
        try:
            answer = reply.finish(value)
        except Exception as error:
            answer = self._refused(route, request, context, error)
        route.answered(answer, context, resumed, self._loop.time())
        self._settle(slot, answer, context)

    def _settle(self, slot: _Slot, answer: Message | None, context: RequestContext) -> None:
        slot.waiting = None
        if answer is None:
            slot.ready = True
            self._unanswered(context)
            if not self.is_open:
                return
        else:
            parts = self._encoded(answer, context)
            if parts is None:
                return
            if slot is self._slots[0]:
                slot.parts, slot.ready = parts, True  # it leaves now, and is never held
            else:
                self._fill(slot, parts)
        self._release()

    def _unanswered(self, context: RequestContext) -> None:
        """A request that gets no answer (acks=0)."""
        if context.throttle_ms:
            self.mute(context.throttle_ms / 1000)
        if context.close_after:
            self.close()

    def _encoded(self, answer: Message, context: RequestContext) -> list[Buffer] | None:
        """The answer's frame; None, and the connection is closed, if it cannot be written."""
        header = context.header
        if context.throttle_ms:
            if "throttle_time_ms" in answer.FIELDS:
                answer.throttle_time_ms = context.throttle_ms  # type: ignore[attr-defined]  # in FIELDS
            self.mute(context.throttle_ms / 1000)
        try:
            return encode_response(answer, header.api_version, header.correlation_id)
        except EncodeError:
            logger.exception("%s: closing, a response cannot be encoded", self.peer)
            self.close()
            return None

    def _release(self) -> None:
        """Sends the answers at the head of the queue that are ready."""
        while self._slots and self._slots[0].ready:
            slot = self._slots.popleft()
            self._held_bytes -= slot.size_bytes
            if self._slots:
                self.send(slot.parts)
            else:
                self.send_now(slot.parts)  # nothing that could leave with it is waited for
        if self._stopped_reading:
            self.pump()

    def _run(
        self,
        reply: Reply[Message | None],
        route: Route,
        request: Message,
        context: RequestContext,
    ) -> None:
        slot = _Slot()
        self._slots.append(slot)

        async def run() -> None:
            try:
                answer = await reply.result()
            except Exception as error:
                answer = self._refused(route, request, context, error)
            finally:
                self._task = None
            # How long a coroutine worked and how long it waited is not known apart: not counted.
            route.answered(answer, context, now := self._loop.time(), now)
            if self.is_open:
                self._settle(slot, answer, context)

        self._task = self._loop.create_task(run())
        self._connections.keep(self._task)

    def statistics(self) -> dict[str, int | str]:
        return {
            "peer": self.peer,
            "requests": self.requests,
            "in_flight": len(self._slots),
            "waiting": len(self._waiting),
            "held_bytes": self.held_bytes,
            "bytes_received": self.bytes_received,
            "bytes_sent": self.bytes_sent,
        }
