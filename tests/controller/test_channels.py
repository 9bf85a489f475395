"""Channels: one request in flight, in order, again and again while the broker lives."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.controller.scenarios.puppet import Puppet

from odradek.controller.channels import Channels, versions_for
from odradek.controller.control_request_batch import ControlRequest
from odradek.store.cluster import ClusterStore
from odradek.store.memory import MemoryServer, MemoryStore
from odradek.store.payloads import BrokerRegistration, Endpoint
from odradek.wire.connection import Connection
from odradek.wire.messages.update_metadata import UpdateMetadataRequest
from odradek.wire.protocol_version import ProtocolVersion


def update(number: int) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(controller_id=1, controller_epoch=number)


class Desk:
    """Channels, and the answers that came back through them."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, int, int]] = []
        self._changed = asyncio.Event()
        self.changes: list[bool] = []
        self.channels = Channels(
            "PLAINTEXT",
            versions_for(ProtocolVersion.V2_6_IV0),
            self._connect,
            self._on_response,
            self._on_reach,
        )
        self.connections = 0
        self.timeout = 30.0

    async def _connect(self, host: str, port: int) -> Connection:
        self.connections += 1
        return await Connection.open(host, port, client_id="1", timeout=self.timeout)

    def _on_response(self, broker_id: int, request: ControlRequest, response: Any) -> None:
        self.answers.append((broker_id, request.controller_epoch, response.error_code))
        self._changed.set()

    def _on_reach(self, broker_id: int) -> None:
        self.changes.append(self.channels._channels[broker_id].is_deserted)

    async def until(self, count: int) -> None:
        while len(self.answers) < count:
            self._changed.clear()
            await self._changed.wait()


@pytest.fixture
async def puppet() -> AsyncIterator[Puppet]:
    store = MemoryStore(MemoryServer())
    await store.start()
    cluster = ClusterStore(store)
    await cluster.prepare()
    puppet = Puppet(2, cluster)
    await puppet.start()
    yield puppet
    await puppet.stop()
    await store.close()


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    desk = Desk()
    yield desk
    desk.channels.close()


async def registration(puppet: Puppet) -> BrokerRegistration:
    found = await puppet.store.broker(puppet.id)
    assert found is not None
    return found


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  # a turn of the loop, not a time
        await asyncio.sleep(0)


async def test_requests_arrive_in_order_and_answers_come_back(desk: Desk, puppet: Puppet) -> None:
    desk.channels.add(await registration(puppet))
    for number in range(1, 6):
        desk.channels.send(2, update(number))
    await desk.until(5)
    assert desk.answers == [(2, number, 0) for number in range(1, 6)]
    assert [(version, r.controller_epoch) for version, r in puppet.requests] == [
        (6, number) for number in range(1, 6)
    ]
    assert desk.connections == 1


async def test_one_in_flight(desk: Desk, puppet: Puppet) -> None:
    puppet.is_silent = True
    desk.channels.add(await registration(puppet))
    for number in (1, 2, 3):
        desk.channels.send(2, update(number))
    await until(lambda: bool(puppet.requests))
    for _ in range(50):
        await asyncio.sleep(0)
    assert [request.controller_epoch for _, request in puppet.requests] == [1]
    assert desk.channels.statistics() == {
        "dropped": 0,
        "brokers": {2: {"queued": 3, "sent": 0, "retries": 0}},
    }


async def test_the_same_request_again_after_a_broken_connection(desk: Desk, puppet: Puppet) -> None:
    puppet.is_silent = True
    desk.channels.add(await registration(puppet))
    desk.channels.send(2, update(1))
    desk.channels.send(2, update(2))
    await until(lambda: bool(puppet.requests))
    puppet.is_silent = False
    for connection in list(puppet.connections):
        connection.close()
    await desk.until(2)
    assert [request.controller_epoch for _, request in puppet.requests] == [1, 1, 2]
    assert desk.connections == 2


async def test_no_answer_in_time_is_asked_again(desk: Desk, puppet: Puppet) -> None:
    desk.timeout = 0.05
    puppet.is_silent = True
    desk.channels.add(await registration(puppet))
    desk.channels.send(2, update(1))
    await until(lambda: len(puppet.requests) >= 2)
    puppet.is_silent = False
    await desk.until(1)
    assert {request.controller_epoch for _, request in puppet.requests} == {1}


async def test_a_broker_that_does_not_listen_yet_is_waited_for(desk: Desk, puppet: Puppet) -> None:
    there = await registration(puppet)
    await puppet.stop()
    desk.channels.add(there)
    desk.channels.send(2, update(1))
    await until(lambda: desk.channels.statistics()["brokers"][2]["retries"] >= 1)  # type: ignore[index]
    assert desk.changes == []
    await puppet.start_again(there.endpoints[0].port)
    await desk.until(1)
    assert desk.answers == [(2, 1, 0)]
    assert desk.changes == []


async def test_a_broker_that_listens_no_more_is_noticed_and_so_is_its_return(
    desk: Desk, puppet: Puppet
) -> None:
    there = await registration(puppet)
    desk.channels.add(there)
    desk.channels.send(2, update(1))
    await desk.until(1)
    await puppet.stop()
    await until(lambda: desk.changes == [True])
    assert desk.channels.is_deserted(there)
    desk.channels.add(there)  # the same incarnation keeps its channel
    assert desk.channels.is_deserted(there)
    assert not desk.channels.is_deserted(BrokerRegistration(2, there.epoch + 1, there.endpoints))
    await puppet.start_again(there.endpoints[0].port)
    await until(lambda: desk.changes == [True, False])
    assert not desk.channels.is_deserted(there)


async def test_a_connection_that_breaks_is_no_desertion(desk: Desk, puppet: Puppet) -> None:
    there = await registration(puppet)
    desk.channels.add(there)
    desk.channels.send(2, update(1))
    await desk.until(1)
    for connection in list(puppet.connections):
        connection.close()
    await until(lambda: desk.connections == 2)
    assert desk.changes == []


async def test_who_takes_connections_and_drops_them_is_not_asked_without_pause(
    desk: Desk, puppet: Puppet, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = await registration(puppet)
    desk.channels.add(there)
    desk.channels.send(2, update(1))
    await desk.until(1)
    await puppet.stop()
    pauses = []
    sleep = asyncio.sleep

    async def counted(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr("odradek.controller.channels.asyncio.sleep", counted)
    proxy = await asyncio.start_server(
        lambda _, writer: writer.transport.abort(), "127.0.0.1", there.endpoints[0].port
    )
    async with proxy:
        while desk.channels.is_deserted(there):  # a turn of the loop
            await sleep(0)
        pauses.clear()
        reached = desk.connections
        while desk.connections < reached + 10:  # a turn of the loop
            await sleep(0)
    assert len(pauses) >= 9


async def test_a_removed_broker_is_sent_nothing_more(desk: Desk, puppet: Puppet) -> None:
    puppet.is_silent = True
    desk.channels.add(await registration(puppet))
    desk.channels.send(2, update(1))
    await until(lambda: bool(puppet.requests))
    desk.channels.keep([])
    desk.channels.send(2, update(2))
    await until(lambda: not puppet.connections)
    assert desk.channels.statistics() == {"dropped": 1, "brokers": {}}
    assert len(puppet.requests) == 1


async def test_a_broker_without_our_listener_has_no_channel(desk: Desk) -> None:
    stranger = BrokerRegistration(3, 1, (Endpoint("h", 1, "ELSEWHERE"),))
    desk.channels.add(stranger)
    desk.channels.send(3, update(1))
    assert desk.channels.statistics() == {"dropped": 1, "brokers": {}}
