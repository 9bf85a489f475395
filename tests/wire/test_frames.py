"""Framing over real sockets: every split and size, and peers that lie or never read."""

import asyncio
import random
import socket
import struct
from collections.abc import Callable

import pytest

from odradek.wire import frames
from odradek.wire.frames import Buffer, FrameProtocol


class Collector(FrameProtocol):
    def __init__(self, frame_bytes_max: int = 1 << 24) -> None:
        super().__init__(frame_bytes_max, memoryview(bytearray(1024)))
        self.frames: list[bytearray] = []
        self.ended: asyncio.Future[Exception | None] = self._loop.create_future()
        self.was_drained: asyncio.Future[None] = self._loop.create_future()
        self._awaited = 0
        self._arrived = asyncio.Event()
        self.on_frame: Callable[[bytearray], None] = self.frames.append

    def frame_received(self, frame: bytearray) -> None:
        self.on_frame(frame)

    def read_finished(self) -> None:
        if self._awaited and self.bytes_received >= self._awaited:
            self._arrived.set()

    async def received(self, count: int) -> None:
        self._awaited = count
        if self.bytes_received < count:
            await self._arrived.wait()

    def lost(self, error: Exception | None) -> None:
        self.ended.set_result(error)

    def drained(self) -> None:
        if not self.was_drained.done():
            self.was_drained.set_result(None)


