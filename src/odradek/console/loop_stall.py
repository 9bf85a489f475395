"""How long the console's own work has kept its loop from answering.

A timer that fires late is late for one of two reasons: the loop was busy, or the machine was. Only
the first is ours, so a delay counts as far as this thread has used the processor meanwhile.
"""

import asyncio
import time

__all__ = ["LoopStall"]

INTERVAL_S = 0.02
# The longest stall is that of this long, and of as long before.
WINDOW_S = 60.0


class LoopStall:
    """Runs from `start` to `stop`."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = self._cpu_s = self._turned_s = 0.0
        self._longest = [0.0, 0.0]

    def start(self) -> None:
        self._turned_s = asyncio.get_running_loop().time()
        self._wait()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    @property
    def longest_s(self) -> float:
        return max(self._longest)

    def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._cpu_s, self._due_s = time.thread_time(), loop.time() + INTERVAL_S
        self._timer = loop.call_at(self._due_s, self._tick)

    def _tick(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._turned_s >= WINDOW_S:
            self._longest, self._turned_s = [0.0, self._longest[0]], now_s
        stall_s = min(now_s - self._due_s, time.thread_time() - self._cpu_s)
        self._longest[0] = max(self._longest[0], stall_s)
        self._wait()
