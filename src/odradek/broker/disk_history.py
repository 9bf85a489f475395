"""How full the disks of a broker's log directories have been: so that "since when" has an answer.

An entry is made whenever the percent in use has changed, and some hundred are kept for each
directory: days of a disk that fills. A restart forgets them.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence

__all__ = ["DiskHistory"]

ENTRIES_MAX = 200


class DiskHistory:
    """Pure but for the clock that it is given."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._seen: dict[str, deque[tuple[int, int]]] = {}

    def add(self, path: str, total_bytes: int, usable_bytes: int) -> None:
        """Nothing, if the disk does not say how large it is."""
        if total_bytes <= 0 or usable_bytes < 0:
            return
        percent = round(100 * (1 - usable_bytes / total_bytes))
        seen = self._seen.setdefault(path, deque(maxlen=ENTRIES_MAX))
        if not seen or seen[-1][1] != percent:
            seen.append((self._clock(), percent))

    def statistics(self) -> Mapping[str, Sequence[tuple[int, int]]]:
        """By directory: (time, percent in use), oldest first."""
        return {path: list(seen) for path, seen in self._seen.items()}
