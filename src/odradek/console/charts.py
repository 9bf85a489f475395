"""Figures over the last hours, in rings of fixed size: 2 h in steps of 5 s, 24 h in minutes.

docs/spec/console.md section 3. There is room for so many series of each kind and no more. A new
one takes the place of one that has not been heard of for a while; older history is Prometheus's.
"""

import math
from array import array
from collections.abc import Mapping

FINE_S, COARSE_S = 5, 60
SAMPLES = 1440
SPANS = {"2h": FINE_S, "24h": COARSE_S}
# Series by the first part of their names.
SERIES_MAX: Mapping[str, int] = {"cluster": 16, "broker": 384, "topic": 800, "group": 800}
STALE_S = 600.0


class Ring:
    """The last samples, one for each step of time; those that were missed are NaN."""

    def __init__(self, step_s: int) -> None:
        self._step_s = step_s
        self._values = array("f")
        self._last = -1

    def add(self, at_s: float, value: float) -> None:
        slot = int(at_s // self._step_s)
        if self._last >= 0 and slot <= self._last:
            self._values[-1] = value  # the last of a step counts
            return
        missed = min(slot - self._last - 1, SAMPLES) if self._last >= 0 else 0
        self._values.extend([math.nan] * missed)
        self._values.append(value)
        if len(self._values) > SAMPLES:
            del self._values[: len(self._values) - SAMPLES]
        self._last = slot

    def until(self, at_s: float, count: int = SAMPLES) -> list[float | None]:
        """The last `count` steps up to this moment, oldest first."""
        behind = int(at_s // self._step_s) - self._last if self._last >= 0 else count
        known: list[float | None] = [
            None if math.isnan(value) else round(value, 3) for value in self._values[-count:]
        ]
        known += [None] * min(behind, count)
        return [None] * (count - len(known)) + known[-count:]


class Charts:
    """Every series there is. Time is in seconds since 1970, so that charts survive a sleep."""

    def __init__(self) -> None:
        self._series: dict[str, tuple[Ring, Ring]] = {}
        self._counts: dict[str, int] = {}
        self._heard_s: dict[str, float] = {}

    def add(self, name: str, at_s: float, value: float | None) -> None:
        """Left out where there is no room: callers add what is busiest first."""
        if value is None or not math.isfinite(value):
            return
        rings = self._series.get(name)
        if rings is None:
            if not self._make_room(name.partition(".")[0], at_s):
                return
            rings = self._series[name] = (Ring(FINE_S), Ring(COARSE_S))
        self._heard_s[name] = at_s
        for ring in rings:
            ring.add(at_s, value)

    def _make_room(self, kind: str, at_s: float) -> bool:
        count = self._counts.get(kind, 0)
        if count < SERIES_MAX.get(kind, 0):
            self._counts[kind] = count + 1
            return True
        for name, heard_s in self._heard_s.items():
            if at_s - heard_s > STALE_S and name.partition(".")[0] == kind:
                del self._series[name], self._heard_s[name]
                return True
        return False

    def until(
        self, name: str, at_s: float, step_s: int, count: int = SAMPLES
    ) -> list[float | None]:
        rings = self._series.get(name)
        if rings is None:
            return [None] * count
        return rings[0 if step_s == FINE_S else 1].until(at_s, count)

    def last(self, name: str, at_s: float, count: int) -> list[float]:
        """For sparklines: the last fine samples that are known."""
        return [value for value in self.until(name, at_s, FINE_S, count) if value is not None]

    def __len__(self) -> int:
        return len(self._series)
