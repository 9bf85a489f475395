"""Requests of one connection: order, overlap, bounds, limits, and what is refused."""

import asyncio
import logging
import select
import socket
import struct
from collections.abc import Callable
from pathlib import Path

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

from odradek.broker import connection as connection_module
from odradek.broker.connection import FoundAnswers
from odradek.broker.handlers import describe_log_dirs
from odradek.store.api import SessionExpired
from odradek.wire.connection import Connection
from odradek.wire.errors import ErrorCode
from odradek.wire.header import encode_request
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from odradek.wire.messages.list_offsets import ListOffsetsRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.produce import ProduceRequest
from odradek.wire.topics import TopicPartition


class Raw:
    """A socket that sends whatever bytes a test wants."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, made: Cluster) -> "Raw":
        endpoint = made.brokers[1].endpoints[0]
        return cls(*await asyncio.open_connection(endpoint.host, endpoint.port, limit=1 << 16))

    async def frame(self) -> bytes:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def is_closed(self) -> bool:
        """Reads to the end; True if the other side ended it without another byte."""
        try:
            return await asyncio.wait_for(self.reader.read(), 60) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self.writer.close()


async def test_a_parked_fetch_lets_a_produce_behind_it_start_and_answers_stay_in_order(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        connection = await made.connect(1)
        fetch = connection.start(fetch_request("t", max_wait_ms=10_000), 11)
        answer = await produce(connection, "t", b"value")
        assert answer.error_code == ErrorCode.NONE
        assert fetch.done(), "the fetch was asked for first"
        assert fetch.result().responses[0].partitions[0].records


async def test_a_fetch_that_waits_ends_at_its_time(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        connection = await made.connect(1)
        loop = asyncio.get_running_loop()
        before = loop.time()
        response = await connection.request(fetch_request("t", max_wait_ms=60), 11)
        assert loop.time() - before >= 0.06
        assert not response.responses[0].partitions[0].records


async def test_a_client_that_leaves_leaves_nothing_behind(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        for _ in range(20):
            connection = await made.connect(1)
            connection.start(fetch_request("t", max_wait_ms=2**31 - 1), 11)
            connection.start(fetch_request("t", max_wait_ms=2**31 - 1, session_epoch=0), 11)
            await until(lambda: made.brokers[1].replicas.statistics()["waiting"] > 0)
            connection.close()
        broker = made.brokers[1]
        await until(lambda: broker.replicas.statistics()["waiting"] == 0)
        await until(lambda: broker.connections.statistics()["in_flight"] == 0)
        assert broker.fetch_sessions.statistics()["sessions"] == 0


async def test_garbage_ends_its_own_connection_and_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path, socket_request_max_bytes="100000") as made:
        await made.create_topic("t")
        well = await made.connect(1)
        hostile = [
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(64)),  # TLS
            struct.pack(">i", 2**31 - 1),
            struct.pack(">i", -1) + b"x" * 10,
            struct.pack(">i", 100_001) + b"x" * 10,
            struct.pack(">i", 0),
            struct.pack(">i", 3) + b"\0\x03\0",
            struct.pack(">ihhih", 10, 3, 9, 1, 5000),  # a client id beyond the frame
            struct.pack(">ihhih", 10, 999, 0, 1, -1),  # an API that does not exist
            struct.pack(">ihhih", 10, 3, 99, 1, -1),  # a version that does not exist
            struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 1),  # two billion topics
        ]
        for each in hostile:
            raw = await Raw.open(made)
            raw.writer.write(each)
            assert await raw.is_closed(), each
            raw.close()
            assert (await produce(well, "t", b"unmoved")).error_code == ErrorCode.NONE
        warnings = [each for each in caplog.records if each.levelno == logging.WARNING]
        assert len([each for each in warnings if "closing" in each.message]) == len(hostile)
        await until(lambda: made.brokers[1].connections.statistics()["connections"] <= 3)


async def test_an_unknown_version_of_api_versions_is_answered_in_the_first(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        raw = await Raw.open(made)
        raw.writer.write(struct.pack(">ihhih", 10, 18, 77, 5, -1))
        frame = await raw.frame()
        correlation_id, error, count, key, low, high = struct.unpack(">ihihhh", frame)
        assert (correlation_id, error, count) == (5, ErrorCode.UNSUPPORTED_VERSION, 1)
        assert (key, low, high) == (18, 0, 4)
        raw.writer.write(b"".join(encode_request(ApiVersionsRequest(), 0, 6, None)))
        assert (await raw.frame())[:6] == struct.pack(">ih", 6, 0)
        raw.close()


async def test_acks_0_is_not_answered_and_a_failure_closes(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        connection = await made.connect(1)
        connection.send_no_response(produce_request("t", batch_of(b"a"), acks=0), 9)
        answer = await produce(connection, "t", b"b")
        assert answer.base_offset == 1
        connection.send_no_response(produce_request("nowhere", batch_of(b"a"), acks=0), 9)
        await until(lambda: connection.closed)


async def test_an_unexpected_error_is_logged_and_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        connection = await made.connect(1)

        def broken(*arguments: object, **options: object) -> None:
            raise ZeroDivisionError("a fault in the code")

        monkeypatch.setattr(made.brokers[1].replicas, "append", broken)
        answer = await produce(connection, "t", b"value")
        assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert "ZeroDivisionError" in caplog.text
        caplog.clear()

        def lost(*arguments: object, **options: object) -> None:
            raise SessionExpired("", "session 7 is over")

        with monkeypatch.context() as patched:
            patched.setattr(made.brokers[1].replicas, "append", lost)
            answer = await produce(connection, "t", b"value")
        assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert "session 7 is over" in caplog.text and "Traceback" not in caplog.text
        monkeypatch.setattr(describe_log_dirs, "describe_directories", broken)
        response = await connection.request(DescribeLogDirsRequest(topics=None), 3)
        assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        with pytest.raises(ConnectionError):
            await (await made.connect(1)).request(DescribeLogDirsRequest(topics=None), 2)
        assert (await connection.request(MetadataRequest(topics=[]), 9)).brokers
        connection.send_no_response(produce_request("t", batch_of(b"a"), acks=0), 9)
        await until(lambda: connection.closed)
        caplog.clear()


async def test_an_answer_that_cannot_be_written_ends_its_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path) as made:
        well, unlucky = await made.connect(1), await made.connect(1)
        broker = made.brokers[1]
        broker.cluster_id, kept = None, broker.cluster_id  # type: ignore[assignment]
        pending = unlucky.start(DescribeClusterRequest(), 0)
        with pytest.raises(ConnectionError):
            await pending
        broker.cluster_id = kept
        assert (await well.request(MetadataRequest(topics=[]), 9)).brokers
        assert "cannot be encoded" in caplog.text
        caplog.clear()


async def test_a_slow_reader_stops_being_read_and_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "HELD_BYTES_MAX", 1 << 20)
    async with cluster(tmp_path) as made:
        await made.create_topic("t", max_message_bytes="2000000")
        well = await made.connect(1)
        assert (await produce(well, "t", b"x" * 1_000_000)).error_code == ErrorCode.NONE
        raw = await Raw.open(made)
        request = b"".join(encode_request(fetch_request("t"), 11, 1, None))
        asked = 200
        raw.writer.write(request * asked)
        await until(lambda: made.brokers[1].connections.statistics()["held_bytes"] > 0)
        for _ in range(20):
            assert (await produce(well, "t", b"y" * 1000)).error_code == ErrorCode.NONE
        assert made.brokers[1].connections.statistics()["held_bytes"] < 8_000_000
        for _ in range(asked):
            assert len(await raw.frame()) > 1_000_000
        raw.close()


async def test_a_flood_of_requests_is_answered_in_order_within_bounds(tmp_path: Path) -> None:
    async with cluster(tmp_path, queued_max_requests="10") as made:
        await made.create_topic("t")
        raw = await Raw.open(made)
        count = 3000
        flood = b"".join(
            b"".join(encode_request(MetadataRequest(topics=[]), 9, number, None))
            if number % 3
            else b"".join(encode_request(fetch_request("t", max_wait_ms=1), 11, number, None))
            for number in range(count)
        )
        raw.writer.write(flood)
        for number in range(count):
            assert (await raw.frame())[:4] == struct.pack(">i", number)
        raw.close()


@pytest.mark.parametrize(
    ("max_bytes", "message_max_bytes"),
    [(4 << 20, 1 << 20), (1, 4 << 20)],
    ids=["what was asked for", "the first batch, which comes whole"],
)
async def test_parked_fetches_are_bounded_by_what_they_may_return(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_bytes: int, message_max_bytes: int
) -> None:
    monkeypatch.setattr(connection_module, "EXPECTED_BYTES_MAX", 10 << 20)
    async with cluster(tmp_path, message_max_bytes=str(message_max_bytes)) as made:
        await made.create_topic("t")
        connection, other = await made.connect(1), await made.connect(1)
        pending = [
            connection.start(fetch_request("t", max_wait_ms=20_000, max_bytes=max_bytes), 11)
            for _ in range(20)
        ]
        waiting = made.brokers[1].replicas.statistics
        await until(lambda: waiting()["waiting"] == 3)
        await produce(other, "t", b"value")
        answers = await asyncio.gather(*pending)
        assert all(answer.responses[0].partitions[0].records for answer in answers)


class Unable:
    """Stands for a connection whose answers cannot be sent, or find others."""

    def __init__(self, answer: Callable[[], None]) -> None:
        self.peer = "test:1"
        self.is_aborted = False
        self._answer = answer

    def answer_found(self, slot: object, value: object) -> None:
        self._answer()

    def abort(self) -> None:
        self.is_aborted = True


async def test_an_answer_that_cannot_be_sent_ends_its_own_connection_alone() -> None:
    found = FoundAnswers(asyncio.get_running_loop())
    sent: list[int] = []

    def fail() -> None:
        raise RuntimeError("cannot be sent")

    unable, able = Unable(fail), Unable(lambda: sent.append(1))
    for each in unable, able:
        found.add(each, None, None)  # type: ignore[arg-type]  # as far as it is used
    found.deliver()
    assert unable.is_aborted
    assert not able.is_aborted
    assert sent == [1]


async def test_answers_that_answers_find_wait_for_the_next_turn() -> None:
    found = FoundAnswers(asyncio.get_running_loop())
    sent: list[int] = []
    second = Unable(lambda: sent.append(2))

    def first() -> None:
        sent.append(1)
        found.add(second, None, None)  # type: ignore[arg-type]  # as far as it is used

    found.expect()
    found.add(Unable(first), None, None)  # type: ignore[arg-type]  # as far as it is used
    assert sent == []
    found.deliver()
    assert sent == [1]
    await asyncio.sleep(0)
    assert sent == [1, 2]


async def test_requests_that_wait_for_replicas_are_bounded_by_their_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "UNANSWERED_BYTES_MAX", 10_000)
    of = TopicPartition("t", 0)
    async with cluster(tmp_path, brokers=2) as made:
        await made.create_topic("t", replicas=2)
        at = {id: broker.replicas.partitions[of] for id, broker in made.brokers.items()}
        leader = next(id for id, partition in at.items() if partition.is_leader)
        fetchers = made.brokers[3 - leader].replicas.fetchers
        fetchers.remove([of])
        connection = await made.connect(leader)
        request = produce_request("t", batch_of(b"x" * 4_000))
        pending = [connection.start(request, 9) for _ in range(8)]
        log = at[leader].local_log
        await until(lambda: log.end_offset == 3)
        for _ in range(100):
            await asyncio.sleep(0)
        assert log.end_offset == 3
        fetchers.add([at[3 - leader]])
        for answer in await asyncio.gather(*pending):
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


async def test_coroutines_run_one_at_a_time(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        connection = await made.connect(1)
        names = [f"auto-{number}" for number in range(5)]
        pending = [
            connection.start(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 9)
            for name in names
        ]
        responses = await asyncio.gather(*pending)
        assert [response.topics[0].name for response in responses] == names
        assert [response.topics[0].error_code for response in responses] == [0] * 5


async def test_a_burst_of_connections_finds_room_in_the_queue(tmp_path: Path) -> None:
    """Kafka's 50 places are full before the loop comes round, and a SYN is dropped for a second."""
    async with cluster(tmp_path) as made:
        address = ("127.0.0.1", made.brokers[1].endpoints[0].port)
        burst = [socket.socket() for _ in range(300)]
        for each in burst:
            each.setblocking(False)
            each.connect_ex(address)  # nothing is accepted before the next turn of the loop
        _, connected, _ = select.select([], burst, [], 0)
        assert len(connected) == len(burst)
        for each in burst:
            each.close()


