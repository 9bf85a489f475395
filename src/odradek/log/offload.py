"""How blocking work leaves the loop: a function the broker hands in, a thread pool behind it.

The work touches files and its own values only. The simulator, and a caller that may block,
does the work on the spot.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Offload(Protocol):
    """Runs `work` somewhere and gives its result, or raises what it raised."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


async def on_the_spot(work: Callable[[], T], /) -> T:
    return work()
