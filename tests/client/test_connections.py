"""Addresses, and which version of a request is sent."""

import asyncio
import contextlib

import pytest

from odradek.client import Client
from odradek.client.connections import Address, BrokerConnection, parse_addresses
from odradek.wire.api import ApiKey
from odradek.wire.connection import Connection
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition


def test_addresses() -> None:
    assert parse_addresses("a:1, b:2,,c") == [Address("a", 1), Address("b", 2), Address("c", 9092)]
    assert parse_addresses(["h:1"]) == [Address("h", 1)]
    assert parse_addresses("[::1]:7,[::2],::3") == [
        Address("::1", 7),
        Address("::2", 9092),
        Address("::3", 9092),
    ]
    assert str(Address("::1", 7)) == "[::1]:7"
    assert str(Address("h", 7)) == "h:7"


@pytest.mark.parametrize("text", ["", ",", "h:x", "h:0", "h:65536", ":9092", "[]:1"])
def test_bad_addresses(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        parse_addresses(text)


async def connection(versions: dict[int, tuple[int, int]]) -> BrokerConnection:
    connection = Connection("test", 1000, 1.0)
    connection.peer = "h:1"
    return BrokerConnection(connection, versions)


async def test_the_highest_common_version_is_taken() -> None:
    older = await connection(
        {ApiKey.METADATA: (0, 5), ApiKey.PRODUCE: (3, 99), ApiKey.FETCH: (4, 17)}
    )
    assert older.version_of(ApiKey.METADATA) == 5
    assert older.version_of(ApiKey.PRODUCE) == 11
    assert older.version_of(ApiKey.FETCH) == 17
    assert older.version_of(ApiKey.FETCH, 12) == 12, "later ones name topics by id"


async def test_messages_that_changed_their_shape_stay_with_the_old_one() -> None:
    newest = await connection({ApiKey.DELETE_TOPICS: (1, 6), ApiKey.FIND_COORDINATOR: (0, 6)})
    assert newest.version_of(ApiKey.DELETE_TOPICS) == 5
    assert newest.version_of(ApiKey.FIND_COORDINATOR) == 3


async def test_no_common_version_is_said_plainly() -> None:
    future = await connection({ApiKey.METADATA: (77, 78)})
    with pytest.raises(KafkaError, match="serves Metadata 77 to 78, and we know 0 to 12") as error:
        future.version_of(ApiKey.METADATA)
    assert error.value.error is ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(KafkaError, match="does not serve Fetch"):
        future.version_of(ApiKey.FETCH)


async def free_port() -> int:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return port


async def test_a_port_without_a_listener() -> None:
    port = await free_port()
    async with Client(f"127.0.0.1:{port}", timeout_s=1.0) as client:
        with pytest.raises(ConnectionError, match=rf"no broker answers .*127.0.0.1:{port}: Conn"):
            await client.refresh()


async def test_one_that_hangs_up_is_reported() -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with Client(f"127.0.0.1:{port}", timeout_s=1.0) as client:
        with pytest.raises(ConnectionError, match="no broker answers"):
            await client.leader(TopicPartition("t", 0))
    server.close()
    await server.wait_closed()


async def test_one_that_never_answers_is_given_up() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with Client(f"127.0.0.1:{port}", timeout_s=1.0) as client:
        with pytest.raises(ConnectionError, match="no answer from"):
            await client.refresh()
    server.close()
    await server.wait_closed()
