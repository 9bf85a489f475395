"""Responses that a socket takes in part: whatever byte it stops at, the stream is the same."""

import asyncio
import socket
from pathlib import Path
from typing import Any

from tests.broker.clusters import batch_of, cluster, fetch_request, produce, produce_request

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
    """Requests whose answers never change: at once, after a wait, with records and with errors."""
    asked = ListOffsetsPartition(partition_index=0, timestamp=-1)
    return [
        (ApiVersionsRequest(), 0),
        (fetch_request("t", 1, max_wait_ms=1, min_bytes=1), 4),  # the others wait behind this one
        (MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 5),
        (fetch_request("t"), 4),
        (ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[asked])]), 5),
        (produce_request("nowhere", batch_of(b"v")), 9),
    ]


async def test_a_response_written_in_part_continues_where_it_stopped(tmp_path: Path) -> None:
    requests = b"".join(
        bytes(part)
        for number, (message, version) in enumerate(session())
        for part in encode_request(message, version, number, "test")
    )
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        await produce(await made.connect(1), "t", b"value" * 20)
        connections = made.brokers[1].connections
        security = made.brokers[1].security.of("PLAINTEXT")
        loop = asyncio.get_running_loop()

        async def stream(stops_at: int, blocks_at_once: bool) -> bytes:
            theirs, ours = socket.socketpair()
            theirs.setblocking(False)
            stuttering = StutteringSocket(ours.detach(), stops_at)
            stuttering.setblocking(False)
            transport, _ = await loop.connect_accepted_socket(
                lambda: connections.arrival(security), stuttering
            )
            if blocks_at_once:
                transport.set_write_buffer_limits(0)
            await loop.sock_sendall(theirs, requests)
            received = bytearray()
            answers = 0
            while answers < len(session()):
                received += await loop.sock_recv(theirs, 1 << 16)
                answers = whole_frames(received)
            transport.close()
            received += await loop.sock_recv(theirs, 1)  # nothing comes after them
            theirs.close()
            return bytes(received)

        expected = await stream(1 << 20, blocks_at_once=False)
        assert whole_frames(expected) == len(session())
        for stops_at in places_to_stop(expected):
            assert await stream(stops_at, blocks_at_once=stops_at % 2 == 0) == expected, stops_at
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
