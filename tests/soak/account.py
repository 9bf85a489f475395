"""The account: what was acknowledged, what was read, and whether the two agree."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Account:
    """Records are named by key and number; numbers of a key grow."""

    acknowledged: set[tuple[int, int]] = field(default_factory=set)
    given_up: int = 0
    read: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    duplicated: Counter[tuple[int, int]] = field(default_factory=Counter)
    reordered: list[tuple[int, int, int]] = field(default_factory=list)

    def acknowledge(self, key: int, number: int) -> None:
        self.acknowledged.add((key, number))

    def receive(self, key: int, number: int, partition: int, offset: int) -> None:
        """One consumer, from the start, each partition in order."""
        place = self.read.setdefault((key, number), (partition, offset))
        if place != (partition, offset):
            self.duplicated[key, number] += 1
            return
        if number < self.last.get(key, -1):
            self.reordered.append((key, self.last[key], number))
        self.last[key] = max(number, self.last.get(key, -1))

    @property
    def lost(self) -> set[tuple[int, int]]:
        return self.acknowledged - self.read.keys()

    def verdict(self) -> str:
        """Empty when nothing is wrong."""
        problems = []
        if self.lost:
            problems.append(f"{len(self.lost)} lost, such as {sorted(self.lost)[:3]}")
        if self.duplicated:
            problems.append(
                f"{sum(self.duplicated.values())} duplicated, such as {list(self.duplicated)[:3]}"
            )
        if self.reordered:
            problems.append(f"{len(self.reordered)} reordered, such as {self.reordered[:3]}")
        return "; ".join(problems)
