"""What all connections of a broker hold together: requests that have not arrived whole or cannot
start yet, and responses that their clients have not taken.

A bound per connection does not bound a broker: a thousand clients are a thousand bounds. So there
are two budgets, `queued.max.request.bytes` and `odradek.queued.max.response.bytes`. When one is
spent:

1. Small requests are not held up: they arrive whole and hold nothing. A request whose buffer must
   grow waits, unread, for its turn; one at a time may grow beyond the budget, or none would ever be
   complete.
2. A fetch returns fewer bytes: an eighth of what is left, at least `FETCH_BYTES_MIN`. A client with
   a response unread has its next request served once it has read that.
3. A client that has held its part for longer than `GRACE_S` is disconnected, the largest first. One
   that sends as fast as it can, and reads what it asked for, is through long before.
"""

import gc
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

__all__ = [
    "FETCH_BYTES_MIN",
    "GRACE_S",
    "Budget",
    "Turns",
    "collect_seldom",
    "keep_free_memory",
    "offenders",
    "return_free_memory",
]

# How long a client may hold bytes of a budget that is spent.
GRACE_S = 1.0
FETCH_BYTES_MIN = 64 * 1024
# What one fetch may take of the bytes that are left.
FETCH_SHARE = 8

# What glibc keeps of free memory, and which pieces: the numbers are those of its <malloc.h>, which
# takes no larger piece.
KEPT_BYTES = 128 * 1024 * 1024
LARGEST_KEPT_BYTES = 32 * 1024 * 1024
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3

# New objects, at some hundred bytes each, before the collector looks at them.
NEW_OBJECTS_MAX = 20_000

H = TypeVar("H")


class Budget:
    """So many bytes, and how many of them are in use. -1 is no limit."""

    __slots__ = ("limit_bytes", "on_pressure", "used_bytes")

    def __init__(self, limit_bytes: int, on_pressure: Callable[[], None]) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.on_pressure = on_pressure

    def change(self, byte_count: int) -> None:
        self.used_bytes += byte_count
        assert self.used_bytes >= 0
        if byte_count > 0 and self.is_under_pressure:
            self.on_pressure()

    @property
    def is_under_pressure(self) -> bool:
        """Whether more than half is in use."""
        return 0 <= self.limit_bytes < 2 * self.used_bytes

    @property
    def is_spent(self) -> bool:
        return 0 <= self.limit_bytes < self.used_bytes

    def share(self) -> int:
        """What one fetch may return now."""
        if self.limit_bytes < 0:
            return 2**31 - 1
        return max(FETCH_BYTES_MIN, (self.limit_bytes - self.used_bytes) // FETCH_SHARE)


class Waiter(Protocol):
    """A connection that waits for its turn to grow."""

    def grow_on(self) -> None: ...


W = TypeVar("W", bound=Waiter)


class Turns(Generic[W]):
    """Who may receive a large request while the budget is spent: one at a time, in order."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._holder: W | None = None
        self._waiting: deque[W] = deque()

    def may_grow(self, connection: W) -> bool:
        """Whether this connection reads on; else it waits, and `grow_on` is called."""
        if not self._budget.is_spent or self._holder is connection:
            return True
        if self._holder is None:
            self._holder = connection
            return True
        self._waiting.append(connection)
        return False

    def done(self, connection: W) -> None:
        """The connection has its request whole, or is gone: the next one's turn."""
        if self._holder is connection:
            self._holder = None
        elif connection in self._waiting:
            self._waiting.remove(connection)
        self.go_on()

    def go_on(self) -> None:
        while self._waiting and (self._holder is None or not self._budget.is_spent):
            following = self._waiting.popleft()
            if self._budget.is_spent:
                self._holder = following
            following.grow_on()

    def __len__(self) -> int:
        return len(self._waiting)


def collect_seldom() -> None:
    """Lets the collector look for cycles of objects less often than by default, at each 700 that
    are new: a request that names thousands of partitions would be looked through a hundred times
    while it is decoded, and all that a broker knows of its partitions with it."""
    gc.set_threshold(NEW_OBJECTS_MAX)


def keep_free_memory() -> None:
    """Lets the allocator keep what requests and reads of some megabytes leave behind, up to
    `KEPT_BYTES`, where it can be asked to.

    glibc gives each of them back to the system, which then maps and zeroes every page of the next:
    some 300 page faults for each megabyte that comes in or goes out.
    """
    import ctypes  # not needed to start

    with suppress(OSError, AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT_BYTES)
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)


def return_free_memory() -> None:
    """Gives pages that the allocator holds for later back to the system, where it can be asked to.

    glibc keeps what large buffers leave behind, so that a broker would stay as large as it was at
    the worst moment of its life.
    """
    import ctypes  # needed after a burst, and not to start

    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def offenders(
    holders: Iterable[tuple[H, int, float]], over_bytes: int, now: float
) -> list[tuple[H, int]]:
    """Whom to disconnect so that `over_bytes` become free: of (who, bytes, since when) those that
    have held theirs for longer than the grace, the largest first."""
    late = sorted(
        ((who, size) for who, size, since in holders if now - since > GRACE_S),
        key=lambda holder: -holder[1],
    )
    chosen = []
    for who, size in late:
        if over_bytes < 0:
            break
        chosen.append((who, size))
        over_bytes -= size
    return chosen
