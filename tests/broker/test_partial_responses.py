"""Responses that a socket takes in part: whatever byte it stops at, the stream is the same. As they
are, and in TLS."""

import asyncio
import socket
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.broker.clusters import batch_of, cluster, fetch_request, produce, produce_request
from tests.security.certificates import Authority, common_name

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

    def stop_after(self, first: int) -> None:
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

    def __init__(self, broker: Broker, authority: Authority | None) -> None:
        """With an authority, to whom the broker's certificate leads, the connection is TLS."""
        self._security = broker.security.of("PLAINTEXT" if authority is None else "SSL")
        self._connections = broker.connections
        self._loop = asyncio.get_running_loop()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = None if authority is None else self._tls_of(authority)
        self.raw_count = 0  # bytes that came after the requests were sent

    def _tls_of(self, authority: Authority) -> ssl.SSLObject:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=authority.pem)
        context.check_hostname = False
        return context.wrap_bio(self._incoming, self._outgoing)

    async def open(
        self, stops_at: int, *, blocks_immediately: bool = False, in_handshake: bool = False
    ) -> "Stream":
        self._socket, ours = socket.socketpair()
        self._socket.setblocking(False)
        stuttering = StutteringSocket(fileno=ours.detach())
        stuttering.stop_after(stops_at if in_handshake else 1 << 30)
        stuttering.setblocking(False)
        self._transport, _ = await self._loop.connect_accepted_socket(
            lambda: self._connections.arrival(self._security), stuttering
        )
        if self._tls is not None:
            await self._shake_hands(self._tls)
            self._tls.write(REQUESTS)
        if blocks_immediately:
            self._transport.set_write_buffer_limits(0)  # after the broker has set its own
        if not in_handshake:
            stuttering.stop_after(stops_at)
        await self._loop.sock_sendall(
            self._socket, REQUESTS if self._tls is None else self._outgoing.read()
        )
        self.raw_count = 0
        return self

    async def _shake_hands(self, tls: ssl.SSLObject) -> None:
        while True:
            try:
                tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                await self._loop.sock_sendall(self._socket, self._outgoing.read())
                self._incoming.write(await self._receive(1 << 16))

    async def _receive(self, count: int) -> bytes:
        received = await self._loop.sock_recv(self._socket, count)
        self.raw_count += len(received)
        return received

    def _decrypted(self, raw: bytes) -> bytes:
        """What can be read of all that came, without what is only there in part."""
        if self._tls is None:
            return raw
        self._incoming.write(raw)
        received = b""
        while True:
            try:
                received += self._tls.read(1 << 16)
            except ssl.SSLWantReadError:
                return received

    async def read_all(self) -> bytes:
        received = bytearray()
        while whole_frames(received) < len(session()):
            raw = await self._receive(1 << 16)
            assert raw, "closed too early"
            received += self._decrypted(raw)
        self._transport.close()
        while raw := await self._receive(1 << 16):
            assert self._decrypted(raw) == b"", "nothing comes after them"
        self._socket.close()
        return bytes(received)

    async def read_and_cut(self, count: int) -> bytes:
        """What so many bytes say; then this end is gone, whatever the broker still has to send."""
        received = bytearray()
        while self.raw_count < count:
            received += self._decrypted(await self._receive(count - self.raw_count))
        self._socket.close()
        return bytes(received)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
async def test_a_response_written_in_part_continues_where_it_stopped(
    tmp_path: Path, protocol: str
) -> None:
    authority = Authority()
    server = authority.issue(common_name("broker"))
    async with cluster(
        tmp_path,
        listeners="PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        ssl_keystore_type="PEM",
        ssl_keystore_key=server.key_pem,
        ssl_keystore_certificate_chain=server.chain_pem,
    ) as made:
        await made.create_topic("t")
        await produce(await made.connect(1), "t", b"value" * 20)
        broker = made.brokers[1]
        trusted = authority if protocol == "SSL" else None
        whole = await Stream(broker, trusted).open(1 << 20)
        expected = await whole.read_all()
        assert whole_frames(expected) == len(session())
        # Encrypted frames cannot be distinguished: TLS records are long and look random.
        places = places_to_stop(expected) if trusted is None else range(1, whole.raw_count, 7)
        for stops_at in places:
            is_even = stops_at % 2 == 0
            stream = await Stream(broker, trusted).open(stops_at, blocks_immediately=is_even)
            assert await stream.read_all() == expected, stops_at
        for cut_at in places[::3]:
            # What one client did not take is not sent to another: they are served side by side.
            one, other = Stream(broker, trusted), Stream(broker, trusted)
            await one.open(cut_at, blocks_immediately=True)
            await other.open(whole.raw_count - cut_at)
            read = await one.read_and_cut(cut_at)
            assert read == expected[: len(read)] and (trusted or len(read) == cut_at)
            assert await other.read_all() == expected, cut_at
        for stops_at in range(1, 1000, 50) if trusted else ():
            stream = await Stream(broker, trusted).open(stops_at, in_handshake=True)
            assert await stream.read_all() == expected, stops_at


async def test_a_client_reads_a_response_that_comes_in_pieces(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        stream = await (await Stream(made.brokers[1], None).open(1 << 20)).read_all()
    for position in range(len(stream)):
        assert await read_frames(stream[:position]) == frames_of(stream[:position])
        assert await read_frames(stream[:position], stream[position:]) == frames_of(stream)


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
