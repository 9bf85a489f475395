"""The program that started this console and holds the cluster's processes: `odradek up --console`.

A socket joins the two. The console asks for what is to be done to a broker, one JSON object a line;
the holder does it and says when. When the holder is gone, so is the cluster: then `gone` is set and
the console ends, too.
"""

import asyncio
import json
import socket
from typing import Any

from odradek.console.web import Problem

ACTION_TIMEOUT_S = 60.0


class Holder:
    """Asks one thing after the other."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._lock = asyncio.Lock()
        self._answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self.gone = asyncio.Event()

    async def start(self) -> None:
        self._streams = await asyncio.open_connection(sock=self._socket)
        self._task = asyncio.ensure_future(self._read(self._streams[0]))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._streams is not None:
            self._streams[1].close()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                self._answers.put_nowait(json.loads(line))
        except (OSError, ValueError):
            pass  # as good as gone
        self.gone.set()

    async def do(self, action: str, broker: int) -> float:
        """Has it done; the moment it was begun, ms since 1970. Raises Problem."""
        if self._streams is None or self.gone.is_set():
            raise Problem(409, "the program that holds the brokers is gone")
        async with self._lock:
            line = json.dumps({"action": action, "broker": broker}) + "\n"
            self._streams[1].write(line.encode())
            async with asyncio.timeout(ACTION_TIMEOUT_S):
                answer = await self._answers.get()
        if answer["error"] is not None:
            raise Problem(409, str(answer["error"]))
        return float(answer["at_ms"])
