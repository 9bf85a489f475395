"""GET from the HTTP listeners of our brokers: a body, or a stream of server-sent events."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from odradek.client.admin import Admin
from odradek.client.values import Resource, ResourceType
from odradek.wire.errors import KafkaError

HTTP_LISTENER = "odradek.http.listener"
EVERY_ADDRESS = ("", "0.0.0.0", "::")
TIMEOUT_S = 5.0
# A stream sends a comment each 15 s; one that is silent for longer is dead.
SILENCE_S = 45.0
BYTES_MAX = 32 * 1024 * 1024
HEAD_BYTES_MAX = 64 * 1024
EVENT_BYTES_MAX = 4 * 1024 * 1024


class HttpAddress(NamedTuple):
    host: str
    port: int


class ServerEvent(NamedTuple):
    """One server-sent event; `event` is "message" unless it says otherwise."""

    id: str
    event: str
    data: str


def http_address(setting: str | None, advertised: str) -> HttpAddress | None:
    """Where `odradek.http.listener` says a broker listens; None if it does not."""
    host, _, port = (setting or "").rpartition(":")
    if not port.isdecimal():
        return None
    host = host.strip("[]")
    return HttpAddress(advertised if host in EVERY_ADDRESS else host, int(port))


async def http_addresses(admin: Admin) -> dict[int, HttpAddress | None]:
    """Of every broker that the metadata lists; None for one that has no such listener, as Apache
    Kafka's, and for one that does not answer: a broker that has just died is still listed. Raises
    only if no broker answers at all."""
    nodes = (await admin.client.refresh(None)).nodes

    async def address_of(id: int, advertised: str) -> HttpAddress | None:
        resource = Resource(ResourceType.BROKER, str(id))
        try:
            entries = (await admin.describe_configs([resource]))[resource]
        except (KafkaError, OSError, TimeoutError):
            return None
        known = [] if isinstance(entries, KafkaError) else entries
        setting = next((each.value for each in known if each.name == HTTP_LISTENER), None)
        return http_address(setting, advertised)

    ids = sorted(nodes)
    found = await asyncio.gather(*(address_of(id, nodes[id].host) for id in ids))
    return dict(zip(ids, found, strict=True))


async def get_text(address: HttpAddress, path: str, token: str | None = None) -> str:
    """Raises OSError, TimeoutError, or ConnectionError if the answer is none or no 200."""
    async with asyncio.timeout(TIMEOUT_S):
        async with _opened(address, path, token, "") as (reader, head):
            body = bytearray()
            async for chunk in _chunks(reader, head):
                body += chunk
                if len(body) > BYTES_MAX:
                    raise ConnectionError("the broker's answer is too large")
            return body.decode("utf-8", "replace")


async def get_json(address: HttpAddress, path: str, token: str | None = None) -> Any:
    try:
        return json.loads(await get_text(address, path, token))
    except ValueError as error:
        raise ConnectionError("the broker's answer is not JSON") from error


async def events(
    address: HttpAddress, path: str, token: str | None = None, last_id: str = ""
) -> AsyncIterator[ServerEvent]:
    """Until the connection ends; raises as `get_text` does."""
    async with _opened(address, path, token, last_id) as (reader, head):
        buffer = bytearray()
        chunks = _chunks(reader, head)
        while True:
            async with asyncio.timeout(SILENCE_S):
                chunk = await anext(chunks, None)
            if chunk is None:
                return
            buffer += chunk
            if len(buffer) > EVENT_BYTES_MAX:
                raise ConnectionError("an event is too large")
            while (end := buffer.find(b"\n\n")) >= 0:
                event = parse_event(bytes(buffer[:end]).decode("utf-8", "replace"))
                del buffer[: end + 2]
                if event is not None:
                    yield event


def parse_event(text: str) -> ServerEvent | None:
    """None for a comment."""
    fields: dict[str, str] = {}
    for line in text.split("\n"):
        name, separator, value = line.partition(":")
        if name and separator:
            value = value.removeprefix(" ")
            fields[name] = f"{fields[name]}\n{value}" if name in fields else value
    if "data" not in fields:
        return None
    return ServerEvent(fields.get("id", ""), fields.get("event", "message"), fields["data"])


@asynccontextmanager
async def _opened(
    address: HttpAddress, path: str, token: str | None, last_id: str
) -> AsyncIterator[tuple[asyncio.StreamReader, dict[str, str]]]:
    """A connection on which the head of a 200 was read."""
    async with asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_connection(*address, limit=HEAD_BYTES_MAX)
    try:
        name = f"[{address.host}]" if ":" in address.host else address.host
        lines = [f"GET {path} HTTP/1.1", f"Host: {name}:{address.port}", "Connection: close"]
        lines += [f"Authorization: Bearer {token}"] if token else []
        lines += [f"Last-Event-ID: {last_id}"] if last_id else []
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1", "replace"))
        async with asyncio.timeout(TIMEOUT_S):
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
                raise ConnectionError("not an HTTP answer") from error
        status, *fields = head.decode("latin-1").split("\r\n")
        if " 200 " not in f"{status} ":
            raise ConnectionError(f"{path}: {status}")
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (field.partition(":") for field in fields)
        }
        yield reader, headers
    finally:
        writer.close()


async def _chunks(reader: asyncio.StreamReader, headers: dict[str, str]) -> AsyncIterator[bytes]:
    if headers.get("transfer-encoding", "").lower() != "chunked":
        left = _length(headers)
        while (left is None or left > 0) and (piece := await reader.read(1 << 16)):
            yield piece
            left = None if left is None else left - len(piece)
        if left:
            # A broker that died while it wrote: half a line may look like a whole one.
            raise ConnectionError("the broker's answer ended early")
        return
    try:
        while True:
            size = int((await reader.readline()).split(b";")[0].strip() or b"0", 16)
            if size > BYTES_MAX:
                raise ConnectionError("the broker's answer is too large")
            data = await reader.readexactly(size)
            await reader.readline()
            if not size:
                return
            yield data
    except (ValueError, asyncio.IncompleteReadError) as error:
        raise ConnectionError("the broker's answer ended early") from error


def _length(headers: dict[str, str]) -> int | None:
    """Of the body; None for a stream, which lasts as long as the connection."""
    text = headers.get("content-length")
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise ConnectionError("the broker's answer has no length")
    return int(text)
