"""The only place that meets kazoo's thread. Everything it says arrives on the loop, in its order.

kazoo runs one thread for its connection, and by default one more for answers and one for watches,
which loses the order between them. Here both go to one queue that the loop empties, so an event
stays before the answer that followed it on the wire, as ZooKeeper promises.
"""

from __future__ import annotations

import asyncio
import logging
import select
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.exceptions import EXCEPTIONS
from kazoo.handlers.threading import AsyncResult, SequentialThreadingHandler
from kazoo.protocol.serialization import (
    GetData,
    MultiHeader,
    int_struct,
    read_buffer,
    stat_struct,
)
from kazoo.protocol.states import ZnodeStat

logger = logging.getLogger(__name__)


class LoopQueue:
    """Functions to call on the loop, put from any thread; the loop is woken once for many."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], Any]] = deque()
        self._woken = False

    def put(self, function: Callable[[], Any]) -> None:
        self._waiting.append(function)
        if not self._woken:
            self._woken = True
            try:
                self._loop.call_soon_threadsafe(self._empty)
            except RuntimeError:
                self._waiting.clear()  # the loop is closed: no caller is left

    def _empty(self) -> None:
        # First this, then the taking: what is put from now on wakes the loop again.
        self._woken = False
        while self._waiting:
            try:
                self._waiting.popleft()()
            except Exception:
                logger.exception("an answer or event of ZooKeeper could not be handled")


class LoopResult(AsyncResult):  # type: ignore[misc]  # kazoo has no types
    """An answer of kazoo's. Its place in the queue is where it came, not where it was linked to.

    The caller links to the result a moment later, and by then the answer may be there and an
    event behind it. Queued only then, it would come after that event: the watch that the answer
    leaves would be left too late, and never be called.
    """

    def __init__(self, handler: LoopHandler) -> None:
        super().__init__(handler)
        self._callbacks: list[Callable[[LoopResult], None]] = []
        self._delivered = False

    def rawlink(self, callback: Callable[[Any], None]) -> None:
        with self._condition:
            self._callbacks.append(callback)
            if self._delivered:
                self._do_callbacks()

    def _do_callbacks(self) -> None:
        if self._handler.running:
            self._handler.completion_queue.put(self._deliver)
        else:
            self._deliver()

    def _deliver(self) -> None:
        with self._condition:
            self._delivered = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)


class LoopHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's handler, without its two worker threads, and with our own TLS.

    kazoo takes paths of PEM files only, and trusts the system's authorities besides those it is
    given.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, tls: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self.completion_queue = self.callback_queue = LoopQueue(loop)
        self._tls = tls

    def create_connection(
        self, *arguments: Any, hostname: str | None = None, **options: Any
    ) -> socket.socket:
        plain: socket.socket = super().create_connection(*arguments, **options)
        if self._tls is None:
            return plain
        try:
            return self._tls.wrap_socket(plain, server_hostname=hostname)
        except BaseException:
            plain.close()
            raise

    def select(
        self,
        readers: Sequence[socket.socket],
        writers: Sequence[socket.socket],
        _: Sequence[socket.socket],
        timeout: float | None = None,
    ) -> tuple[list[socket.socket], list[socket.socket], list[socket.socket]]:
        """Wait for sockets; kazoo's own makes and closes a selector for every byte it waits for."""
        poll = select.poll()
        for each in readers:
            poll.register(each, select.POLLIN)
        for each in writers:
            poll.register(each, select.POLLOUT)
        ready = {fd for fd, _ in poll.poll(None if timeout is None else timeout * 1000)}
        return (
            [each for each in readers if each.fileno() in ready],
            [each for each in writers if each.fileno() in ready],
            [],
        )

    def async_result(self) -> LoopResult:
        return LoopResult(self)

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False


class MultiRead:
    """Read many nodes with one request (ZooKeeper 3.6), which kazoo does not know by itself."""

    type = 22

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def serialize(self) -> bytes:
        parts = bytearray()
        for path in self._paths:
            parts += MultiHeader(GetData.type, False, -1).serialize()
            parts += GetData(path, None).serialize()
        parts += MultiHeader(-1, True, -1).serialize()
        return bytes(parts)

    @staticmethod
    def deserialize(data: bytes, offset: int) -> list[Any]:
        """For each node its data and stat, or the error in their place."""
        results: list[Any] = []
        header, offset = MultiHeader.deserialize(data, offset)
        while not header.done:
            if header.type == GetData.type:
                value, offset = read_buffer(data, offset)
                stat = ZnodeStat._make(stat_struct.unpack_from(data, offset))
                offset += stat_struct.size
                results.append((value, stat))
            else:
                (error,) = int_struct.unpack_from(data, offset)
                offset += int_struct.size
                results.append(EXCEPTIONS[error]())
            header, offset = MultiHeader.deserialize(data, offset)
        return results


class LastWarning(logging.Handler):
    """Keeps the last thing kazoo complained of, for the one line that we log ourselves."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = "no answer"

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()


def quiet_logger() -> tuple[logging.Logger, LastWarning]:
    """A logger for kazoo that prints nothing: it warns at every attempt to connect."""
    logger = logging.Logger("kazoo", logging.WARNING)
    last = LastWarning()
    logger.addHandler(last)
    return logger, last
