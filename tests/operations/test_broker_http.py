"""Reading from the HTTP listeners of brokers: of one that dies while it answers, and journals of
any length."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from odradek.broker.http import HttpListener, HttpRequest, HttpResponse, HttpRoute
from odradek.controller.journal import Entry, EntryKind, line_of
from odradek.operations import journal_book
from odradek.operations.broker_http import HttpAddress, get_json, get_text
from odradek.operations.journal_book import read_book


@asynccontextmanager
async def answering(head: str, body: str) -> AsyncIterator[HttpAddress]:
    """A broker that answers this and is gone."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}".encode())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield HttpAddress("127.0.0.1", server.sockets[0].getsockname()[1])


async def test_half_an_answer_is_none() -> None:
    """A sample that ends early would be another figure, a list of topics a shorter one."""
    async with answering("Content-Length: 20", "bytes_total 1") as broker:
        with pytest.raises(ConnectionError, match="ended early"):
            await get_text(broker, "/metrics")
    async with answering("Content-Length: 13", "bytes_total 1") as broker:
        assert await get_text(broker, "/metrics") == "bytes_total 1"
    async with answering("Content-Length: -1", "x") as broker:
        with pytest.raises(ConnectionError, match="length"):
            await get_text(broker, "/metrics")
    async with answering("Content-Type: application/json", '{"a": ') as broker:
        with pytest.raises(ConnectionError, match="JSON"):
            await get_json(broker, "/statistics")


async def test_a_book_ends_with_the_newest_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker gives so many at a time, the oldest first."""
    monkeypatch.setattr(journal_book, "PAGE", 10)
    entries = [
        Entry(number, 1, EntryKind.CONTROLLER, "why", after=f"entry {number}", sequence=number)
        for number in range(1, 26)
    ]

    def journal(request: HttpRequest) -> HttpResponse:
        after, limit = int(request.query["after"]), int(request.query["limit"])
        return HttpResponse("".join(map(line_of, entries[after : after + limit])))

    listener = HttpListener({"/journal": HttpRoute(journal)})
    await listener.start("127.0.0.1", 0)
    try:
        book = await read_book({1: HttpAddress("127.0.0.1", listener.port)})
    finally:
        listener.close()
    assert [kept.entry.sequence for kept in book] == list(range(1, 26))
    assert listener.requests == 3
