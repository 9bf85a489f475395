"""How many of the partitions that a broker leads are in which condition, as running counts.

A broker may lead tens of thousands of partitions: who asks how many are under-replicated must not
walk over them. Each leader role says what it counts as whenever that may have changed
(`LeaderRole.recount`), and takes itself out when it ends. The walk, `walk_counts`, is for tests.
"""

from collections.abc import Iterable
from enum import IntFlag
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.replica.leader.role import LeaderRole

__all__ = ["Condition", "LeaderCounts", "walk_counts"]


class Condition(IntFlag):
    """What one led partition counts as; several at once are usual."""

    NOT_LED = 0
    LED = 1
    UNDER_REPLICATED = 2
    UNDER_MIN_ISR = 4
    AT_MIN_ISR = 8
    REASSIGNING = 16


class LeaderCounts:
    """The running counts of one broker."""

    __slots__ = ("at_min_isr", "leaders", "reassigning", "under_min_isr", "under_replicated")

    def __init__(self) -> None:
        self.leaders = 0
        self.under_replicated = 0
        self.under_min_isr = 0
        self.at_min_isr = 0
        self.reassigning = 0

    def change(self, before: Condition, after: Condition) -> None:
        if before != after:
            self._add(before, -1)
            self._add(after, 1)

    def _add(self, condition: Condition, sign: int) -> None:
        self.leaders += sign * (Condition.LED in condition)
        self.under_replicated += sign * (Condition.UNDER_REPLICATED in condition)
        self.under_min_isr += sign * (Condition.UNDER_MIN_ISR in condition)
        self.at_min_isr += sign * (Condition.AT_MIN_ISR in condition)
        self.reassigning += sign * (Condition.REASSIGNING in condition)

    def statistics(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__slots__}


def walk_counts(roles: "Iterable[LeaderRole]") -> LeaderCounts:
    """The same by looking at every role: the oracle of the tests."""
    counts = LeaderCounts()
    for role in roles:
        counts.change(Condition.NOT_LED, role.condition())
    return counts
