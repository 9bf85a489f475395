"""A small HTTP listener of the broker's own: GET, no body, for metrics, health and the journal.

docs/spec/console.md sections 3 and 5. It shares the loop with the broker's clients, so everything
about it is bounded: connections, bytes of a request, time to send one, time between two, bytes of
responses that are not read. A client that goes over a bound is disconnected, and costs the others
nothing. Only a broker whose `odradek.http.listener` is set imports this module.

| what is wrong | response |
|---|---|
| a method other than GET | 405 |
| a request line or headers over 8 KB | 431 |
| what is no HTTP/1 request, or has a body | 400 |
| an unknown path | 404 |
| a private path, neither from this machine nor with the token | 401 |
| more than 64 connections | 503, and closed |

"From this machine" is a loopback address at the other end and in `Host`, and no proxy between: a
page of another site that a browser here is made to load comes from loopback, too.
"""

import asyncio
import contextlib
import gzip
import hmac
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, cast

__all__ = ["HttpListener", "HttpRequest", "HttpResponse", "HttpRoute"]

CONNECTIONS_MAX = 64
REQUEST_BYTES_MAX = 8 * 1024
# To send a whole request, and to begin another on the same connection.
REQUEST_TIMEOUT_S = 10.0
IDLE_TIMEOUT_S = 60.0
# How long a client may leave a response unread before it is disconnected.
UNREAD_TIMEOUT_S = 60.0
# Above this, responses wait: no further request is begun, no further chunk of a stream written.
UNREAD_BYTES_MAX = 64 * 1024
# What is smaller is not worth it; what is larger would hold the loop up for milliseconds.
GZIP_BYTES_MIN, GZIP_BYTES_MAX = 1024, 256 * 1024
LOOPBACK = ("127.0.0.1", "::1", "::ffff:127.0.0.1")
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]", "")
PROXY_HEADERS = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
TEXT = "text/plain; charset=utf-8"
REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class HttpRequest:
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    host: str

    @property
    def is_local(self) -> bool:
        """Whether a program on this machine asks for itself."""
        name = self.headers.get("host", "")
        if not name.endswith("]"):
            name = name.rpartition(":")[0] or name
        return (
            self.host in LOOPBACK
            and name.lower() in LOCAL_NAMES
            and not any(header in self.headers for header in PROXY_HEADERS)
        )


@dataclass(frozen=True)
class HttpResponse:
    """A body, or a stream of chunks that ends when the client disconnects."""

    body: str = ""
    status: int = 200
    content_type: str = TEXT
    stream: AsyncGenerator[str, None] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


Handler: TypeAlias = Callable[[HttpRequest], HttpResponse]


@dataclass(frozen=True)
class HttpRoute:
    handle: Handler
    # Whether it needs loopback or the token.
    is_private: bool = False


class HttpListener:
    """The listening socket, its routes, and the connections there are."""

    def __init__(self, routes: Mapping[str, HttpRoute], token: str | None = None) -> None:
        self._routes = routes
        self._token = token
        self._server: asyncio.AbstractServer | None = None
        self.connections: set[HttpConnection] = set()
        self._waiting: deque[HttpConnection] = deque()
        self.requests = 0
        self.refused = 0
        self.port = -1

    async def start(self, host: str, port: int) -> None:
        """Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: HttpConnection(self), host or None, port)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.abort()

    def serve_soon(self, connection: "HttpConnection") -> None:
        """One request in a turn of the loop, of whichever connection: scrapers that ask without
        pause cost the broker's clients a response each turn, and no more."""
        self._waiting.append(connection)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._serve_one)

    def _serve_one(self) -> None:
        try:
            self._waiting[0].serve_next()
        finally:
            self._waiting.popleft()
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._serve_one)

    def answer(self, request: HttpRequest) -> HttpResponse:
        self.requests += 1
        route = self._routes.get(request.path)
        if route is None:
            known = "\n".join(sorted(self._routes))
            return HttpResponse(f"not found; there are\n{known}\n", 404)
        if route.is_private and not self._may_see(request):
            return HttpResponse(
                "needs loopback, or Authorization: Bearer with odradek.http.token\n",
                401,
                headers={"WWW-Authenticate": "Bearer"},
            )
        try:
            return route.handle(request)
        except Exception:
            logger.exception("GET %s failed", request.path)
            return HttpResponse("internal error; see the broker's log\n", 500)

    def _may_see(self, request: HttpRequest) -> bool:
        if request.is_local:
            return True
        given = request.headers.get("authorization", "")
        wanted = f"Bearer {self._token}"
        return self._token is not None and hmac.compare_digest(given.encode(), wanted.encode())

    def statistics(self) -> dict[str, int]:
        return {
            "connections": len(self.connections),
            "requests": self.requests,
            "refused": self.refused,
        }


