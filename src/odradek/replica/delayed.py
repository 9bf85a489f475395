"""Operations that wait: for a high watermark, for data, for a topic; and the wheel that ends them.

Rules
1. An operation ends once: completed by what it waits for, expired by its time-out, or cancelled.
   A second end finds it done.
2. When it ends, it leaves everything it was registered with. Nothing that waits is kept by anything
   that no longer does.
3. Adding, ending and expiring cost the same whatever the number waiting: time-outs go into buckets
   by their tick, and one timer waits for the earliest bucket. A bucket that emptied meanwhile is
   passed over when its turn comes: when nothing waits, the broker wakes once more and then sleeps.
   That turn may be weeks away, if a client asked for it: all that are empty go whenever there are
   twice as many buckets as were in use the last time.
"""

import asyncio
from abc import ABC, abstractmethod
from heapq import heapify, heappop, heappush

__all__ = ["Delayed", "TimeoutWheel"]

TICK_S = 0.01
WAITING_MAX = 1_000_000
# More than half a minute's ticks, the usual time-out: those come and go without a sweep.
BUCKETS_MIN = 4096


class Delayed(ABC):
    """One waiting operation. Subclasses say what to do at the end and where to deregister."""

    __slots__ = ("_bucket", "_wheel", "done")

    def __init__(self) -> None:
        self.done = False
        self._wheel: TimeoutWheel | None = None
        self._bucket: dict[Delayed, None] | None = None

    def finish(self) -> bool:
        """Mark as ended and leave the wheel and every key. False if it had ended before."""
        if self.done:
            return False
        self.done = True
        if self._wheel is not None:
            self._wheel.remove(self)
        self.unregister()
        return True

    @abstractmethod
    def unregister(self) -> None:
        """Leave whatever this operation was registered with."""

    @abstractmethod
    def expire(self) -> None:
        """The time is up."""


class TimeoutWheel:
    """Buckets of operations by the tick in which their time is up."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tick_s: float = TICK_S) -> None:
        self._loop = loop
        self._tick_s = tick_s
        self._buckets: dict[int, dict[Delayed, None]] = {}
        self._ticks: list[int] = []  # heap of the keys of _buckets
        self._sweep_at = BUCKETS_MIN
        self._timer: asyncio.TimerHandle | None = None
        self._timer_tick = 0
        self._waiting = 0
        self.waiting_by_kind: dict[type[Delayed], int] = {}
        self._expired = 0

    def __len__(self) -> int:
        return self._waiting

    def add(self, operation: Delayed, timeout_s: float) -> None:
        """Expire `operation` no sooner than `timeout_s` from now and at most a tick later."""
        assert operation._wheel is None
        assert not operation.done
        assert self._waiting < WAITING_MAX, "too many operations wait"
        tick = int((self._loop.time() + timeout_s) / self._tick_s) + 1
        bucket = self._buckets.get(tick)
        if bucket is None:
            if len(self._buckets) >= self._sweep_at:
                self._sweep()
            bucket = self._buckets[tick] = {}
            heappush(self._ticks, tick)
            if self._timer is None or tick < self._timer_tick:
                self._arm(tick)
        bucket[operation] = None
        operation._wheel, operation._bucket = self, bucket
        self._waiting += 1
        kind = type(operation)
        self.waiting_by_kind[kind] = self.waiting_by_kind.get(kind, 0) + 1

    def remove(self, operation: Delayed) -> None:
        bucket = operation._bucket
        assert bucket is not None
        del bucket[operation]
        operation._wheel = operation._bucket = None
        self._waiting -= 1
        self.waiting_by_kind[type(operation)] -= 1

    def _sweep(self) -> None:
        """Drop the empty buckets. The timer may be left waiting for one: it finds nothing then."""
        self._buckets = {tick: bucket for tick, bucket in self._buckets.items() if bucket}
        self._ticks = list(self._buckets)
        heapify(self._ticks)
        self._sweep_at = max(BUCKETS_MIN, 2 * len(self._ticks))

    def close(self) -> None:
        """Drop all time-outs; operations that still wait are not completed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._buckets.clear()
        self._ticks.clear()

    def _arm(self, tick: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_tick = tick
        self._timer = self._loop.call_at(tick * self._tick_s, self._turn)

    def _turn(self) -> None:
        self._timer = None
        # call_at may fire up to the clock's resolution early; the timer's own tick is always due.
        now_tick = max(int(self._loop.time() / self._tick_s), self._timer_tick)
        while self._ticks and self._ticks[0] <= now_tick:
            bucket = self._buckets.pop(heappop(self._ticks))
            while bucket:
                operation = next(iter(bucket))
                del bucket[operation]
                operation._wheel = operation._bucket = None
                self._waiting -= 1
                self.waiting_by_kind[type(operation)] -= 1
                self._expired += 1
                operation.expire()
        while self._ticks and not self._buckets[self._ticks[0]]:
            del self._buckets[heappop(self._ticks)]
        if self._ticks:
            self._arm(self._ticks[0])

    def statistics(self) -> dict[str, int]:
        return {"waiting": self._waiting, "expired": self._expired, "buckets": len(self._buckets)}
