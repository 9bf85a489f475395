"""The outgoing side against peers that answer late, wrongly, twice, or not at all."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from odradek.wire.connection import Connection
from odradek.wire.errors import DecodeError, EncodeError
from odradek.wire.frames import FrameProtocol
from odradek.wire.header import decode_request_header, encode_response
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.fetch import FetchRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse

Behaviour = Callable[["Peer", bytearray], None]


class Peer(FrameProtocol):
    """A server that does with each frame what the test says."""

    def __init__(self, behaviour: Behaviour) -> None:
        super().__init__(1 << 20)
        self.behaviour = behaviour
        self.seen: list[bytearray] = []

    def frame_received(self, frame: bytearray) -> None:
        self.seen.append(frame)
        self.behaviour(self, frame)

    def answer(self, frame: bytearray, *, shift: int = 0) -> None:
        header, _ = decode_request_header(frame)
        response = MetadataResponse(cluster_id=f"answer-{header.correlation_id}")
        self.send(encode_response(response, header.api_version, header.correlation_id + shift))


@asynccontextmanager
async def connected(
    behaviour: Behaviour, timeout: float = 30, max_response_bytes: int = 1 << 20
) -> AsyncIterator[tuple[Connection, Peer]]:
    peers: list[Peer] = []

    def make() -> Peer:
        peers.append(Peer(behaviour))
        return peers[-1]

    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connection = await Connection.open(
        "127.0.0.1",
        port,
        client_id="test",
        timeout=timeout,
        max_response_bytes=max_response_bytes,
    )
    await connection_seen(peers)
    try:
        yield connection, peers[0]
    finally:
        connection.close()
        peers[0].close()
        server.close()
        await server.wait_closed()


async def connection_seen(peers: list[Peer]) -> None:
    for _ in range(1000):
        if peers:
            return
        await asyncio.sleep(0)
    raise AssertionError("the server never saw the connection")


async def test_requests_are_pipelined_and_answered_in_order() -> None:
    held: list[bytearray] = []

    def answer_when_three_are_in(peer: Peer, frame: bytearray) -> None:
        held.append(frame)
        if len(held) == 3:
            for each in held:
                peer.answer(each)

    async with connected(answer_when_three_are_in) as (connection, peer):
        responses = await asyncio.gather(
            *(connection.request(MetadataRequest(topics=[]), 9) for _ in range(3))
        )
        assert [r.cluster_id for r in responses] == ["answer-0", "answer-1", "answer-2"]
        header, _ = decode_request_header(peer.seen[0])
        assert header.client_id == "test"
        assert connection.in_flight == 0


async def test_a_late_answer_is_a_time_out_and_ends_the_connection() -> None:
    async with connected(lambda peer, frame: None) as (connection, _):
        first = connection.start(MetadataRequest(topics=[]), 9, timeout=0.01)
        second = connection.start(MetadataRequest(topics=[]), 9)
        with pytest.raises(TimeoutError):
            await first
        with pytest.raises(ConnectionError):
            await second
        assert connection.closed
        with pytest.raises(ConnectionError, match="in time"):
            await connection.request(MetadataRequest(topics=[]), 9)


async def test_the_first_deadline_counts_whichever_request_has_it() -> None:
    async with connected(lambda peer, frame: None) as (connection, _):
        first = connection.start(MetadataRequest(topics=[]), 9)
        second = connection.start(MetadataRequest(topics=[]), 9, timeout=0.01)
        with pytest.raises(TimeoutError):
            await second
        with pytest.raises(ConnectionError):
            await first


async def test_a_request_is_in_time_whatever_the_deadlines_of_those_before_it() -> None:
    answered = 0

    def answer_the_first(peer: Peer, frame: bytearray) -> None:
        nonlocal answered
        answered += 1
        if answered == 1:
            peer.answer(frame)

    async with connected(answer_the_first) as (connection, _):
        begun = asyncio.get_running_loop().time()
        await connection.request(MetadataRequest(topics=[]), 9, timeout=0.02)
        with pytest.raises(TimeoutError):
            await connection.request(MetadataRequest(topics=[]), 9, timeout=0.1)
        assert asyncio.get_running_loop().time() - begun >= 0.1


async def test_the_last_request_of_a_turn_takes_the_others_with_it_at_once() -> None:
    async with connected(lambda peer, frame: peer.answer(frame)) as (connection, _):
        first = connection.start(MetadataRequest(topics=[]), 9)
        assert connection.bytes_sent == 0
        second = connection.start(MetadataRequest(topics=[]), 9, is_last=True)
        assert connection.bytes_sent > 0
        assert connection.outgoing_bytes == 0
        assert (await first).cluster_id == "answer-0"
        assert (await second).cluster_id == "answer-1"


async def test_what_cannot_be_encoded_is_not_waited_for() -> None:
    async with connected(lambda peer, frame: peer.answer(frame)) as (connection, _):
        with pytest.raises(EncodeError, match="FetchRequest"):
            connection.start(FetchRequest(max_bytes=1 << 31), 11, timeout=0)
        await connection.request(MetadataRequest(topics=[]), 9)
        assert not connection.closed


async def test_a_peer_that_leaves_fails_all_that_wait() -> None:
    async with connected(lambda peer, frame: peer.close()) as (connection, _):
        waiting = [connection.start(MetadataRequest(topics=[]), 9) for _ in range(3)]
        for future in waiting:
            with pytest.raises(ConnectionError):
                await future


async def test_a_wrong_correlation_id_ends_the_connection() -> None:
    async with connected(lambda peer, frame: peer.answer(frame, shift=1)) as (connection, _):
        with pytest.raises(ConnectionError, match="expected 0"):
            await connection.request(MetadataRequest(topics=[]), 9)
        assert connection.closed


async def test_an_unreadable_answer_ends_the_connection() -> None:
    def garbage(peer: Peer, frame: bytearray) -> None:
        peer.send([struct.pack(">ii", 10, 0) + b"\xff" * 6])

    async with connected(garbage) as (connection, _):
        with pytest.raises(DecodeError):
            await connection.request(MetadataRequest(topics=[]), 9)
        assert connection.closed


async def test_an_answer_to_nothing_ends_the_connection() -> None:
    def twice(peer: Peer, frame: bytearray) -> None:
        peer.answer(frame)
        peer.answer(frame)

    async with connected(twice) as (connection, _):
        await connection.request(MetadataRequest(topics=[]), 9)
        for _ in range(1000):
            if connection.closed:
                break
            await asyncio.sleep(0)
        assert connection.closed


async def test_too_large_an_answer_ends_the_connection() -> None:
    def huge(peer: Peer, frame: bytearray) -> None:
        peer.send([struct.pack(">i", 2**31 - 1)])

    async with connected(huge, max_response_bytes=1000) as (connection, _):
        with pytest.raises(ConnectionError):
            await connection.request(MetadataRequest(topics=[]), 9)


async def test_a_request_given_up_does_not_disturb_the_next() -> None:
    held: list[bytearray] = []

    def answer_both_at_the_second(peer: Peer, frame: bytearray) -> None:
        held.append(frame)
        if len(held) == 2:
            peer.answer(held[0])
            peer.answer(held[1])

    async with connected(answer_both_at_the_second) as (connection, _):
        task = asyncio.create_task(connection.request(MetadataRequest(topics=[]), 9))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        response = await connection.request(MetadataRequest(topics=[]), 9)
        assert response.cluster_id == "answer-1"


async def test_a_request_without_response_does_not_wait_for_one() -> None:
    def skip_the_first(peer: Peer, frame: bytearray) -> None:
        if len(peer.seen) == 2:
            peer.answer(frame)

    async with connected(skip_the_first) as (connection, _):
        connection.send_no_response(ApiVersionsRequest(), 0)
        response = await connection.request(MetadataRequest(topics=[]), 9)
        assert response.cluster_id == "answer-1"


async def test_a_refused_connection_is_a_connection_error() -> None:
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    with pytest.raises(ConnectionError, match=str(port)):
        await Connection.open("127.0.0.1", port, client_id="test", timeout=30)
