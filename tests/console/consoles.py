"""A console in the test's own loop, asked over ASGI, on brokers in the same loop."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.broker.clusters import Cluster

from odradek.console.app import application
from odradek.console.console import Console
from odradek.console.options import Options

TOKEN = "the token of the tests"
HOST = "127.0.0.1:8092"
ORIGIN = f"http://{HOST}"
DEADLINE_S = 30.0


class Answer:
    """Status, headers and body of one answer."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def json(self) -> Any:
        return json.loads(self.body)


class Stream:
    """Server-sent events as they come."""

    def __init__(self) -> None:
        self.chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self._buffer = b""

    async def next(self, event: str | None = None) -> tuple[str, Any]:
        """The next event, or the next of this kind."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                while b"\n\n" in self._buffer:
                    block, self._buffer = self._buffer.split(b"\n\n", 1)
                    fields = dict(
                        line.split(": ", 1) for line in block.decode().split("\n") if ": " in line
                    )
                    if "data" in fields and event in (None, fields.get("event")):
                        return fields.get("event", "message"), json.loads(fields["data"])
                self._buffer += await self.chunks.get()


class Browser:
    """Asks an application as our own page would."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self.cookie = ""
        self.headers: dict[str, str] = {"host": HOST, "origin": ORIGIN}

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str | None] | None = None,
        **query: Any,
    ) -> Answer:
        messages: list[dict[str, Any]] = []

        async def send(message: Any) -> None:
            messages.append(message)

        await self._app(self._scope(method, path, query, headers), self._receive(body), send)
        start = messages[0]
        found = {name.decode(): value.decode() for name, value in start["headers"]}
        data = b"".join(message.get("body", b"") for message in messages[1:])
        answer = Answer(start["status"], found, data)
        if "set-cookie" in found:
            self.cookie = found["set-cookie"].split(";")[0]
        return answer

    async def get(self, path: str, **query: Any) -> Any:
        """The JSON of an answer that must be 200."""
        answer = await self.ask("GET", f"/api/v1{path}", **query)
        assert answer.status == 200, (path, answer.status, answer.body[:500])
        return answer.json()

    async def refused(self, path: str, **query: Any) -> Answer:
        """An answer that must be a problem."""
        answer = await self.ask("GET", f"/api/v1{path}", **query)
        assert answer.status >= 400, (path, answer.status)
        return answer

    async def post(self, path: str, body: Any = None, *, status: int = 200) -> Any:
        answer = await self.ask("POST", f"/api/v1{path}", {} if body is None else body)
        assert answer.status == status, (path, answer.status, answer.body[:2000])
        return answer.json() if answer.body else None

    async def log_in(self) -> Any:
        return await self.post("/login", {"token": TOKEN})

    @asynccontextmanager
    async def stream(self, path: str, **query: Any) -> AsyncIterator[Stream]:
        stream = Stream()
        gone = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                assert message["status"] == 200, message
            else:
                stream.chunks.put_nowait(message.get("body", b""))

        scope = self._scope("GET", f"/api/v1{path}", query, None)
        task = asyncio.ensure_future(self._app(scope, receive, send))
        try:
            yield stream
        finally:
            gone.set()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _scope(self, method: str, path: str, query: Mapping[str, Any], more: Any) -> dict[str, Any]:
        headers: dict[str, str | None] = dict(self.headers)
        if method != "GET":
            headers["content-type"] = "application/json"
        if self.cookie:
            headers["cookie"] = self.cookie
        headers |= more or {}
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": urlencode(query, doseq=True).encode(),
            "root_path": "",
            "headers": [
                (name.encode(), value.encode())
                for name, value in headers.items()
                if value is not None
            ],
            "client": ("127.0.0.1", 50000),
            "server": ("127.0.0.1", 8092),
        }

    def _receive(self, body: Any) -> Any:
        data = (
            body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        )
        sent = False

        async def receive() -> dict[str, Any]:
            nonlocal sent
            if sent:
                await asyncio.sleep(DEADLINE_S)
                return {"type": "http.disconnect"}
            sent = True
            return {"type": "http.request", "body": data, "more_body": False}

        return receive


@asynccontextmanager
async def console_on(
    bootstrap: str, tmp_path: Path, **options: Any
) -> AsyncIterator[tuple[Console, Browser]]:
    """A console that has its first picture, and a browser that is logged in."""
    console = Console(
        Options(
            bootstrap, audit_file=tmp_path / "audit", timeout_s=5.0, page_timeout_s=30.0, **options
        ),
        TOKEN,
    )
    await console.start()
    try:
        browser = Browser(application(console))
        if console.gate.logins.accounts is None:
            await browser.log_in()
        async with asyncio.timeout(DEADLINE_S):
            await console.collector.changed.wait()
        yield console, browser
    finally:
        await console.close()


def bootstrap_of(cluster: Cluster) -> str:
    return ",".join(
        f"{broker.endpoints[0].host}:{broker.endpoints[0].port}"
        for broker in cluster.brokers.values()
    )
