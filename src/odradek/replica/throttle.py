"""Throttles of a reassignment: how fast replicas that are not in sync may be copied.

docs/spec/controller-and-replication.md section 1.4. A topic lists its throttled replicas as
`partition:broker`, or `*`; a broker has one rate for what it sends as leader, one for what it takes
as follower and one for moves between its own directories. The rate is measured over the last eleven
windows of a second, as in Kafka, so a quota can be overdrawn for a moment and is then paid back by
silence.
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
    """An amount per second over the last windows, of which all but one are taken to be full."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._windows: deque[tuple[float, float]] = deque()  # (when it began, amount in it)
        self._amount: float = 0

    def record(self, amount: float) -> None:
        now = self._now()
        if self._windows and now - self._windows[-1][0] < WINDOW_S:
            began, before = self._windows.pop()
            self._windows.append((began, before + amount))
        else:
            self._windows.append((now, amount))
        self._amount += amount
        self._forget(now)

    def rate(self) -> float:
        now = self._now()
        self._forget(now)
        return self._amount / self._span_s(now)

    def seconds_until(self, limit: float) -> float:
        """How long nothing may be added for the rate to be at the limit; not positive if it is."""
        now = self._now()
        self._forget(now)
        return self._amount / limit - self._span_s(now) if limit > 0 else math.inf

    def _span_s(self, now: float) -> float:
        elapsed_s = now - self._windows[0][0] if self._windows else 0.0
        missing = WINDOWS - 1 - int(elapsed_s / WINDOW_S)
        return elapsed_s + max(0, missing) * WINDOW_S

    def _forget(self, now: float) -> None:
        while self._windows and now - self._windows[0][0] >= WINDOWS * WINDOW_S:
            self._amount -= self._windows.popleft()[1]


class ReplicationQuota(Rate):
    """Bytes per second, and how many there may be. Only the first window is taken to be full, so
    that a throttle is felt at once: what is copied, is copied in one go.
    """

    def __init__(self, now: Callable[[], float], bytes_per_second: int = UNLIMITED) -> None:
        super().__init__(now)
        self.bytes_per_second = bytes_per_second

    def _span_s(self, now: float) -> float:
        return max(WINDOW_S, now - self._windows[0][0] if self._windows else 0.0)

    @property
    def is_exceeded(self) -> bool:
        return self.bytes_per_second < UNLIMITED and self.rate() > self.bytes_per_second

    def seconds_exceeded(self) -> float:
        """How long it stays exceeded if nothing is taken, or 0: a reader that waits so long, and no
        longer, uses the whole rate."""
        if not self.is_exceeded:
            return 0.0
        if self.bytes_per_second <= 0:
            return self._windows[-1][0] + WINDOWS * WINDOW_S - self._now()
        elapsed_s = self._now() - self._windows[0][0]
        return max(0.0, self._amount / self.bytes_per_second - elapsed_s)

    def statistics(self) -> dict[str, float]:
        return {"bytes_per_second": self.rate(), "limit": float(self.bytes_per_second)}
