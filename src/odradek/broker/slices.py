"""Large requests in slices: between two of them the loop serves the others.

A request may name thousands of groups, partitions or topics (routes.ELEMENTS_MAX). Answered in one
step they would stop every other client for a tenth of a second and more. The requests behind a
sliced one on its own connection wait for it, as they do for every coroutine.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from odradek.wire.reply import Reply

__all__ = ["SLICE", "map_in_slices"]

# Elements per turn of the loop: about a millisecond of the cheapest kind.
SLICE = 200

T = TypeVar("T")
U = TypeVar("U")


def map_in_slices(items: Sequence[T], function: Callable[[T], U]) -> Reply[list[U]]:
    """`function` of each item: at once if they are few, else a slice per turn of the loop."""
    if len(items) <= SLICE:
        return Reply.now([function(item) for item in items])
    return Reply.exclusive(_in_slices(items, function))


async def _in_slices(items: Sequence[T], function: Callable[[T], U]) -> list[U]:
    results: list[U] = []
    for start in range(0, len(items), SLICE):
        results += [function(item) for item in items[start : start + SLICE]]
        await asyncio.sleep(0)
    return results
