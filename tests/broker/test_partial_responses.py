"""Responses that a socket takes in part: whatever byte it stops at, the stream is the same. As they
are, and in TLS; those of every API, and those of a login."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.broker.clusters import (
    Cluster,
    batch_of,
    cluster,
    fetch_request,
    produce,
    produce_request,
    until,
)
from tests.broker.test_permissions import CASES, Case
from tests.security.certificates import Authority, common_name

from odradek.broker.handlers import HANDLERS
from odradek.broker.server import Broker
from odradek.security.jaas import Module, jaas_text
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.frames import FrameProtocol
from odradek.wire.header import encode_request
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.list_groups import ListGroupsRequest
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from odradek.wire.schema import Message, Request

Session = list[tuple[Request[Message], int]]


class StutteringSocket(socket.socket):
    """Takes so many bytes of what is sent, then nothing, then one byte, nothing, and the rest; or
    nothing more until it is told to."""

    def stop_after(self, first: int) -> None:
        self._counts = [1 << 30, 0, 1, 0, first]

    def hold_after(self, first: int) -> None:
        self._counts = [0, first]

    def go_on(self) -> None:
        self._counts = [1 << 30]

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


def mixed() -> Session:
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


def login() -> Session:
    return [
        (SaslHandshakeRequest(mechanism="PLAIN"), 1),
        (SaslAuthenticateRequest(auth_bytes=b"\0alice\0x"), 2),
        (MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 9),
    ]


# In place of those whose answers change from one request to the next, or are very long.
CONSTANT = [
    Case(ApiKey.PRODUCE, [], {**CASES[0].fields, "acks": 5}),
    Case(ApiKey.INIT_PRODUCER_ID, [], {"transactional_id": ""}),
    Case(ApiKey.DELETE_GROUPS, [], {"groups_names": ["nobody"]}),
    Case(ApiKey.OFFSET_DELETE, [], {"group_id": "nobody"}),
    Case(
        ApiKey.DESCRIBE_CONFIGS,
        [],
        {
            "resources": [
                {"resource_type": 2, "resource_name": "t", "configuration_keys": ["retention.ms"]}
            ]
        },
    ),
    Case(ApiKey.DESCRIBE_LOG_DIRS, [], {"topics": [{"topic": "t", "partitions": [0]}]}, 3),
    Case(ApiKey.API_VERSIONS, [], {"client_software_name": "a", "client_software_version": "1"}),
]


def sessions_of_every_api() -> list[Session]:
    """Requests of all that a broker serves, a few in each session, with constant answers."""
    replaced = {case.key for case in CONSTANT}
    cases = CONSTANT + [case for case in CASES if case.key not in replaced]
    others = sorted(set(HANDLERS) - {case.key for case in cases})
    cases += [Case(ApiKey(key), []) for key in others]
    assert {case.key for case in cases} == set(HANDLERS)
    asked = [(case.request(), case.served_version) for case in cases]
    return [asked[first : first + 3] for first in range(0, len(asked), 3)]


class Stream:
    """One connection to a broker over a socket that stutters, with all requests sent."""

    def __init__(
        self,
        broker: Broker,
        authority: Authority | None,
        session: Session,
        listener: str = "PLAINTEXT",
    ) -> None:
        """With an authority, to whom the broker's certificate leads, the connection is TLS."""
        self._security = broker.security.of(listener if authority is None else "SSL")
        self._requests = b"".join(
            bytes(part)
            for number, (message, version) in enumerate(session)
            for part in encode_request(message, version, number, "test")
        )
        self._count = len(session)
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
        self,
        stops_at: int,
        *,
        blocks_immediately: bool = False,
        in_handshake: bool = False,
        is_held: bool = False,
    ) -> "Stream":
        self._socket, ours = socket.socketpair()
        self._socket.setblocking(False)
        stuttering = self.stuttering = StutteringSocket(fileno=ours.detach())
        stuttering.stop_after(stops_at if in_handshake else 1 << 30)
        stuttering.setblocking(False)
        self._transport, _ = await self._loop.connect_accepted_socket(
            lambda: self._connections.arrival(self._security), stuttering
        )
        if self._tls is not None:
            await self._shake_hands(self._tls)
            self._tls.write(self._requests)
        if blocks_immediately:
            self._transport.set_write_buffer_limits(0)  # after the broker has set its own
        if is_held:
            stuttering.hold_after(stops_at)
        elif not in_handshake:
            stuttering.stop_after(stops_at)
        await self._loop.sock_sendall(
            self._socket, self._requests if self._tls is None else self._outgoing.read()
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
        while whole_frames(received) < self._count:
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
        while self.raw_count < count and whole_frames(received) < self._count:
            received += self._decrypted(await self._receive(count - self.raw_count))
        self._socket.close()
        return bytes(received)


@asynccontextmanager
async def secured(directory: Path, authority: Authority) -> AsyncIterator[Cluster]:
    """A broker with a record in the topic t, that can be reached in several ways."""
    server = authority.issue(common_name("broker"))
    async with cluster(
        directory,
        1,
        listeners="PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        ssl_keystore_type="PEM",
        ssl_keystore_key=server.key_pem,
        ssl_keystore_certificate_chain=server.chain_pem,
        sasl_enabled_mechanisms="PLAIN",
        **{
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas_text(
                Module.PLAIN, user_alice="x"
            )
        },
    ) as made:
        await made.create_topic("t")
        await produce(await made.connect(1), "t", b"value" * 20)
        yield made


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
async def test_a_response_written_in_part_continues_where_it_stopped(
    tmp_path: Path, protocol: str
) -> None:
    authority = Authority()
    async with secured(tmp_path, authority) as made:
        trusted = authority if protocol == "SSL" else None
        stream_of = partial(Stream, made.brokers[1], trusted, mixed())
        whole = await stream_of().open(1 << 20)
        expected = await whole.read_all()
        assert whole_frames(expected) == len(mixed())
        # Encrypted frames cannot be distinguished: TLS records are long and look random.
        places = places_to_stop(expected) if trusted is None else range(1, whole.raw_count, 7)
        for stops_at in places:
            stream = await stream_of().open(stops_at, blocks_immediately=stops_at % 2 == 0)
            assert await stream.read_all() == expected, stops_at
        for cut_at in places[::3]:
            # What one client did not take is not sent to another: they are served side by side.
            one, other = stream_of(), stream_of()
            await one.open(cut_at, blocks_immediately=True)
            await other.open(whole.raw_count - cut_at)
            read = await one.read_and_cut(cut_at)
            assert read == expected[: len(read)] and (trusted or len(read) == cut_at)
            assert await other.read_all() == expected, cut_at
        for stops_at in range(1, 1000, 50) if trusted else ():
            stream = await stream_of().open(stops_at, in_handshake=True)
            assert await stream.read_all() == expected, stops_at


async def cut_and_delay(stream_of: Callable[[], Stream], step: int) -> None:
    """At every so many bytes of what comes back, one client goes away and another has to wait."""
    await (await stream_of().open(1 << 20)).read_all()  # the first may change what is there
    whole = await stream_of().open(1 << 20)
    expected = await whole.read_all()
    numbers = [int.from_bytes(frame[:4], "big") for frame in frames_of(expected)]
    assert numbers == list(range(len(numbers)))
    for place in range(1, whole.raw_count, step):
        cut, delayed = stream_of(), stream_of()
        await cut.open(place, blocks_immediately=True)
        await delayed.open(place, blocks_immediately=place % 2 == 0)
        read = await cut.read_and_cut(place)
        assert read == expected[: len(read)], place
        assert await delayed.read_all() == expected, place


async def with_coordinators(made: Cluster) -> Broker:
    """The broker, as the coordinator of the group g and of the transactional id x."""
    connection, broker = await made.connect(1), made.brokers[1]
    await connection.request(FindCoordinatorRequest(key="g"), 3)
    await connection.request(FindCoordinatorRequest(key="x", key_type=1), 3)
    await until(lambda: broker.groups.storage.status("g") is ErrorCode.NONE)
    await until(lambda: broker.transactions.storage.status("x") is ErrorCode.NONE)
    return broker


@pytest.mark.parametrize(("protocol", "step"), [("PLAINTEXT", 1), ("SSL", 5)])
async def test_the_responses_of_every_api_are_cut_and_delayed(
    tmp_path: Path, protocol: str, step: int
) -> None:
    authority = Authority()
    async with secured(tmp_path, authority) as made:
        broker = await with_coordinators(made)
        trusted = authority if protocol == "SSL" else None
        for session in sessions_of_every_api():
            await cut_and_delay(partial(Stream, broker, trusted, session), step)


async def test_the_responses_of_a_login_are_cut_and_delayed(tmp_path: Path) -> None:
    async with secured(tmp_path, Authority()) as made:
        stream_of = partial(Stream, made.brokers[1], None, login(), "SASL_PLAINTEXT")
        await cut_and_delay(stream_of, 1)


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
async def test_answers_that_are_found_behind_a_response_written_in_part_wait_for_their_turn(
    tmp_path: Path, protocol: str
) -> None:
    authority = Authority()
    async with secured(tmp_path, authority) as made:
        for topic in ("a", "b"):
            await made.create_topic(topic)
        trusted = authority if protocol == "SSL" else None
        producer = await made.connect(1)
        for place in range(1, 20):
            waits = {"offset": place - 1, "max_wait_ms": 60_000}
            session: Session = [
                (ListGroupsRequest(), 0),
                (fetch_request("a", **waits), 4),
                (fetch_request("b", **waits), 4),
                (ListGroupsRequest(), 4),
            ]
            held, other = (Stream(made.brokers[1], trusted, session) for _ in range(2))
            await held.open(place, is_held=True, blocks_immediately=True)
            await other.open(1 << 20)
            await until(lambda: len(made.brokers[1].replicas.wheel) == 4)
            for topic in ("b", "a"):
                await produce(producer, topic, b"value")
            expected = await other.read_all()
            held.stuttering.go_on()
            assert await held.read_all() == expected, place


async def test_a_client_reads_a_response_that_comes_in_pieces(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        stream = await (await Stream(made.brokers[1], None, mixed()).open(1 << 20)).read_all()
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
