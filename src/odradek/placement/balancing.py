"""Level the loads of brokers by shifting single things along the shortest chains.

A thing (a replica, a leadership, the place of first follower) sits with one broker and may be
allowed to go to some others. When the heaviest broker cannot give directly to one that is at least
two lighter, it may give to a third that in turn gives on: a chain. A chain lowers its first broker
by one, raises its last by one and leaves those between as they were.

Rules
1. When no chain is left from any broker to one at least two lighter, no other arrangement is more
   level: the highest load is as low as it can be, then the next, and so on.
2. A level arrangement is left alone.
3. Each round takes the load farthest from the mean, the fewest shifts, then the lightest (or
   heaviest) other end, then the lowest id: the same input gives the same result.

A broker from which no chain starts never gets one back: all it can reach stays as heavy, and no
later chain enters what it can reach. So each broker is given up at most once.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Protocol


class Movables(Protocol):
    """What is shifted, and who may have it."""

    def can_shift(self, giver: int, taker: int) -> bool:
        """Whether `giver` has something that `taker` may have."""
        ...

    def shift(self, giver: int, taker: int) -> None:
        """Move one such thing. Along a shortest chain one shift never forbids the next."""
        ...


def balance(loads: dict[int, int], things: Movables) -> None:
    """Shift things until the loads, which are kept up to date, are level."""
    givers, takers = set(loads), set(loads)
    mean = sum(loads.values()) / max(1, len(loads))
    while givers and takers:
        heaviest = max(givers, key=lambda broker: (loads[broker], -broker))
        lightest = min(takers, key=lambda broker: (loads[broker], broker))
        if loads[heaviest] - loads[lightest] < 2:
            return
        if loads[heaviest] - mean > mean - loads[lightest]:
            chain = _chain_from(heaviest, loads, things)
            if not chain:
                givers.remove(heaviest)
        else:
            chain = _chain_to(lightest, loads, things)
            if not chain:
                takers.remove(lightest)
        if chain:
            # From the far end, where room is made for what follows.
            for giver, taker in reversed(list(pairwise(chain))):
                things.shift(giver, taker)
            loads[chain[0]] -= 1
            loads[chain[-1]] += 1


def _chain_from(start: int, loads: dict[int, int], things: Movables) -> list[int]:
    """The shortest chain from `start` to a broker at least two lighter, the lightest such."""
    lightest_first = sorted(loads, key=lambda broker: (loads[broker], broker))
    return _walk(
        start, lightest_first, things.can_shift, lambda end: loads[end] <= loads[start] - 2
    )


def _chain_to(end: int, loads: dict[int, int], things: Movables) -> list[int]:
    """The shortest chain to `end` from a broker at least two heavier, the heaviest such."""
    heaviest_first = sorted(loads, key=lambda broker: (-loads[broker], broker))
    backwards = _walk(
        end,
        heaviest_first,
        lambda taker, giver: things.can_shift(giver, taker),
        lambda start: loads[start] >= loads[end] + 2,
    )
    return backwards[::-1]


def _walk(
    origin: int,
    candidates: list[int],
    reaches: Callable[[int, int], bool],
    wanted: Callable[[int], bool],
) -> list[int]:
    """Breadth first from `origin` to the nearest wanted candidate, the earliest in their order."""
    came_from = {origin: origin}
    frontier = [origin]
    while frontier:
        reached = []
        for candidate in candidates:
            if candidate in came_from:
                continue
            for previous in frontier:
                if reaches(previous, candidate):
                    came_from[candidate] = previous
                    reached.append(candidate)
                    break
            else:
                continue
            if wanted(candidate):
                path = [candidate]
                while path[-1] != origin:
                    path.append(came_from[path[-1]])
                return path[::-1]
        frontier = reached
    return []