class HttpConnection(asyncio.Protocol):
    """One client. Its requests wait for their turn, pipelined ones for that of each."""

    def __init__(self, listener: HttpListener) -> None:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._host = ""
        self._timer: asyncio.TimerHandle | None = None
        self._is_waiting = False
        self._stream: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is one, but no subclass.
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(UNREAD_BYTES_MAX)
        address = transport.get_extra_info("peername")
        self._host = address[0] if address else ""
        self._expect(REQUEST_TIMEOUT_S)
        if len(self._listener.connections) >= CONNECTIONS_MAX:
            self._listener.refused += 1
            self._send(HttpResponse("too many connections\n", 503), keep=False)
            return
        self._listener.connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._listener.connections.discard(self)
        self._stop_timer()
        if self._stream is not None:
            self._stream.cancel()
        self._transport = None

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()
        self._serve_soon()

    def data_received(self, data: bytes) -> None:
        if self._stream is not None or not self._is_open:
            return  # a streaming client has nothing more to say
        self._buffer += data
        if len(self._buffer) > REQUEST_BYTES_MAX:
            assert self._transport is not None
            self._transport.pause_reading()
        self._serve_soon()

    @property
    def _is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # Requests

    def _serve_soon(self) -> None:
        if not self._is_waiting and self._buffer:
            self._is_waiting = True
            self._listener.serve_soon(self)

    def serve_next(self) -> None:
        """The next request in the buffer, unless responses are still unread."""
        self._is_waiting = False
        if not self._is_open or self._stream is not None or not self._writable.is_set():
            return
        assert self._transport is not None
        end = self._buffer.find(b"\r\n\r\n", 0, REQUEST_BYTES_MAX + 4)
        if end < 0:
            if len(self._buffer) > REQUEST_BYTES_MAX:
                self._send(HttpResponse("request too large\n", 431), keep=False)
            return
        head = bytes(self._buffer[:end])
        del self._buffer[: end + 4]
        self._serve(head)
        if self._is_open and self._stream is None:
            if len(self._buffer) <= REQUEST_BYTES_MAX:
                self._transport.resume_reading()
            self._serve_soon()

    def _serve(self, head: bytes) -> None:
        try:
            method, target, version, headers = _parse(head)
        except ValueError as error:
            self._send(HttpResponse(f"{error}\n", 400), keep=False)
            return
        if method != "GET":
            response = HttpResponse("only GET\n", 405, headers={"Allow": "GET"})
            self._send(response, keep=False)
            return
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            self._send(HttpResponse("a request has no body here\n", 400), keep=False)
            return
        path, query = _split(target)
        response = self._listener.answer(HttpRequest(path, query, headers, self._host))
        if response.stream is not None:
            self._stop_timer()
            self._stream = self._loop.create_task(self._send_stream(response, response.stream))
            return
        keep = version != "HTTP/1.0" and headers.get("connection", "").lower() != "close"
        self._send(response, keep=keep, accepts_gzip="gzip" in headers.get("accept-encoding", ""))
        self._expect(IDLE_TIMEOUT_S)

    def _send(self, response: HttpResponse, *, keep: bool, accepts_gzip: bool = False) -> None:
        assert self._transport is not None
        body = response.body.encode()
        headers = dict(response.headers)
        if accepts_gzip and GZIP_BYTES_MIN <= len(body) <= GZIP_BYTES_MAX:
            body = gzip.compress(body, compresslevel=1)
            headers["Content-Encoding"] = "gzip"
        headers["Content-Length"] = str(len(body))
        headers["Connection"] = "keep-alive" if keep else "close"
        self._transport.write(_head(response, headers) + body)
        if not keep:
            self._transport.close()

    async def _send_stream(self, response: HttpResponse, stream: AsyncGenerator[str, None]) -> None:
        """Chunk by chunk, as fast as the client reads; one that does not read is disconnected."""
        transport = self._transport
        assert transport is not None
        headers = {**response.headers, "Cache-Control": "no-store", "Connection": "close"}
        transport.write(_head(response, headers))
        async with contextlib.aclosing(stream):
            try:
                async for chunk in stream:
                    transport.write(chunk.encode())
                    if not self._writable.is_set():
                        async with asyncio.timeout(UNREAD_TIMEOUT_S):
                            await self._writable.wait()
            except TimeoutError:
                logger.info("%s: closing, it does not read its stream", self._host)
                transport.abort()
            finally:
                # What is left may not be read either: closing alone would wait for that.
                if self._is_open:
                    self._expect(UNREAD_TIMEOUT_S)
                transport.close()

    def _expect(self, seconds: float) -> None:
        self._stop_timer()
        self._timer = self._loop.call_later(seconds, self.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _head(response: HttpResponse, headers: Mapping[str, str]) -> bytes:
    lines = [
        f"HTTP/1.1 {response.status} {REASONS[response.status]}",
        f"Content-Type: {response.content_type}",
        "X-Content-Type-Options: nosniff",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _parse(head: bytes) -> tuple[str, str, str, dict[str, str]]:
    """Method, target, version, and headers with lower-case names. Raises ValueError."""
    try:
        lines = head.decode("ascii").split("\r\n")
    except UnicodeDecodeError:
        raise ValueError("not an HTTP request") from None
    parts = lines[0].split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1.") or not parts[1].startswith("/"):
        raise ValueError("not an HTTP/1 request")
    headers = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise ValueError("a header without a name")
        headers[name.strip().lower()] = value.strip()
    return parts[0], parts[1], parts[2], headers


def _split(target: str) -> tuple[str, dict[str, str]]:
    path, _, text = target.partition("?")
    query = {}
    for pair in filter(None, text.split("&")):
        name, _, value = pair.partition("=")
        query[_unquote(name)] = _unquote(value)
    return path, query


def _unquote(text: str) -> str:
    if "%" not in text and "+" not in text:
        return text
    from urllib.parse import unquote_plus

    return unquote_plus(text)
