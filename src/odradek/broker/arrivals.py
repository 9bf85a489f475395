"""From an accepted socket to a connection: who comes in at once, who waits, who is closed.

docs/spec/security.md, section 5. A newcomer that has to wait is not read. It sees what it would see
in a listening socket's queue: a connection on which nothing happens yet. As many wait as that queue
has places. When there is no room, connections that have not logged in are closed to make some,
those that have tried the longest first; a broker over a listener of their own takes the place of
the client that has been silent the longest.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol, cast

from odradek.broker.admission import AdmissionControl, Rejection

__all__ = ["Arrival", "Arrivals", "Guest"]

# A login takes this long on a loaded machine; before that it is not closed in favour of another.
LOGIN_GRACE_S = 1.0

logger = logging.getLogger(__name__)


class Guest(Protocol):
    """What is seen here of a connection that came in."""

    @property
    def is_known(self) -> bool: ...

    @property
    def is_idle(self) -> bool: ...

    last_active: float


class Arrival(asyncio.Protocol):
    """One accepted socket: the protocol of its transport until it is let in."""

    transport: asyncio.Transport

    def __init__(
        self,
        arrivals: "Arrivals",
        listener: str,
        make: Callable[["Arrival"], tuple[asyncio.BaseProtocol, Guest]],
    ) -> None:
        self._arrivals = arrivals
        self.listener = listener
        self.address = ""
        self.peer = "unknown"
        self.made_at = 0.0
        self.due = 0.0
        # Once it has come in.
        self.guest: Guest | None = None
        self._is_paused = False
        self._make = make

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one, but no subclass
        address = transport.get_extra_info("peername")
        if address:
            self.address, self.peer = address[0], f"{address[0]}:{address[1]}"
        self._arrivals.arrived(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._arrivals.left(self)

    def come_in(self) -> None:
        """From here on another protocol speaks, and says when the connection is lost."""
        protocol, self.guest = self._make(self)
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        if self._is_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def pause(self) -> None:
        self._is_paused = True
        self.transport.pause_reading()
        asyncio.get_running_loop().call_soon(self._pause_again)

    def _pause_again(self) -> None:
        """The first asyncio of Python 3.11, which Debian 12 has, begins to read after
        connection_made whether it was paused there or not; what it read would be lost."""
        if self.guest is None and not self.transport.is_closing():
            self.transport.resume_reading()
            self.transport.pause_reading()


class Arrivals:
    """All sockets that were accepted and are not yet closed."""

    def __init__(self, admission: AdmissionControl, waiting_max: int) -> None:
        self.refused = 0
        self._admission = admission
        self._waiting_max = waiting_max
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Arrival, None] = {}
        self._inside: dict[Arrival, None] = {}
        self._timers: dict[Arrival, asyncio.TimerHandle] = {}
        self._timer: asyncio.TimerHandle | None = None

    # Coming

    def arrived(self, arrival: Arrival) -> None:
        arrival.made_at = self._loop.time()
        verdict = self._admission.arrive(arrival.address, arrival.listener)
        if isinstance(verdict, Rejection):
            self._refuse(arrival, verdict)
            return
        arrival.due = verdict.until
        self._waiting[arrival] = None
        self._admit()
        if arrival not in self._waiting:
            return
        if len(self._waiting) > self._waiting_max:
            self._stop_waiting(arrival)
            self._refuse(arrival, Rejection(f"{self._waiting_max} others wait already"))
        else:
            arrival.pause()

    def _refuse(self, arrival: Arrival, refused: Rejection) -> None:
        self.refused += 1
        logger.warning("%s: closing, %s", arrival.peer, refused.reason)
        if refused.after_s <= 0 or len(self._timers) >= self._waiting_max:
            arrival.transport.abort()
            return
        arrival.pause()
        self._timers[arrival] = self._loop.call_later(refused.after_s, arrival.transport.abort)

    def admit_waiting(self) -> None:
        """Room may have come: limits have changed, or a connection is gone."""
        if self._waiting:
            self._admit()

    def _admit(self) -> None:
        now = self._loop.time()
        # Looking for room costs as much as there are connections: once for each listener.
        full: set[str] = set()
        for arrival in list(self._waiting):
            if arrival.due > now or arrival.listener in full:
                continue
            if not self._admission.has_room(arrival.listener):
                self._make_room(arrival.listener, now)
            if self._admission.has_room(arrival.listener):
                del self._waiting[arrival]
                self._enter(arrival)
            else:
                full.add(arrival.listener)
        self._look_again(now)

    def _enter(self, arrival: Arrival) -> None:
        self._inside[arrival] = None
        self._admission.enter(arrival.listener)
        if self._admission.is_overfull:
            self._replace_client(arrival.listener)
        arrival.come_in()

    def _look_again(self, now: float) -> None:
        """Room comes when a connection goes; but a time to wait passes, and a login's time too."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            first = min(arrival.due for arrival in self._waiting)
            pause_s = first - now if first > now else LOGIN_GRACE_S
            self._timer = self._loop.call_later(pause_s, self._admit)

    # Making room

    def _make_room(self, listener: str, now: float) -> None:
        """Closes the connection that has tried to log in for the longest."""
        candidates = [
            arrival
            for arrival in self._inside
            if not (arrival.guest is not None and arrival.guest.is_known)
            and now - arrival.made_at >= LOGIN_GRACE_S
            and (arrival.listener == listener or self._admission.is_full)
        ]
        self._close_first(candidates, "it has not logged in")

    def _replace_client(self, listener: str) -> None:
        """Closes the client that has been silent the longest; one without a login before it."""
        others = [arrival for arrival in self._inside if arrival.listener != listener]
        self._close_first(others, "it is the least recently used")

    def _close_first(self, candidates: Iterable[Arrival], why: str) -> None:
        chosen = min(candidates, key=_rank, default=None)
        if chosen is not None:
            logger.warning("%s: closing, %s and others wait for a connection", chosen.peer, why)
            self._leave(chosen)
            chosen.transport.abort()

    # Going

    def left(self, arrival: Arrival) -> None:
        """Its socket is closed."""
        timer = self._timers.pop(arrival, None)
        if timer is not None:
            timer.cancel()
            return  # it never counted
        if arrival in self._waiting:
            self._stop_waiting(arrival)
        else:
            self._leave(arrival)
        self.admit_waiting()

    def _stop_waiting(self, arrival: Arrival) -> None:
        del self._waiting[arrival]
        self._admission.depart(arrival.address)

    def _leave(self, arrival: Arrival) -> None:
        if arrival in self._inside:
            del self._inside[arrival]
            self._admission.leave(arrival.listener)
            self._admission.depart(arrival.address)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for arrival in [*self._waiting, *self._timers]:
            arrival.transport.abort()

    @property
    def waiting(self) -> int:
        return len(self._waiting)


def _rank(arrival: Arrival) -> tuple[bool, float]:
    """The least is the first to be closed."""
    guest = arrival.guest
    if guest is None or not guest.is_known:
        return False, arrival.made_at
    return True, guest.last_active