async def test_too_many_connections(tmp_path: Path) -> None:
    # The controller's own connection to its broker counts as one.
    async with cluster(tmp_path, max_connections_per_ip="4") as made:
        kept = [await made.connect(1) for _ in range(3)]
        refused = await made.connect(1)
        await until(lambda: refused.closed)
        assert not any(connection.closed for connection in kept)
        kept[0].close()
        await until(lambda: made.brokers[1].connections.statistics()["connections"] == 3)
        again = await made.connect(1)
        assert (await again.request(MetadataRequest(topics=[]), 9)).brokers


async def test_clients_do_not_keep_the_other_brokers_out(tmp_path: Path) -> None:
    async with cluster(
        tmp_path,
        brokers=2,
        max_connections="8",
        listeners="CLIENTS://127.0.0.1:0,INTERNAL://127.0.0.1:0",
        inter_broker_listener_name="INTERNAL",
        listener_security_protocol_map="CLIENTS:PLAINTEXT,INTERNAL:PLAINTEXT",
    ) as made:
        connections = made.brokers[1].connections
        for _ in range(8):
            await made.connect(1)
        await until(lambda: connections.statistics()["waiting"])
        internal = made.brokers[1].endpoints[1]
        peer = await Connection.open(internal.host, internal.port, client_id="2", timeout=60)
        assert (await peer.request(MetadataRequest(topics=[]), 9)).brokers
        peer.close()


