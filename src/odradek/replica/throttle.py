"""Throttles of a reassignment: how fast replicas that are not in sync may be copied.

BEHAVIOUR.md section 1.4. A topic lists its throttled replicas as `partition:broker`, or `*`; a
broker has one rate for what it sends as leader, one for what it takes as follower and one for moves
between its own directories. The rate is measured over the last eleven windows of a second, as in
Kafka, so a quota can be overdrawn for a moment and is then paid back by silence.
"""

import math
from collections import deque
from collections.abc import Callable

__all__ = ["UNLIMITED", "WINDOWS", "WINDOW_S", "Rate", "ReplicationQuota", "is_throttled_replica"]

UNLIMITED = 2**63 - 1
WINDOW_S = 1.0
WINDOWS = 11


def is_throttled_replica(throttled: frozenset[str], partition: int, broker_id: int) -> bool:
    """Whether a topic's list of throttled replicas names this one."""
    return bool(throttled) and ("*" in throttled or f"{partition}:{broker_id}" in throttled)


class Rate:
    """An amount per second, over a sliding window."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._windows: deque[tuple[int, float]] = deque()  # (window number, amount in it)
        self._amount: float = 0

    def record(self, amount: float) -> None:
        window = int(self._now() / WINDOW_S)
        if self._windows and self._windows[-1][0] == window:
            self._windows[-1] = (window, self._windows[-1][1] + amount)
        else:
            self._windows.append((window, amount))
        self._amount += amount
        self._forget(window)

    def rate(self) -> float:
        """The amount per second over the windows seen, of which there are at least all but one."""
        now = self._now()
        self._forget(int(now / WINDOW_S))
        return self._amount / _span_s(now)

    def seconds_until(self, limit: float) -> float:
        """How long nothing may be added for the rate to be at the limit; not positive if it is."""
        now = self._now()
        self._forget(int(now / WINDOW_S))
        return self._amount / limit - _span_s(now) if limit > 0 else math.inf

    def _forget(self, window: int) -> None:
        while self._windows and self._windows[0][0] <= window - WINDOWS:
            self._amount -= self._windows.popleft()[1]


def _span_s(now: float) -> float:
    """The current window has only just begun; the full ones before it count whole."""
    return (WINDOWS - 1) * WINDOW_S + now % WINDOW_S


class ReplicationQuota(Rate):
    """Bytes per second, and how many there may be."""

    def __init__(self, now: Callable[[], float], bytes_per_second: int = UNLIMITED) -> None:
        super().__init__(now)
        self.bytes_per_second = bytes_per_second

    @property
    def is_exceeded(self) -> bool:
        return self.bytes_per_second < UNLIMITED and self.rate() > self.bytes_per_second

    def statistics(self) -> dict[str, float]:
        return {"bytes_per_second": self.rate(), "limit": float(self.bytes_per_second)}
