"""Connections to other brokers, through the listener that brokers have for each other."""

import asyncio
from collections.abc import Callable

from odradek.wire.connection import Connection, ConnectionSecurity

__all__ = ["Peers"]


class Peers:
    """One connection to each broker, for one purpose, opened when it is first needed."""

    def __init__(
        self,
        client_id: str,
        endpoint: Callable[[int], tuple[str, int] | None],
        timeout_s: float,
        security: ConnectionSecurity | None,
    ) -> None:
        self._client_id = client_id
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self._security = security
        self._open: dict[int, tuple[tuple[str, int], Connection]] = {}
        self._lock = asyncio.Lock()

    async def connection(self, broker_id: int) -> Connection:
        """Raises ConnectionError, also where the broker's address is not known."""
        async with self._lock:
            endpoint = self._endpoint(broker_id)
            if endpoint is None:
                raise ConnectionError(f"the address of broker {broker_id} is not known")
            known = self._open.get(broker_id)
            if known is not None:
                if known[0] == endpoint and not known[1].closed:
                    return known[1]
                known[1].close()
            connection = await Connection.open(
                *endpoint,
                client_id=self._client_id,
                timeout=self._timeout_s,
                security=self._security,
            )
            self._open[broker_id] = endpoint, connection
            return connection

    def close(self) -> None:
        for _, connection in self._open.values():
            connection.close()
