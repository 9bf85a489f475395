"""The only place that meets kazoo's thread. Everything it says arrives on the loop, in its order.

kazoo runs one thread for its connection, and by default one more for answers and one for watches,
which loses the order between them. Here both go to one queue that the loop empties, so an event
stays before the answer that followed it on the wire, as ZooKeeper promises.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

log = logging.getLogger(__name__)


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
                self._waiting.clear()  # the loop is closed: nobody is left to be told

    def _empty(self) -> None:
        # First this, then the taking: what is put from now on wakes the loop again.
        self._woken = False
        while self._waiting:
            try:
                self._waiting.popleft()()
            except Exception:
                log.exception("an answer or event of ZooKeeper could not be handled")


class LoopHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's handler, without its two worker threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.completion_queue = self.callback_queue = LoopQueue(loop)

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False


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
