"""A connection of one client: uvicorn's, with limits on what it may make the console wait for.

uvicorn waits for the rest of a request, and for the reader of an answer, as long as the client
likes, on any number of connections: half requests alone would fill the memory, before a login.
"""

import asyncio
from typing import cast

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["ClientConnection"]

# Of all clients: streams of tabs, their requests, and some that just stay open.
CONNECTIONS_MAX = 512
# For a whole request with its body, from the first byte on or since the connection was made.
REQUEST_S = 30.0
# How long what was written may stay unread.
UNREAD_S = 60.0


class ClientConnection(H11Protocol):
    """Is aborted when a limit is reached."""

    _late: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        if len(self.connections) > CONNECTIONS_MAX:
            self.transport.abort()
            return
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._stop_unread()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(UNREAD_S, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_unread()
        super().resume_writing()

    def _watch(self) -> None:
        """Unless a whole request is being answered, one must come in time."""
        cycle = self.cycle
        if cycle is not None and not cycle.response_complete and not cycle.more_body:
            self._stop_waiting()
        elif self._late is None and not self.transport.is_closing():
            self._late = self.loop.call_later(REQUEST_S, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _stop_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
