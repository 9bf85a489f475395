"""Calls that a log manager makes on its loop, none before everything is loaded."""

import asyncio
from collections.abc import Callable


class LoopCalls:
    """What is called before `start` waits for it."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: list[Callable[[], None]] = []

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        for action in self._waiting:
            self._loop.call_soon(action)
        self._waiting.clear()

    def soon(self, action: Callable[[], None]) -> None:
        """After the call that is under way."""
        if self._loop is None:
            self._waiting.append(action)
        else:
            self._loop.call_soon(action)

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        if self._loop is None:
            self._waiting.append(lambda: self.later(delay_s, action))
        else:
            self._loop.call_later(delay_s, action)
