"""Connections to brokers whose versions are known: one to each address, opened on first use.

The first request on every connection is ApiVersions, and every later one goes in the highest
version that both sides know. So the same code talks to us, to Apache Kafka 3.9 and to 4.x. Where a
message changed its shape and the old shape is still served everywhere, we stay with the old one; a
caller that can speak of a topic only by name says up to which version.
"""

import asyncio
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from odradek.wire.api import ApiKey
from odradek.wire.connection import Connection, ConnectionSecurity
from odradek.wire.errors import DecodeError
from odradek.wire.negotiation import (
    FIRST_QUESTION,
    ServedVersions,
    common_version,
    served_versions,
)
from odradek.wire.schema import Message, Request

R = TypeVar("R", bound=Message)

DEFAULT_PORT = 9092
CONNECT_TIMEOUT_S = 10.0

# The last version before the shape changed: later ones name several topics, groups or keys at once.
OLD_SHAPE = {
    ApiKey.DELETE_TOPICS: 5,
    ApiKey.OFFSET_FETCH: 7,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.ADD_PARTITIONS_TO_TXN: 3,
}


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(text: str | Iterable[str]) -> list[Address]:
    """`host:port,[::1]:port,host` as a list; a port left out is 9092."""
    parts = text.split(",") if isinstance(text, str) else list(text)
    addresses = [_parse_address(part.strip()) for part in parts if part.strip()]
    if not addresses:
        raise ValueError(f"bootstrap servers look like host:port,host:port, not {text!r}")
    return addresses


def _parse_address(text: str) -> Address:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    elif text.count(":") > 1:
        host, port = text, ""
    else:
        host, _, port = text.partition(":")
    port = port or str(DEFAULT_PORT)
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"a bootstrap server looks like host:port, not {text!r}")
    return Address(host, int(port))


class BrokerConnection:
    """A connection whose peer has said which versions it serves."""

    def __init__(self, connection: Connection, versions: ServedVersions) -> None:
        self.connection = connection
        self.versions = versions

    def version_of(self, api_key: int, version_max: int | None = None) -> int:
        """The highest version that both sides know, `version_max` at most; UNSUPPORTED_VERSION if
        there is none."""
        return common_version(
            self.versions,
            api_key,
            ours_max=OLD_SHAPE.get(ApiKey(api_key), version_max),
            peer=self.connection.peer,
        )

    def start(
        self, message: Request[R], *, timeout: float | None = None, version_max: int | None = None
    ) -> "asyncio.Future[R]":
        """Send a request now; the future is its response."""
        version = self.version_of(message.API_KEY, version_max)
        return self.connection.start(message, version, timeout=timeout)

    async def request(
        self, message: Request[R], *, timeout: float | None = None, version_max: int | None = None
    ) -> R:
        """The response to `message`; ConnectionError or TimeoutError if there is none."""
        return await self.start(message, timeout=timeout, version_max=version_max)

    async def send_no_response(self, message: Message, *, timeout: float) -> None:
        """Send what the broker will not answer, Produce with acks=0, and wait until it has left.

        As with an answer that does not come, a broker that does not read in time loses its
        connection: what waits in it would stay in memory, and is the caller's to repeat.
        """
        connection = self.connection
        connection.send_no_response(message, self.version_of(message.API_KEY))
        try:
            async with asyncio.timeout(timeout):
                await connection.drain()
        except TimeoutError:
            connection.close()
            raise TimeoutError(f"{connection.peer} does not read what it is sent") from None


class ConnectionPool:
    """The open connections of one client."""

    def __init__(
        self, client_id: str, timeout_s: float, security: ConnectionSecurity | None = None
    ) -> None:
        self._client_id = client_id
        self._security = security
        self._timeout_s = timeout_s
        self._connections: dict[Address, asyncio.Task[BrokerConnection]] = {}
        self._opened = 0

    async def get(self, address: Address) -> BrokerConnection:
        """The connection to an address; concurrent callers share one attempt to
        open it."""
        task = self._connections.get(address)
        if task is None or (task.done() and _is_broken(task)):
            task = asyncio.create_task(self._open(address))
            self._connections[address] = task
        # Shielded: if one of several that wait gives up, the others still get their connection.
        return await asyncio.shield(task)

    def is_open(self, address: Address) -> bool:
        return address in self._connections and not _is_broken(self._connections[address])

    async def _open(self, address: Address) -> BrokerConnection:
        try:
            return await self._open_asking(address, FIRST_QUESTION)
        except DecodeError:
            # Some refuse an unknown version with bytes that are no response. All know v0.
            return await self._open_asking(address, 0)

    async def _open_asking(self, address: Address, version: int) -> BrokerConnection:
        connection = await Connection.open(
            address.host,
            address.port,
            client_id=self._client_id,
            timeout=min(CONNECT_TIMEOUT_S, self._timeout_s),
            security=self._security,
        )
        self._opened += 1
        try:
            versions = await served_versions(connection, version)
            connection.timeout = self._timeout_s
            return BrokerConnection(connection, versions)
        except BaseException:
            connection.close()
            raise

    async def close(self) -> None:
        """Close every connection, also those that are still being opened."""
        tasks, self._connections = list(self._connections.values()), {}
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, BrokerConnection):
                result.connection.close()

    def statistics(self) -> dict[str, int]:
        connections = [task.result() for task in self._connections.values() if not _is_broken(task)]
        return {
            "connections_opened": self._opened,
            "connections": len(connections),
            "in_flight": sum(each.connection.in_flight for each in connections),
            "bytes_sent": sum(each.connection.bytes_sent for each in connections),
            "bytes_received": sum(
                connection.connection.bytes_received for connection in connections
            ),
        }


def _is_broken(task: asyncio.Task[BrokerConnection]) -> bool:
    """Whether the connection is unusable: it failed to open, was given up, or has closed since."""
    return (
        not task.done()
        or task.cancelled()
        or task.exception() is not None
        or task.result().connection.closed
    )