async def test_idle_connections_are_closed_and_busy_ones_are_not(tmp_path: Path) -> None:
    async with cluster(tmp_path, connections_max_idle_ms="500") as made:
        await made.create_topic("t")
        idle = await made.connect(1)
        waiting = await made.connect(1)
        fetch = waiting.start(fetch_request("t", max_wait_ms=50_000, min_bytes=1), 11)
        await until(lambda: idle.closed)
        assert not waiting.closed
        await produce(await made.connect(1), "t", b"value")
        await fetch


async def test_a_message_whose_body_is_cut_short_closes_the_connection(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        for message, version in (
            (ProduceRequest(), 9),
            (ListOffsetsRequest(), 5),
            (MetadataRequest(topics=[]), 9),
        ):
            frame = bytearray(b"".join(encode_request(message, version, 1, "c")))
            body = frame[4:-1]
            raw = await Raw.open(made)
            raw.writer.write(struct.pack(">i", len(body)) + body)
            assert await raw.is_closed()
            raw.close()


async def test_requests_wait_until_the_broker_serves(tmp_path: Path) -> None:
    """A client that connects while a broker starts is answered, once it can be answered well."""
    async with cluster(tmp_path) as made:
        broker = made.brokers[1]
        broker.connections.is_serving = False
        connection: Connection = await made.connect(1)
        pending = connection.start(MetadataRequest(topics=[]), 9)
        await until(lambda: broker.connections.statistics()["in_flight"] > 0)
        assert not pending.done()
        broker.connections.serve()
        assert (await pending).brokers
