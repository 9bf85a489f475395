"""Throttles of a reassignment: how fast replicas that are not in sync may be copied.

BEHAVIOUR.md section 1.4. A topic lists its throttled replicas as `partition:broker`, or `*`; a
broker has one rate for what it sends as leader, one for what it takes as follower and one for moves
between its own directories. The rate is measured over the last eleven windows of a second, as in
Kafka, so a quota can be overdrawn for a moment and is then paid back by silence.
"""

from collections import deque
from collections.abc import Callable

__all__ = ["UNLIMITED", "ReplicationQuota", "is_throttled_replica"]

UNLIMITED = 2**63 - 1
WINDOW_S = 1.0
WINDOWS = 11


def is_throttled_replica(throttled: frozenset[str], partition: int, broker_id: int) -> bool:
    """Whether a topic's list of throttled replicas names this one."""
    return bool(throttled) and ("*" in throttled or f"{partition}:{broker_id}" in throttled)


class ReplicationQuota:
    """Bytes per second over a sliding window."""

    def __init__(self, now: Callable[[], float], bytes_per_second: int = UNLIMITED) -> None:
        self._now = now
        self.bytes_per_second = bytes_per_second
        self._windows: deque[tuple[int, int]] = deque()  # (window number, bytes in it)
        self._bytes = 0

    def record(self, byte_count: int) -> None:
        window = int(self._now() / WINDOW_S)
        if self._windows and self._windows[-1][0] == window:
            self._windows[-1] = (window, self._windows[-1][1] + byte_count)
        else:
            self._windows.append((window, byte_count))
        self._bytes += byte_count
        self._forget(window)

    def rate(self) -> float:
        """Bytes per second over the windows seen, of which there are at least all but one."""
        now = self._now()
        window = int(now / WINDOW_S)
        self._forget(window)
        # The current window has only just begun; the full ones before it count whole.
        return self._bytes / ((WINDOWS - 1) * WINDOW_S + now % WINDOW_S)

    @property
    def is_exceeded(self) -> bool:
        return self.bytes_per_second < UNLIMITED and self.rate() > self.bytes_per_second

    def _forget(self, window: int) -> None:
        while self._windows and self._windows[0][0] <= window - WINDOWS:
            self._bytes -= self._windows.popleft()[1]

    def statistics(self) -> dict[str, float]:
        return {"bytes_per_second": self.rate(), "limit": float(self.bytes_per_second)}
