"""All the connections of one broker: those that listen, those that came in, and how they end.

Who may come in is `admission`'s to say, and who has to wait `arrivals`' to hold.
"""

import asyncio
import logging
import socket
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from odradek.broker.admission import UNLIMITED, AdmissionControl, ConnectionLimits
from odradek.broker.arrivals import Arrival, Arrivals, Guest
from odradek.broker.config import BrokerConfig
from odradek.broker.connection import ClientConnection, FoundAnswers
from odradek.broker.listeners import Listener
from odradek.broker.memory import Budget, Turns, offenders, return_free_memory
from odradek.broker.routes import Routes
from odradek.broker.security import ListenerSecurity
from odradek.wire.frames import SCRATCH_BYTES
from odradek.wire.settings import connection_limits
from odradek.wire.tls import CIPHERTEXT_BYTES, HandshakeQueue, TlsLayer

if TYPE_CHECKING:
    from asyncio import AbstractServer

__all__ = ["Connections"]

# How often clients are looked for that hold too much, while a budget is spent.
RELIEF_S = 0.25
LAST_TRIM_S = 10.0
IDLE_CHECKS = 10
IDLE_PAUSE_S_MIN = 0.01

logger = logging.getLogger(__name__)


class Connections:
    """Listening sockets and the connections that came in through them."""

    def __init__(self, config: BrokerConfig, routes: Routes) -> None:
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.request_bytes_max = config.integer("socket.request.max.bytes")
        self.login_delay_s = config.integer("connection.failed.authentication.delay.ms") / 1000
        has_tls = any(listener.protocol.has_tls for listener in config.listeners())
        self._tls_scratch = memoryview(bytearray(CIPHERTEXT_BYTES)) if has_tls else None
        self._handshakes = HandshakeQueue()
        # Until then only the controller is answered; all others wait, connected.
        self.is_serving = False
        self.in_flight_max = config.integer("queued.max.requests")
        buffers = {
            socket.SO_SNDBUF: config.integer("socket.send.buffer.bytes"),
            socket.SO_RCVBUF: config.integer("socket.receive.buffer.bytes"),
        }
        self.socket_buffers = {option: size for option, size in buffers.items() if size >= 0}
        self._config = config
        self._routes = routes
        self.request_budget = Budget(config.integer("queued.max.request.bytes"), self._relieve_soon)
        self.response_budget = Budget(
            config.integer("odradek.queued.max.response.bytes"), self._relieve_soon
        )
        self.turns: Turns[ClientConnection] = Turns(self.request_budget)
        self._relief: asyncio.TimerHandle | None = None
        self._last_trim: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self.found = FoundAnswers(self._loop)
        self._servers: list[AbstractServer] = []
        self._open: dict[ClientConnection, None] = {}
        self._arrivals_of: dict[ClientConnection, Arrival] = {}
        self._evicted = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle_timer: asyncio.TimerHandle | None = None
        # Where brokers have a listener to themselves: clients cannot keep them out, and only there
        # are they believed to be brokers.
        names = {listener.name for listener in config.listeners()}
        brokers = names & {config.inter_broker_listener(), config.control_plane_listener()}
        self.broker_listeners = frozenset(brokers) if names > brokers else None
        self.admission = AdmissionControl(self._loop.time, self.broker_listeners or frozenset())
        waiting_max = config.integer("socket.listen.backlog.size")
        self._arrivals = Arrivals(self.admission, waiting_max)
        self._descriptors_max = UNLIMITED
        self._take_limits(frozenset())
        config.on_change(self._take_limits)

    def limit(self, descriptors_max: int) -> None:
        """So many descriptors there are for connections, whatever the settings say."""
        self._descriptors_max = descriptors_max
        self._take_limits(frozenset())

    def _take_limits(self, changed: frozenset[str]) -> None:
        config = self._config
        overrides = config.text("max.connections.per.ip.overrides")
        self.admission.limits = ConnectionLimits(
            min(config.integer("max.connections"), self._descriptors_max),
            config.integer("max.connections.per.ip"),
            connection_limits(overrides or ""),
            config.by_listener("max.connections"),
            config.integer("max.connection.creation.rate"),
            config.by_listener("max.connection.creation.rate"),
        )
        self._arrivals.admit_waiting()

    async def listen(self, security: ListenerSecurity) -> Listener:
        """Opens the listening socket, not yet accepting; the listener with the port it got."""
        listener = security.listener
        server = await self._loop.create_server(
            partial(self.arrival, security),
            listener.host or None,
            listener.port,
            backlog=self._config.integer("socket.listen.backlog.size"),
            start_serving=False,
        )
        self._servers.append(server)
        port = server.sockets[0].getsockname()[1]
        return replace(listener, port=port)

    def arrival(self, security: ListenerSecurity) -> Arrival:
        """What speaks on a socket that a listener has just accepted."""
        name = security.listener.name
        return Arrival(self._arrivals, name, partial(self._protocol, security))

    def _protocol(
        self, security: ListenerSecurity, arrival: Arrival
    ) -> tuple[asyncio.BaseProtocol, Guest]:
        """What speaks on a new connection: its frames, with TLS below them where it has that."""
        connection = ClientConnection(self, self._routes, security)
        self._arrivals_of[connection] = arrival
        if security.tls is None:
            return connection, connection

        def failed(error: Exception) -> None:
            reason = getattr(error, "reason", None) or error
            logger.info("%s: closing, TLS handshake failed: %s", arrival.peer, reason)
            self._arrivals.left(self._arrivals_of.pop(connection))

        layer = TlsLayer(
            connection,
            security.tls,
            server_side=True,
            scratch=self._tls_scratch,
            handshakes=self._handshakes,
            on_failure=failed,
        )
        return layer, connection

    async def accept(self) -> None:
        """Lets connections in. Only the controller is answered before `serve`."""
        for server in self._servers:
            await server.start_serving()
        self._watch_idle()

    def serve(self) -> None:
        """From now on every client is answered, first those that had to wait."""
        self.is_serving = True
        for connection in list(self._open):
            connection.pump()

    def admit(self, connection: ClientConnection) -> None:
        """A connection that can speak, its TLS handshake done where it has one."""
        self._open[connection] = None

    def connecting_since(self, connection: ClientConnection) -> float:
        """When its socket was accepted."""
        return self._arrivals_of[connection].made_at

    def forget(self, connection: ClientConnection) -> None:
        del self._open[connection]
        self._arrivals.left(self._arrivals_of.pop(connection))

    @property
    def refused(self) -> int:
        return self._arrivals.refused

    # Memory

    def trim_later(self) -> None:
        """Gives the allocator's free memory back to the system when this has not been asked for
        some time: after a burst, not in it."""
        if self._last_trim is not None:
            self._last_trim.cancel()
        self._last_trim = self._loop.call_later(LAST_TRIM_S, return_free_memory)

    def _relieve_soon(self) -> None:
        if self._relief is None:
            self._relief = self._loop.call_later(RELIEF_S, self._relieve)

    def _relieve(self) -> None:
        """While a budget is spent: disconnects those who have held the most of it for too long.
        When the pressure is over, the memory goes back to the system."""
        self._relief = None
        budgets = (self.request_budget, self.response_budget)
        if not any(budget.is_under_pressure for budget in budgets):
            return_free_memory()
            # Some of it is free only once the garbage collector has been by.
            self.trim_later()
            return
        now = self._loop.time()
        self._disconnect(
            self.request_budget,
            ((each, each.request_bytes, each.requests_since) for each in self._open),
            now,
            "bytes of requests that do not arrive whole or cannot start",
        )
        self._disconnect(
            self.response_budget,
            (
                (each, each.response_bytes, each.blocked_since)
                for each in self._open
                if each.blocked_since is not None
            ),
            now,
            "bytes of responses that are not read",
        )
        self.turns.go_on()
        self._relieve_soon()

    def _disconnect(
        self,
        budget: Budget,
        holders: Iterable[tuple[ClientConnection, int, float]],
        now: float,
        what: str,
    ) -> None:
        if not budget.is_spent:
            return
        held = [holder for holder in holders if holder[1]]
        over_bytes = budget.used_bytes - budget.limit_bytes
        for connection, size_bytes in offenders(held, over_bytes, now):
            self._evicted += 1
            logger.warning(
                "%s: closing, it holds %d %s; all connections hold %d, and the limit is %d",
                connection.peer,
                size_bytes,
                what,
                budget.used_bytes,
                budget.limit_bytes,
            )
            connection.abort()

    def keep(self, task: "asyncio.Task[None]") -> None:
        """Holds a request's task until it ends, also if its connection ends before."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _watch_idle(self) -> None:
        limit_ms = self._config.integer("connections.max.idle.ms")
        if limit_ms < 0:
            return
        oldest = self._loop.time() - limit_ms / 1000
        for connection in list(self._open):
            if connection.is_idle and connection.last_active < oldest:
                logger.info("%s: closing, idle for %d ms", connection.peer, limit_ms)
                connection.close()
        pause_s = max(limit_ms / 1000 / IDLE_CHECKS, IDLE_PAUSE_S_MIN)
        self._idle_timer = self._loop.call_later(pause_s, self._watch_idle)

    def stop_accepting(self) -> None:
        for server in self._servers:
            server.close()

    async def close(self) -> None:
        """Ends everything: listening, connections, and requests still under way."""
        self.stop_accepting()
        for timer in (self._idle_timer, self._relief, self._last_trim):
            if timer is not None:
                timer.cancel()
        self._arrivals.close()
        for connection in list(self._open):
            connection.close()
        await asyncio.sleep(0)  # a task that has not begun would never await its handler
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def statistics(self) -> dict[str, Any]:
        return {
            "connections": len(self._open),
            "waiting": self._arrivals.waiting,
            "refused": self.refused,
            "evicted": self._evicted,
            "request_bytes": self.request_budget.used_bytes,
            "response_bytes": self.response_budget.used_bytes,
            "waiting_to_grow": len(self.turns),
            "in_flight": sum(not connection.is_idle for connection in self._open),
            "held_bytes": sum(connection.held_bytes for connection in self._open),
            "requests": self._routes.statistics(),
        }
