"""Responses that a socket takes in part: whatever byte it stops at, the stream is the same."""

import asyncio
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.broker.clusters import batch_of, cluster, fetch_request, produce, produce_request

from odradek.broker.server import Broker
from odradek.wire.frames import FrameProtocol
from odradek.wire.header import encode_request
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.schema import Message


class StutteringSocket(socket.socket):
    """Takes so many bytes of what is sent, then nothing, then one byte, nothing, and the rest."""

    def __init__(self, fileno: int, first: int) -> None:
        super().__init__(fileno=fileno)
        self._counts = [1 << 30, 0, 1, 0, first]

    def sendmsg(self, buffers: Iterable[bytes | bytearray | memoryview], *_: Any) -> int:  # type: ignore[override]
        """How asyncio sends what is left, from Python 3.12 on."""
        return self.send(b"".join(buffers))

    def send(self, data: Any, flags: int = 0) -> int:
        count = self._counts.pop() if len(self._counts) > 1 else self._counts[0]
        if count == 0:
            raise BlockingIOError
        with memoryview(data) as view:
            sent = super().send(view[:count], flags)
        if sent < count and self._counts and count < 1 << 30:
            self._counts.append(count - sent)  # all of this write: it stops within a later one
        return sent


def session() -> list[tuple[Message, int]]:
    """Requests with constant answers: immediate, after a wait, with records, with errors."""
    asked = ListOffsetsPartition(partition_index=0, timestamp=-1)
    return [
        (ApiVersionsRequest(), 0),
        (fetch_request("t", 1, max_wait_ms=1, min_bytes=1), 4),  # the others wait behind this one
        (MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 5),
        (fetch_request("t"), 4),
        (ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[asked])]), 5),
        (produce_request("nowhere", batch_of(b"v")), 9),
    ]


REQUESTS = b"".join(
    bytes(part)
    for number, (message, version) in enumerate(session())
    for part in encode_request(message, version, number, "test")
)


class Stream:
    """One connection to a broker over a socket that stutters, with all requests sent."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loop = asyncio.get_running_loop()

    async def open(self, stops_at: int, *, blocks_immediately: bool = False) -> "Stream":
        self._socket, ours = socket.socketpair()
        self._socket.setblocking(False)
        stuttering = StutteringSocket(ours.detach(), stops_at)
        stuttering.setblocking(False)
        security = self._broker.security.of("PLAINTEXT")
        self._transport, _ = await self._loop.connect_accepted_socket(
            lambda: self._broker.connections.arrival(security), stuttering
        )
        if blocks_immediately:
            self._transport.set_write_buffer_limits(0)
        await self._loop.sock_sendall(self._socket, REQUESTS)
        return self

    async def read_all(self) -> bytes:
        received = bytearray()
        while whole_frames(received) < len(session()):
            received += await self._loop.sock_recv(self._socket, 1 << 16)
        self._transport.close()
        received += await self._loop.sock_recv(self._socket, 1)  # nothing comes after them
        self._socket.close()
        return bytes(received)

    async def read_and_cut(self, count: int) -> bytes:
        """So many bytes; then this end is gone, whatever the broker still has to send."""
        received = bytearray()
        while len(received) < count:
            received += await self._loop.sock_recv(self._socket, count - len(received))
        self._socket.close()
        return bytes(received)


async def test_a_response_written_in_part_continues_where_it_stopped(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        await produce(await made.connect(1), "t", b"value" * 20)
        broker = made.brokers[1]
        expected = await (await Stream(broker).open(1 << 20)).read_all()
        assert whole_frames(expected) == len(session())
        for stops_at in places_to_stop(expected):
            is_even = stops_at % 2 == 0
            stream = await Stream(broker).open(stops_at, blocks_immediately=is_even)
            assert await stream.read_all() == expected, stops_at
        for cut_at in places_to_stop(expected)[::3]:
            # What one client did not take is not sent to another: they are served side by side.
            one, other = Stream(broker), Stream(broker)
            await one.open(cut_at, blocks_immediately=True)
            await other.open(len(expected) - cut_at)
            assert await one.read_and_cut(cut_at) == expected[:cut_at]
            assert await other.read_all() == expected, cut_at
    for position in range(len(expected)):
        assert await read_frames(expected[:position]) == frames_of(expected[:position])
        assert await read_frames(expected[:position], expected[position:]) == frames_of(expected)


def places_to_stop(stream: bytes) -> list[int]:
    """Every byte in and around the sizes and headers of frames, and every fifth of the others."""
    starts = [0]
    for frame in frames_of(stream):
        starts.append(starts[-1] + 4 + len(frame))
    near = {start + distance for start in starts for distance in range(-6, 13)}
    return [at for at in range(1, len(stream)) if at in near or at % 5 == 0]


class Reading(FrameProtocol):
    def __init__(self) -> None:
        super().__init__(1 << 20)
        self.frames: list[bytes] = []
        self.ended: asyncio.Future[None] = self._loop.create_future()

    def frame_received(self, frame: bytearray) -> None:
        self.frames.append(bytes(frame))

    def lost(self, error: Exception | None) -> None:
        self.ended.set_result(None)


async def read_frames(*pieces: bytes) -> list[bytes]:
    """What a client makes of a stream that comes in pieces, some turns apart, and then ends."""
    theirs, ours = socket.socketpair()
    reading = Reading()
    await asyncio.get_running_loop().connect_accepted_socket(lambda: reading, ours)
    for piece in pieces:
        theirs.send(piece)
        for _ in range(3):
            await asyncio.sleep(0)
    theirs.close()
    await reading.ended
    return reading.frames


def whole_frames(stream: bytes | bytearray) -> int:
    return len(frames_of(stream))


def frames_of(stream: bytes | bytearray) -> list[bytes]:
    """The whole frames in a stream, without their sizes."""
    found = []
    position = 0
    while position + 4 <= len(stream):
        start = position + 4
        position = start + int.from_bytes(stream[position:start], "big")
        if position <= len(stream):
            found.append(bytes(stream[start:position]))
    return found
