"""The broker's own HTTP listener, against good clients and bad ones."""

import asyncio
import contextlib
import gzip
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from odradek.broker import http
from odradek.broker.http import HttpListener, HttpRequest, HttpResponse, HttpRoute


class Bodies:
    """What the routes of the tests answer."""

    def __init__(self) -> None:
        self.left = asyncio.Event()

    def hello(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(f"hello {request.query.get('name', '')}\n")

    def large(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("line\n" * 1000)

    def broken(self, request: HttpRequest) -> HttpResponse:
        raise RuntimeError("a bug")

    def events(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(content_type="text/event-stream", stream=self._numbers())

    def flood(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(stream=self._flood())

    async def _numbers(self) -> AsyncGenerator[str, None]:
        try:
            for number in range(3):
                yield f"data: {number}\n\n"
            await asyncio.Event().wait()
        finally:
            self.left.set()

    async def _flood(self) -> AsyncGenerator[str, None]:
        try:
            while True:
                yield "x" * 65_536
                await asyncio.sleep(0)
        finally:
            self.left.set()


@asynccontextmanager
async def listening(token: str | None = None) -> AsyncIterator[tuple[HttpListener, Bodies]]:
    bodies = Bodies()
    listener = HttpListener(
        {
            "/hello": HttpRoute(bodies.hello),
            "/large": HttpRoute(bodies.large),
            "/broken": HttpRoute(bodies.broken),
            "/events": HttpRoute(bodies.events),
            "/flood": HttpRoute(bodies.flood),
            "/private": HttpRoute(bodies.hello, is_private=True),
        },
        token,
    )
    await listener.start("127.0.0.1", 0)
    try:
        yield listener, bodies
    finally:
        listener.close()


async def ask(listener: HttpListener, text: bytes) -> bytes:
    """Everything that is answered until the connection closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(text)
    try:
        return await reader.read()
    finally:
        writer.close()


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


async def test_a_get_is_answered_and_the_connection_kept() -> None:
    async with listening() as (listener, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        for name in ("a", "b%20c+d"):
            writer.write(f"GET /hello?name={name} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"200 OK" in head
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            body = await reader.readexactly(length)
        assert body == b"hello b c d\n"
        writer.close()
        assert listener.requests == 2


async def test_pipelined_requests_are_answered_in_turn() -> None:
    async with listening() as (listener, _):
        one = b"GET /hello?name=1 HTTP/1.1\r\n\r\n"
        two = b"GET /hello?name=2 HTTP/1.1\r\nConnection: close\r\n\r\n"
        answer = await ask(listener, one + two)
        assert answer.index(b"hello 1") < answer.index(b"hello 2")


async def test_large_answers_are_compressed_for_who_asks() -> None:
    async with listening() as (listener, _):
        answer = await ask(
            listener, b"GET /large HTTP/1.1\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n"
        )
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b"Content-Encoding: gzip" in head
        assert gzip.decompress(body) == b"line\n" * 1000


@pytest.mark.parametrize(
    ("request_text", "expected"),
    [
        (b"POST /hello HTTP/1.1\r\n\r\n", 405),
        (b"GET /nothing HTTP/1.1\r\nConnection: close\r\n\r\n", 404),
        (b"GET /../etc/passwd HTTP/1.1\r\nConnection: close\r\n\r\n", 404),
        (b"GET hello HTTP/1.1\r\n\r\n", 400),
        (b"GET /hello HTTP/2\r\n\r\n", 400),
        (b"nonsense\r\n\r\n", 400),
        (b"\xff\xfe\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\nx: " + b"a" * 9000 + b"\r\n\r\n", 431),
        (b"a" * 9000, 431),
        (b"GET /hello HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 400),
        (b"GET /hello HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"GET /broken HTTP/1.1\r\nConnection: close\r\n\r\n", 500),
    ],
)
async def test_what_is_wrong_is_answered_and_closed(request_text: bytes, expected: int) -> None:
    async with listening() as (listener, _):
        assert status(await ask(listener, request_text)) == expected
        good = b"GET /hello HTTP/1.1\r\nConnection: close\r\n\r\n"
        assert status(await ask(listener, good)) == 200


async def test_a_private_path_needs_loopback_or_the_token() -> None:
    route = HttpRoute(lambda request: HttpResponse("yes\n"), is_private=True)
    listener = HttpListener({"/private": route}, "s3cret")
    elsewhere = HttpRequest("/private", {}, {}, "192.0.2.1")
    assert listener.answer(elsewhere).status == 401
    wrong = HttpRequest("/private", {}, {"authorization": "Bearer no"}, "192.0.2.1")
    assert listener.answer(wrong).status == 401
    right = HttpRequest("/private", {}, {"authorization": "Bearer s3cret"}, "192.0.2.1")
    assert listener.answer(right).status == 200
    assert listener.answer(HttpRequest("/private", {}, {}, "127.0.0.1")).status == 200
    without = HttpListener({"/private": route})
    assert (
        without.answer(HttpRequest("/private", {}, {"authorization": "Bearer None"}, "x")).status
        == 401
    )


async def test_a_stream_continues_until_its_client_disconnects() -> None:
    async with listening() as (listener, bodies):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"GET /events HTTP/1.1\r\n\r\n")
        assert b"text/event-stream" in await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(27) == b"data: 0\n\ndata: 1\n\ndata: 2\n\n"
        writer.close()
        await bodies.left.wait()


async def test_a_stream_that_is_not_read_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "UNREAD_TIMEOUT_S", 0.01)
    async with listening() as (listener, bodies):
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port, limit=1024)
        writer.write(b"GET /flood HTTP/1.1\r\n\r\n")
        await bodies.left.wait()
        writer.close()


async def test_the_end_of_a_stream_that_is_not_read_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or as many clients as there may be connections would keep out all others."""
    monkeypatch.setattr(http, "UNREAD_TIMEOUT_S", 0.01)
    monkeypatch.setattr(http, "UNREAD_BYTES_MAX", 2**30)

    async def long() -> AsyncGenerator[str, None]:
        yield "x" * 2**24

    listener = HttpListener({"/long": HttpRoute(lambda _: HttpResponse(stream=long()))})
    await listener.start("127.0.0.1", 0)
    _, writer = await asyncio.open_connection("127.0.0.1", listener.port, limit=1024)
    writer.write(b"GET /long HTTP/1.1\r\n\r\n")
    async with asyncio.timeout(10):
        while not listener.requests or listener.connections:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    writer.transport.abort()
    listener.close()


async def test_pipelining_without_reading_fills_no_memory() -> None:
    async with listening() as (listener, _):
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port, limit=1024)
        for _ in range(50):
            writer.write(b"GET /large HTTP/1.1\r\n\r\n" * 1000)
        served = -1
        while served < listener.requests or not served:
            served = listener.requests
            for _ in range(100):
                await asyncio.sleep(0)
        (connection,) = listener.connections
        assert connection._transport is not None
        assert connection._transport.get_write_buffer_size() < 2 * http.UNREAD_BYTES_MAX
        assert listener.requests < 50_000
        writer.transport.abort()


async def test_scrapers_without_pause_get_one_response_in_a_turn_of_the_loop() -> None:
    """Or 64 of them would hold up the broker's clients for as many responses at a time."""
    async with listening() as (listener, _):
        loop = asyncio.get_running_loop()
        clients = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(20)]
        for _, writer in clients:
            writer.write(b"GET /hello HTTP/1.1\r\n\r\n" * 10)
        served: list[int] = []

        def turn() -> None:
            served.append(listener.requests)
            if listener.requests < 200:
                loop.call_soon(turn)

        turn()
        for reader, writer in clients:
            for _ in range(10):
                await reader.readuntil(b"hello \n")
            writer.close()
        assert max(b - a for a, b in pairwise(served)) == 1
        assert served[-1] == 200


async def test_a_page_of_another_site_is_not_this_machine() -> None:
    route = HttpRoute(lambda request: HttpResponse("yes\n"), is_private=True)
    listener = HttpListener({"/private": route})

    def ask_with(**headers: str) -> int:
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        return listener.answer(HttpRequest("/private", {}, named, "127.0.0.1")).status

    for host in ("localhost:8080", "127.0.0.1:9", "LOCALHOST", "[::1]", "[::1]:80"):
        assert ask_with(host=host) == 200, host
    for host in ("evil.example", "evil.example:80", "localhost.evil.example", "[::2]:80"):
        assert ask_with(host=host) == 401, host
    assert ask_with(host="localhost", x_forwarded_for="192.0.2.1") == 401


async def test_too_many_connections_are_refused_and_the_others_served() -> None:
    async with listening() as (listener, _):
        kept = [
            await asyncio.open_connection("127.0.0.1", listener.port)
            for _ in range(http.CONNECTIONS_MAX)
        ]
        while len(listener.connections) < http.CONNECTIONS_MAX:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert status(await ask(listener, b"GET /hello HTTP/1.1\r\n\r\n")) == 503
        reader, writer = kept[0]
        writer.write(b"GET /hello HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert status(await reader.read()) == 200
        for _, each in kept:
            each.close()


async def test_half_a_request_is_not_waited_for_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "REQUEST_TIMEOUT_S", 0.01)
    async with listening() as (listener, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(b"GET /hello HT")
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b"", "closed without a response"
        writer.close()
