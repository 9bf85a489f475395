"""What brokers' telemetry says about their health: who is strained by moves, and who is slow.

**Strained** is a broker whose produces take much longer than in the last hour, or whose disk is
nearly full: it should take part in fewer moves at a time. **Slow** is one that has been far slower
than itself and than its peers for minutes, under load: it may be about to fail.
docs/spec/planner.md sections 5 and 6.

Everything is a function of the samples; a watcher that starts knows no history, and calls no broker
slow before it has an hour of it.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from odradek.wire.telemetry import Frame

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
STRAINED_FACTOR = 3
STRAINED_US_MIN = 100_000
FREE_SHARE_MIN = 0.1
SLOW_FACTOR = 3
SLOW_US_MIN = 200_000
SLOW_BYTES_MIN = 1_000_000
SLOW_SCORE = 5
SCORE_MAX = 10
# Older than this, a sample says nothing about now.
FRESH_MS = 2 * MINUTE_MS


class Sample(NamedTuple):
    """One broker between two moments."""

    broker: int
    at_ms: int
    p99_us: int
    bytes_in_s: float
    free_share: float  # of its fullest disk; 1 where nothing is known

    @classmethod
    def of(cls, frame: Frame) -> "Sample":
        seconds = max(0.001, (frame.to_ms - frame.from_ms) / 1000)
        known = [each for each in frame.directories if each.capacity > 0 and not each.is_failed]
        free = min((each.free / each.capacity for each in known), default=1.0)
        load = frame.load
        return cls(frame.broker, frame.to_ms, load.produce_p99_us, load.net_in / seconds, free)


@dataclass(slots=True)
class _Broker:
    # One per frame of the last hour, and the highest of each minute of the last day.
    recent: deque[Sample] = field(default_factory=deque)
    minutes: deque[tuple[int, int]] = field(default_factory=deque)
    score: int = 0


@dataclass(slots=True)
class BrokerHealth:
    """Keeps what brokers said of the last day."""

    _brokers: dict[int, _Broker] = field(default_factory=dict)
    _scored_ms: int = 0

    def add(self, samples: Iterable[Sample]) -> None:
        """Samples in any order; those that are known already say nothing new."""
        for sample in sorted(samples, key=lambda of: of.at_ms):
            broker = self._brokers.setdefault(sample.broker, _Broker())
            if broker.recent and sample.at_ms <= broker.recent[-1].at_ms:
                continue
            broker.recent.append(sample)
            while broker.recent[0].at_ms < sample.at_ms - HOUR_MS:
                broker.recent.popleft()
            minute = sample.at_ms // MINUTE_MS
            highest = sample.p99_us
            if broker.minutes and broker.minutes[-1][0] == minute:
                highest = max(highest, broker.minutes.pop()[1])
            broker.minutes.append((minute, highest))
            while broker.minutes[0][0] < minute - DAY_MS // MINUTE_MS:
                broker.minutes.popleft()

    def strained(self, now_ms: int) -> frozenset[int]:
        """Brokers that should take part in fewer moves."""
        found = set()
        for broker, latest in self._latest(now_ms).items():
            usual = median(of.p99_us for of in self._brokers[broker].recent)
            if latest.p99_us > max(STRAINED_FACTOR * usual, STRAINED_US_MIN):
                found.add(broker)
            if latest.free_share < FREE_SHARE_MIN:
                found.add(broker)
        return frozenset(found)

    def slow(self, now_ms: int) -> frozenset[int]:
        """Brokers whose score is high: it goes up by one in each minute in which the broker is
        slow, and down by one in each other."""
        if now_ms - self._scored_ms >= MINUTE_MS:
            self._scored_ms = now_ms
            latest = self._latest(now_ms)
            for broker, of in self._brokers.items():
                change = 1 if broker in latest and self._is_slow(latest, broker) else -1
                of.score = min(SCORE_MAX, max(0, of.score + change))
        return frozenset(id for id, of in self._brokers.items() if of.score >= SLOW_SCORE)

    def _is_slow(self, latest: dict[int, Sample], broker: int) -> bool:
        now, peers = latest[broker], [of.p99_us for id, of in latest.items() if id != broker]
        minutes = sorted(highest for _, highest in self._brokers[broker].minutes)
        if not peers or len(minutes) < HOUR_MS // MINUTE_MS or now.bytes_in_s < SLOW_BYTES_MIN:
            return False
        own = minutes[int(len(minutes) * 0.9)]
        return now.p99_us > max(SLOW_US_MIN, SLOW_FACTOR * own, SLOW_FACTOR * median(peers))

    def _latest(self, now_ms: int) -> dict[int, Sample]:
        return {
            id: of.recent[-1]
            for id, of in self._brokers.items()
            if of.recent and of.recent[-1].at_ms >= now_ms - FRESH_MS
        }
