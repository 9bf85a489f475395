"""The election of the controller: which state this broker is in, and how it gets from one to
another.

Rules
1. Only this module says which transition is legal, and only here is `/controller` written.
2. A term exists in ELECTED and in no other state: entering begins it, leaving ends it.
3. Being replaced does no harm, however late it is noticed: every write of a term is fenced, and
   brokers refuse the epoch of an earlier controller.

A broker is on STANDBY while another is controller, or until it has tried. Where a term failed, or
the store could not work, it is PAUSED before it stands again, so that another broker can win; there
need not be a watch that would wake it then. EXPIRED is the time between a session that was lost and
the registration in the next one. docs/spec, section 4.2 of the controller's behaviour.
"""

import asyncio
import logging
from collections.abc import Mapping
from enum import Enum
from typing import Protocol

from odradek.controller.events import (
    ControllerChange,
    ElectionEvent,
    Expire,
    Reelect,
    RegisterBrokerAndReelect,
)
from odradek.store.api import EventKind, SessionEvent, StoreError, WatchEvent
from odradek.store.cluster import ClusterStore
from odradek.store.controller_nodes import ControllerTerm
from odradek.store.nodes import ControllerMoved
from odradek.store.payloads import BrokerRegistration

logger = logging.getLogger(__name__)

# How long a broker waits after a failed term before it stands again.
ELECTION_PAUSE_S = 0.5


class ElectionState(Enum):
    """What this broker is in the election of the controller."""

    STANDBY = "another broker is controller, or may be"
    ELECTED = "this broker is the active controller"
    PAUSED = "this broker failed as controller and lets others try first"
    EXPIRED = "the session is lost, and the broker's registration with it"
    STOPPED = "this broker takes no part any more"


STANDBY = ElectionState.STANDBY
ELECTED = ElectionState.ELECTED
PAUSED = ElectionState.PAUSED
EXPIRED = ElectionState.EXPIRED
STOPPED = ElectionState.STOPPED

# Target -> the states it can be entered from, each with what brings that about.
TRANSITIONS: Mapping[ElectionState, Mapping[ElectionState, str]] = {
    STANDBY: {
        ELECTED: "another broker was elected",
        PAUSED: "the pause is over",
        EXPIRED: "registered in a new session",
    },
    ELECTED: {STANDBY: "won the election"},
    PAUSED: {
        STANDBY: "the store cannot work",
        ELECTED: "resigned",
        EXPIRED: "the store cannot work, or the pause continues in a new session",
    },
    EXPIRED: {
        STANDBY: "session lost",
        ELECTED: "session lost",
        PAUSED: "session lost",
    },
    STOPPED: dict.fromkeys((STANDBY, ELECTED, PAUSED, EXPIRED), "stop"),
}


def is_valid(previous: ElectionState, target: ElectionState) -> bool:
    return previous in TRANSITIONS[target]


class ElectionHost(Protocol):
    """What the election needs of the controller it is about."""

    broker_id: int

    def put(self, event: ElectionEvent) -> None: ...

    async def register(self) -> None:
        """Register this broker again, after its session was lost."""
        ...

    async def begin_term(self, elected: ControllerTerm) -> None:
        """Do everything a new controller does before its first event."""
        ...

    def end_term(self, reason: str) -> None: ...


