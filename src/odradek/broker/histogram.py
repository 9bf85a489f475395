"""Times in fixed buckets, in whole numbers: adding one allocates nothing that stays.

The bounds are those of docs/spec/console.md section 5, from 0.25 ms to 10 s.
"""

from bisect import bisect_left
from collections.abc import Iterable

__all__ = ["BOUNDS_US", "Histogram"]

BOUNDS_US = (
    *(250, 500, 1_000, 2_500, 5_000, 10_000),
    *(25_000, 50_000, 100_000, 250_000, 1_000_000, 10_000_000),
)
US_PER_S = 1_000_000


class Histogram:
    """Counts by bucket, the last for everything above the bounds, and the sum of all times."""

    __slots__ = ("counts", "sum_us")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_US) + 1)
        self.sum_us = 0

    def add(self, seconds: float) -> None:
        us = int(seconds * US_PER_S)
        self.counts[bisect_left(BOUNDS_US, us)] += 1
        self.sum_us += us

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> list[int]:
        """How many were at most as long as each bound; the last is all of them."""
        total, found = 0, []
        for count in self.counts:
            total += count
            found.append(total)
        return found

    def quantile_s(self, quantile: float) -> float:
        """An estimate, exact to the bucket, in seconds; 0 where nothing was counted."""
        total = self.count
        if not total:
            return 0.0
        rank, below, lower = quantile * total, 0, 0
        for count, upper in zip(self.counts, BOUNDS_US, strict=False):
            if count and below + count >= rank:
                return (lower + (upper - lower) * (rank - below) / count) / US_PER_S
            below, lower = below + count, upper
        return BOUNDS_US[-1] / US_PER_S

    def since(self, before: "Histogram") -> "Histogram":
        """What was added after an earlier reading of the same times."""
        added = Histogram()
        added.counts = [a - b for a, b in zip(self.counts, before.counts, strict=True)]
        added.sum_us = self.sum_us - before.sum_us
        return added

    @staticmethod
    def merged(histograms: "Iterable[Histogram]") -> "Histogram":
        merged = Histogram()
        for each in histograms:
            merged.counts = [a + b for a, b in zip(merged.counts, each.counts, strict=True)]
            merged.sum_us += each.sum_us
        return merged
