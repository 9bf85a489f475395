"""The simulated network does to a program what TCP may do, and nothing else."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from odradek.sim.loop import Process, SimLoop
from odradek.sim.network import Network


class Listener(asyncio.Protocol):
    """Keeps what it gets."""

    def __init__(self) -> None:
        self.received = b""
        self.lost: list[Exception | None] = []
        self.transport: Any = None
        self.writable = True

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.append(error)

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True


def is_writable(listener: Listener) -> bool:
    return listener.writable


class BufferedListener(asyncio.BufferedProtocol):
    """Takes at most three bytes at a time."""

    def __init__(self) -> None:
        self.received = b""
        self.buffer = bytearray(3)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self.buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self.buffer[:nbytes]


class World:
    """Two hosts, one of them listening."""

    def __init__(self, listener: Callable[[], Any] = Listener) -> None:
        self.loop = SimLoop()
        self.network = Network(self.loop, random.Random(7))
        self.client = self.loop.process("a")
        self.server = self.loop.process("b")
        self.accepted: list[Any] = []
        self.listener = listener

    def _accept(self) -> Any:
        self.accepted.append(self.listener())
        return self.accepted[-1]

    async def open(self) -> Listener:
        await self.server.run(self.loop.create_server(self._accept, "b", 9092))
        return await self.connect()

    async def connect(self) -> Listener:
        connecting = self.loop.create_connection(Listener, "b", 9092)
        _, protocol = await self.client.run(connecting)
        assert isinstance(protocol, Listener)
        await asyncio.sleep(0.01)
        return protocol

    def run(self, story: Callable[["World"], Coroutine[Any, Any, None]]) -> None:
        self.loop.run_until_complete(story(self))
        assert self.loop.failures == []
        self.loop.close()


def write(process: Process, protocol: Listener, data: bytes) -> None:
    process.call(protocol.transport.write, data)


def test_bytes_arrive_in_order_and_later() -> None:
    async def story(world: World) -> None:
        near = await world.open()
        started = world.loop.time()
        for index in range(100):
            write(world.client, near, bytes([index]))
        assert world.accepted[0].received == b""
        await asyncio.sleep(1)
        assert world.accepted[0].received == bytes(range(100))
        assert world.loop.time() > started

    World().run(story)


def test_a_buffered_protocol_gets_everything_through_its_small_buffer() -> None:
    async def story(world: World) -> None:
        near = await world.open()
        write(world.client, near, b"0123456789")
        await asyncio.sleep(1)
        assert world.accepted[0].received == b"0123456789"

    World(BufferedListener).run(story)


def test_a_host_without_power_sends_nothing_until_it_is_back() -> None:
    async def story(world: World) -> None:
        near = await world.open()
        world.network.power_off("b")
        world.server.kill()
        await asyncio.sleep(30)
        assert not near.transport.is_closing()
        with pytest.raises(TimeoutError):
            await world.connect()
        world.network.power_on("b")
        await asyncio.sleep(1)
        assert near.transport.is_closing()
        with pytest.raises(ConnectionRefusedError):
            await world.connect()

    World().run(story)


def test_a_cut_link_holds_bytes_until_it_heals() -> None:
    async def story(world: World) -> None:
        near = await world.open()
        world.network.cut("a", "b")
        write(world.client, near, b"held")
        write(world.server, world.accepted[0], b"the other way is open")
        await asyncio.sleep(5)
        assert world.accepted[0].received == b""
        assert near.received == b"the other way is open"
        world.network.heal("a", "b")
        await asyncio.sleep(1)
        assert world.accepted[0].received == b"held"

    World().run(story)


def test_a_connection_silent_on_a_cut_link_is_reset_in_the_end() -> None:
    async def story(world: World) -> None:
        near = await world.open()
        world.network.cut("a", "b")
        write(world.client, near, b"lost")
        await asyncio.sleep(Network.RESET_AFTER_S + 1)
        assert near.lost == [None]

    World().run(story)


def test_a_process_that_died_on_a_cut_link_is_known_to_be_dead_when_the_link_heals() -> None:
    async def story(world: World) -> None:
        near = await world.open()
        world.network.cut("b", "a")
        world.server.kill()
        await asyncio.sleep(5)
        assert near.lost == []
        world.network.heal("b", "a")
        await asyncio.sleep(1)
        assert [type(error) for error in near.lost] == [ConnectionResetError]
        assert not world.network.unheard

    World().run(story)


@pytest.mark.parametrize("way", [("a", "b"), ("b", "a")])
def test_connecting_over_a_cut_link_times_out(way: tuple[str, str]) -> None:
    async def story(world: World) -> None:
        await world.open()
        world.network.cut(*way)
        with pytest.raises(TimeoutError):
            await world.connect()

    World().run(story)


def test_connecting_without_a_listener_is_refused() -> None:
    async def story(world: World) -> None:
        with pytest.raises(ConnectionRefusedError):
            await world.connect()

    World().run(story)


def test_a_killed_process_resets_its_peers_and_frees_its_port() -> None:
    async def story(world: World) -> None:
        near = await world.open()
        world.server.kill()
        await asyncio.sleep(1)
        assert [type(error) for error in near.lost] == [ConnectionResetError]
        with pytest.raises(ConnectionRefusedError):
            await world.connect()
        world.server = world.loop.process("b")
        await world.open()

    World().run(story)


def test_a_paused_process_takes_bytes_when_it_wakes() -> None:
    async def story(world: World) -> None:
        near = await world.open()
        world.server.pause()
        write(world.client, near, b"patience")
        await asyncio.sleep(30)
        assert world.accepted[0].received == b""
        assert near.lost == []
        world.server.resume()
        await asyncio.sleep(1)
        assert world.accepted[0].received == b"patience"

    World().run(story)


def test_close_delivers_what_was_written_before_the_end() -> None:
    async def story(world: World) -> None:
        near = await world.open()
        write(world.client, near, b"goodbye")
        world.client.call(near.transport.close)
        await asyncio.sleep(1)
        assert world.accepted[0].received == b"goodbye"
        assert world.accepted[0].lost == [None]
        assert near.lost == [None]

    World().run(story)


def test_a_slow_reader_stops_the_writer() -> None:
    async def story(world: World) -> None:
        near = await world.open()
        world.accepted[0].transport.pause_reading()
        write(world.client, near, bytes(200_000))
        await asyncio.sleep(1)
        assert not is_writable(near)
        world.server.call(world.accepted[0].transport.resume_reading)
        await asyncio.sleep(1)
        assert is_writable(near)
        assert len(world.accepted[0].received) == 200_000

    World().run(story)


def test_the_same_seed_gives_the_same_times() -> None:
    def times() -> list[float]:
        seen: list[float] = []

        async def story(world: World) -> None:
            near = await world.open()
            for _ in range(20):
                write(world.client, near, b"x")
                await asyncio.sleep(0.001)
                seen.append(world.loop.time() + len(world.accepted[0].received))

        World().run(story)
        return seen

    assert times() == times()


def test_what_was_written_before_a_close_arrives_when_the_link_heals() -> None:
    async def story(world: World) -> None:
        near = await world.open()
        world.network.cut("a", "b")
        write(world.client, near, b"late")
        world.client.call(near.transport.close)
        await asyncio.sleep(5)
        assert world.accepted[0].received == b""
        world.network.heal("a", "b")
        await asyncio.sleep(1)
        assert world.accepted[0].received == b"late"
        assert not world.network.connections

    World().run(story)
