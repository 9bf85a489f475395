"""How busy the loop is: how late its timers fire, and which share of the time it works.

A broker has one loop. A request that takes long, or a disk that does, makes every client wait, and
shows here first.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from odradek.broker.histogram import Histogram

__all__ = ["LoopLag"]

INTERVAL_S = 0.1
# The share of the time is that of the last minute, sampled each second.
SAMPLES = 60
TICKS_PER_SAMPLE = 10


class LoopLag:
    """Runs from `start` to `stop`. `cpu_s` is the processor time that this process has used."""

    def __init__(self, loop: asyncio.AbstractEventLoop, cpu_s: Callable[[], float]) -> None:
        self._loop = loop
        self._cpu_s = cpu_s
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._ticks = 0
        self._samples: deque[tuple[float, float]] = deque(maxlen=SAMPLES)
        self.times = Histogram()
        self.last_s = 0.0

    def start(self) -> None:
        self._samples.append((self._loop.time(), self._cpu_s()))
        self._wait()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self) -> None:
        self._due = self._loop.time() + INTERVAL_S
        self._timer = self._loop.call_at(self._due, self._tick)

    def _tick(self) -> None:
        # A timer may fire early by the resolution of the clock.
        self.last_s = max(0.0, self._loop.time() - self._due)
        self.times.add(self.last_s)
        self._ticks += 1
        if self._ticks % TICKS_PER_SAMPLE == 0:
            self._samples.append((self._loop.time(), self._cpu_s()))
        self._wait()

    @property
    def idle_share(self) -> float:
        """1 is idle, 0 is a whole processor used."""
        began, before = self._samples[0]
        elapsed_s = self._loop.time() - began
        if elapsed_s <= 0:
            return 1.0
        return min(1.0, max(0.0, 1.0 - (self._cpu_s() - before) / elapsed_s))