class ControllerElection:
    """This broker's part in the election. Make it before the broker registers, so that no end of
    its session goes unnoticed."""

    def __init__(self, candidate: ElectionHost, store: ClusterStore) -> None:
        self._candidate = candidate
        self._id = candidate.broker_id
        self._store = store
        self._state = STANDBY
        self._fence = 0
        self._pause: asyncio.TimerHandle | None = None
        # Sessions that were lost, and after how many of them we have registered again.
        self._sessions_lost = self._registered_after = 0
        self.won = 0
        # Which broker the node named when it was last read.
        self.elected: int | None = None
        store.session.on_session(self._on_session)

    @property
    def state(self) -> ElectionState:
        return self._state

    async def elect(self) -> None:
        """Become controller if there is none."""
        elected = await self._read_elected()
        if elected == self._id and self._state is not ELECTED:
            # We resigned and the store did not hear it, or an earlier life of ours was elected.
            term = await self._store.controller.term()
            assert term is not None, "a broker was elected"
            await self._store.controller.resign(term.fence)
        elif elected is not None:
            return
        if self._state is not STANDBY:
            return  # others first; what ends the pause is an election
        try:
            won = await self._store.controller.elect(self._id)
        except ControllerMoved:
            await self.check_controller_node()
            return
        self.won += 1
        self._fence = won.fence
        self._enter(ELECTED)
        await self._candidate.begin_term(won)

    async def check_controller_node(self) -> None:
        """Step down if another broker is controller; if none is, an election follows."""
        elected = await self._read_elected()
        if elected is None or (elected == self._id and self._state is not ELECTED):
            self._candidate.put(Reelect())

    async def _read_elected(self) -> int | None:
        """Which broker the node names; our term ends if it is not us. Leaves the watch again."""
        elected = self.elected = await self._store.controller.id(self._on_node)
        if elected != self._id and self._state is ELECTED:
            which = "no broker" if elected is None else f"broker {elected}"
            self._enter(STANDBY, f"{which} is the controller")
        return elected

    async def depose(self, gone: BrokerRegistration) -> None:
        """The process of the controller has ended, and its session not yet: stand in its place,
        unless it has another controller, or this incarnation has another."""
        if self._state is not STANDBY:
            return
        controller = self._store.controller
        # Before the node is read: if another is elected after that, this term is not the last.
        term = await controller.term()
        if term is None or await self._read_elected() != gone.id:
            return
        registered = await self._store.broker(gone.id)
        if registered is not None and registered.epoch != gone.epoch:
            return
        logger.warning("broker %d no longer listens and is deposed as controller", gone.id)
        try:
            await controller.resign(term.fence)
        except ControllerMoved:
            await self.check_controller_node()
            return
        await self.elect()

    async def resign(self, reason: str) -> None:
        """Something went wrong that only a new term, ours or another's, puts right."""
        if self._state is not ELECTED:
            return
        self.pause(reason)
        try:
            await self._store.controller.resign(self._fence)
        except ControllerMoved:
            await self.check_controller_node()
        except StoreError as error:
            logger.info("broker %d could not delete the controller node: %s", self._id, error)

    def pause(self, reason: str) -> None:
        """Let others try first."""
        if self._state is not PAUSED:
            self._enter(PAUSED, reason)
        if self._pause is None:
            loop = asyncio.get_running_loop()
            self._pause = loop.call_later(ELECTION_PAUSE_S, self._end_pause)

    def _end_pause(self) -> None:
        self._pause = None
        self._candidate.put(RegisterBrokerAndReelect())

    async def register_and_elect(self) -> None:
        lost = self._sessions_lost
        if self._registered_after < lost:
            await self._candidate.register()
        self._registered_after = lost
        if self._pause is not None:
            if self._state is EXPIRED:
                self._enter(PAUSED)
        elif self._state in (PAUSED, EXPIRED):
            self._enter(STANDBY)
        await self.elect()

    def expire(self) -> None:
        """The session is lost."""
        if self._state is not EXPIRED:
            self._enter(EXPIRED, "the store session expired")

    def stop(self) -> None:
        """The node goes with the store's session."""
        if self._pause is not None:
            self._pause.cancel()
        if self._state is not STOPPED:
            self._enter(STOPPED, "stopped")

    def _enter(self, target: ElectionState, reason: str = "") -> None:
        previous = self._state
        assert is_valid(previous, target), f"{previous.name} -> {target.name}"
        self._state = target
        if previous is ELECTED:
            self._candidate.end_term(reason)

    def _on_node(self, event: WatchEvent) -> None:
        deleted = event.kind is EventKind.DELETED
        self._candidate.put(Reelect() if deleted else ControllerChange())

    def _on_session(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self._sessions_lost += 1
            self._candidate.put(Expire())
        elif event is SessionEvent.CONNECTED and self._registered_after < self._sessions_lost:
            self._candidate.put(RegisterBrokerAndReelect())
