"""The election of the controller: the table, and what no transition may do."""

import asyncio

import pytest

from odradek.controller import controller_election
from odradek.controller.controller_election import (
    ELECTED,
    EXPIRED,
    PAUSED,
    STANDBY,
    STOPPED,
    TRANSITIONS,
    ControllerElection,
    ElectionState,
    is_valid,
)
from odradek.controller.events import ElectionEvent, Expire, Reelect, RegisterBrokerAndReelect
from odradek.store.cluster import ClusterStore
from odradek.store.controller_nodes import ControllerTerm
from odradek.store.memory import MemoryServer, MemoryStore


class Candidate:
    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.put_events: list[ElectionEvent] = []
        self.happened: list[str] = []
        self.paused = asyncio.Event()

    def put(self, event: ElectionEvent) -> None:
        self.put_events.append(event)
        if isinstance(event, RegisterBrokerAndReelect):
            self.paused.set()

    async def register(self) -> None:
        self.happened.append("register")

    async def begin_term(self, elected: ControllerTerm) -> None:
        self.happened.append(f"begin {elected.epoch}")

    def end_term(self, reason: str) -> None:
        self.happened.append(f"end: {reason}")


async def standing(server: MemoryServer, broker_id: int) -> tuple[ControllerElection, Candidate]:
    memory = MemoryStore(server)
    await memory.start()
    store = ClusterStore(memory)
    await store.prepare()
    candidate = Candidate(broker_id)
    return ControllerElection(candidate, store), candidate


def test_every_state_can_be_entered_and_stopped() -> None:
    assert set(TRANSITIONS) == set(ElectionState)
    assert all(is_valid(state, STOPPED) for state in ElectionState if state is not STOPPED)
    assert not any(is_valid(STOPPED, target) for target in ElectionState)
    assert [state for state in ElectionState if is_valid(state, ELECTED)] == [STANDBY]


async def test_one_is_elected_and_the_other_stands_by() -> None:
    server = MemoryServer()
    first, one = await standing(server, 1)
    second, two = await standing(server, 2)
    await first.elect()
    await second.elect()
    assert (first.state, second.state) == (ELECTED, STANDBY)
    assert (one.happened, two.happened) == (["begin 1"], [])


async def test_a_controller_that_resigns_is_paused_and_lets_another_win(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controller_election, "ELECTION_PAUSE_S", 0.0)
    server = MemoryServer()
    first, one = await standing(server, 1)
    second, two = await standing(server, 2)
    await first.elect()
    await second.elect()
    await first.resign("a test")
    assert first.state is PAUSED
    await first.elect()
    assert (first.state, one.happened) == (PAUSED, ["begin 1", "end: a test"])
    await second.elect()
    assert (second.state, two.happened) == (ELECTED, ["begin 2"])
    await one.paused.wait()
    await first.register_and_elect()
    assert first.state is STANDBY


async def test_a_node_that_names_another_ends_the_term() -> None:
    server = MemoryServer()
    first, one = await standing(server, 1)
    second, _ = await standing(server, 2)
    await first.elect()
    await first.check_controller_node()  # leaves the watch again, which our own node has spent
    memory = MemoryStore(server)
    await memory.start()
    await memory.delete("/controller")
    assert Reelect() in one.put_events
    await second.elect()
    await first.check_controller_node()
    assert first.state is STANDBY
    assert one.happened == ["begin 1", "end: broker 2 is the controller"]


async def test_after_a_lost_session_the_broker_registers_before_it_stands() -> None:
    server = MemoryServer()
    election, candidate = await standing(server, 1)
    await election.elect()
    store = election._store.session
    assert isinstance(store, MemoryStore)
    server.expire(store)
    await candidate.paused.wait()  # the next session asks for a registration
    assert Expire() in candidate.put_events
    election.expire()
    assert election.state is EXPIRED
    await election.register_and_elect()
    assert election.state is ELECTED
    assert candidate.happened == [
        "begin 1",
        "end: the store session expired",
        "register",
        "begin 2",
    ]


async def test_a_stopped_controller_has_no_term() -> None:
    election, candidate = await standing(MemoryServer(), 1)
    await election.elect()
    election.stop()
    election.stop()
    assert election.state is STOPPED
    assert candidate.happened == ["begin 1", "end: stopped"]
