"""The console behind a real socket."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.console.consoles import TOKEN

from odradek.console import connection
from odradek.console.console import Console
from odradek.console.options import Options
from odradek.console.server import Server


@asynccontextmanager
async def serving(tmp_path: Path) -> AsyncIterator[tuple[Server, int]]:
    options = Options("127.0.0.1:1", port=0, audit_file=tmp_path / "audit", timeout_s=0.1)
    server = Server(Console(options, TOKEN))
    port = server.bind()
    served = asyncio.ensure_future(server.serve())
    try:
        yield server, port
    finally:
        server.stop()
        await served


async def test_the_parts_of_an_answer_do_not_wait_for_acknowledgements(tmp_path: Path) -> None:
    """Head and body are two writes: without TCP_NODELAY the second waits 40 ms for the first."""
    async with serving(tmp_path) as (server, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port)
        assert (await reader.readline()).split()[1] == b"200"
        (client,) = server._server.server_state.connections
        accepted = client.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()


async def ended(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(20):
        try:
            while await reader.read(65_536):
                pass
        except ConnectionError:
            pass


@pytest.mark.parametrize(
    "half",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n",
        b"POST /api/v1/login HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nOrigin: http://127.0.0.1:%d\r\n"
        b"Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{",
    ],
)
async def test_half_a_request_is_not_waited_for_forever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, half: bytes
) -> None:
    monkeypatch.setattr(connection, "REQUEST_S", 0.1)
    async with serving(tmp_path) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(half.replace(b"%d", str(port).encode()))
        await ended(reader)
        writer.close()


async def test_a_request_that_is_being_answered_has_no_such_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "REQUEST_S", 0.05)
    async with serving(tmp_path) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"GET /api/v1/events?watch=overview HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"
            b"Authorization: Bearer %s\r\n\r\n" % (port, TOKEN.encode())
        )
        started = asyncio.get_running_loop().time()
        async with asyncio.timeout(20):
            # The second picture comes five seconds after the first: far beyond the limit.
            await reader.readuntil(b"event: picture")
            await reader.readuntil(b"event: picture")
        assert asyncio.get_running_loop().time() - started > connection.REQUEST_S
        writer.close()


async def test_a_client_that_does_not_read_its_answers_is_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "UNREAD_S", 0.1)
    async with serving(tmp_path) as (server, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        get = b"GET /static/vendor/uplot.js HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port
        writer.write(get * 1000)
        async with asyncio.timeout(20):
            while not server._server.server_state.total_requests:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            while server._server.server_state.connections:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        writer.close()


async def test_connections_beyond_the_limit_are_closed_and_the_others_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECTIONS_MAX", 3)
    async with serving(tmp_path) as (_, port):
        kept = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        kept[0][1].write(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port)
        assert (await kept[0][0].readline()).split()[1] == b"200"
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await ended(reader)
        kept[1][1].write(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % port)
        assert (await kept[1][0].readline()).split()[1] == b"200"
        for _, each in [*kept, (reader, writer)]:
            each.close()