async def pair(collector: Collector) -> socket.socket:
    """The collector on one end of a socket, a plain non-blocking socket on the other."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    await asyncio.get_running_loop().connect_accepted_socket(lambda: collector, ours)
    return theirs


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


async def test_frames_arrive_whole_however_the_stream_is_cut() -> None:
    rng = random.Random(7)
    sizes = [0, 1, 3, 4, 100, 1016, 1020, 1021, 1024, 5000, 70_000, *rng.choices(range(3000), k=60)]
    messages = [rng.randbytes(size) for size in sizes]
    stream = b"".join(framed(message) for message in messages)
    collector = Collector()
    theirs = await pair(collector)
    loop = asyncio.get_running_loop()
    position = 0
    while position < len(stream):
        cut = rng.choice([1, 2, 3, 5, 64, 1000, 1024, 4000, 30_000])
        await loop.sock_sendall(theirs, stream[position : position + cut])
        position += cut
    theirs.close()
    assert await collector.ended is None
    assert [bytes(frame) for frame in collector.frames] == messages


async def test_a_frame_belongs_to_its_receiver() -> None:
    collector = Collector()
    theirs = await pair(collector)
    theirs.send(framed(b"first") + framed(b"second") + framed(b"x" * 5000))
    theirs.close()
    await collector.ended
    collector.frames[0][:] = b"FIRST"
    assert [bytes(frame)[:6] for frame in collector.frames] == [b"FIRST", b"second", b"xxxxxx"]


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 4097])
async def test_a_size_out_of_bounds_ends_the_connection(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    collector = Collector(frame_bytes_max=4096)
    theirs = await pair(collector)
    theirs.send(framed(b"good") + struct.pack(">i", size) + b"y" * 100 + framed(b"never seen"))
    await collector.ended
    assert [bytes(frame) for frame in collector.frames] == [b"good"]
    assert str(size) in caplog.text
    theirs.close()


async def test_a_large_claim_allocates_only_what_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "FIRST_BYTES", 2048)
    collector = Collector(frame_bytes_max=1 << 30)
    theirs = await pair(collector)
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(theirs, struct.pack(">i", 1 << 30) + b"z" * 10_000)
    await collector.received(10_004)
    held = collector._frame
    assert held is not None
    assert 10_000 <= len(held) <= frames.GROWTH * 10_000
    theirs.close()
    await collector.ended


async def test_a_claim_without_bytes_costs_next_to_nothing() -> None:
    collector = Collector(frame_bytes_max=1 << 30)
    theirs = await pair(collector)
    await asyncio.get_running_loop().sock_sendall(theirs, struct.pack(">ii", 1 << 30, 0))
    await collector.received(8)
    held = collector._frame
    assert held is not None
    assert len(held) <= frames.FIRST_BYTES
    theirs.close()
    await collector.ended


async def test_nothing_is_written_to_a_peer_that_has_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """asyncio logs a warning for each write to a connection that is lost."""
    collector = Collector()
    theirs = await pair(collector)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()  # resets it
    collector.send([bytes(1 << 20) for _ in range(50)])
    collector.flush()
    await collector.ended
    assert "socket.send() raised exception" not in caplog.text


async def test_the_size_of_a_chosen_peer_is_allocated_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    collector = Collector()
    collector.trusts_sizes = True
    grown: list[int] = []
    monkeypatch.setattr(collector, "receiving_changed", grown.append)
    theirs = await pair(collector)
    message = random.Random(3).randbytes(300_000)
    await asyncio.get_running_loop().sock_sendall(theirs, framed(message))
    theirs.close()
    await collector.ended
    assert [bytes(frame) for frame in collector.frames] == [message]
    assert grown == [300_000, -300_000]


async def test_an_unset_buffer_is_its_own_and_writable() -> None:
    for size in (0, 10, frames.UNSET_BYTES_MIN, 3_000_000):
        one, other = frames.unset_buffer(size), frames.unset_buffer(size)
        one[:], other[:] = b"1" * size, b"2" * size
        assert (type(one), bytes(one)) == (bytearray, b"1" * size)


async def test_what_is_sent_now_does_not_wait_for_the_end_of_the_turn() -> None:
    collector = Collector()
    theirs = await pair(collector)
    collector.send([framed(b"before")])
    collector.send_now([framed(b"last")])
    assert theirs.recv(100) == framed(b"before") + framed(b"last")
    theirs.close()


async def test_a_growing_frame_keeps_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "FIRST_BYTES", 16)
    collector = Collector()
    theirs = await pair(collector)
    message = random.Random(3).randbytes(100_000)
    await asyncio.get_running_loop().sock_sendall(theirs, framed(message) + framed(b"after"))
    theirs.close()
    await collector.ended
    assert [bytes(frame) for frame in collector.frames] == [message, b"after"]


async def test_parts_leave_in_order_small_and_large() -> None:
    collector = Collector()
    theirs = await pair(collector)
    rng = random.Random(11)
    parts: list[Buffer] = [
        bytes([n % 251]) * size
        for n, size in enumerate(rng.choices([1, 10, 70_000, 300_000], k=40))
    ]
    for part in parts:
        collector.send([part])
    expected = b"".join(parts)
    loop = asyncio.get_running_loop()
    received = bytearray()
    while len(received) < len(expected):
        received += await loop.sock_recv(theirs, 1 << 16)
    assert received == expected
    assert collector.bytes_sent == len(expected)
    assert collector.outgoing_bytes == 0
    collector.close()
    theirs.close()


async def test_a_peer_that_does_not_read_is_noticed_and_waited_for() -> None:
    collector = Collector()
    theirs = await pair(collector)
    part = bytes(1 << 20)
    for _ in range(8):
        collector.send([part])
    await asyncio.sleep(0)
    assert collector.is_blocked
    assert collector.outgoing_bytes >= 6 << 20
    loop = asyncio.get_running_loop()
    left = 8 << 20
    while left:
        left -= len(await loop.sock_recv(theirs, 1 << 20))
    await collector.was_drained
    # mypy does not know that it changed during the wait.
    assert not collector.is_blocked
    assert collector.outgoing_bytes == 0  # type: ignore[unreachable]
    theirs.close()
    await collector.ended


async def test_draining_waits_until_the_transport_holds_nothing_either() -> None:
    collector = Collector()
    theirs = await pair(collector)
    collector.send([bytes(1 << 20)])
    draining = asyncio.ensure_future(collector.drain())
    loop = asyncio.get_running_loop()
    left = 1 << 20
    while left:
        left -= len(await loop.sock_recv(theirs, 1 << 10))
        if draining.done():
            assert collector.transport is not None
            assert collector.transport.get_write_buffer_size() == 0
    await draining
    await collector.drain()  # nothing to wait for
    collector.send([bytes(8 << 20)])
    draining = asyncio.ensure_future(collector.drain())
    await asyncio.sleep(0)
    theirs.close()
    with pytest.raises(ConnectionError, match="is closed"):
        await draining
    with pytest.raises(ConnectionError, match="is closed"):
        await collector.drain()


async def test_close_sends_what_was_queued() -> None:
    collector = Collector()
    theirs = await pair(collector)
    collector.send([b"last", b"words"])
    collector.close()
    loop = asyncio.get_running_loop()
    received = b""
    while chunk := await loop.sock_recv(theirs, 100):
        received += chunk
    assert received == b"lastwords"
    theirs.close()


async def test_nothing_is_handed_over_after_close() -> None:
    collector = Collector()
    seen: list[bytes] = []

    def close_at_first(frame: bytearray) -> None:
        seen.append(bytes(frame))
        collector.close()

    collector.on_frame = close_at_first
    theirs = await pair(collector)
    theirs.send(framed(b"one") + framed(b"two"))
    await collector.ended
    assert seen == [b"one"]
    theirs.close()
