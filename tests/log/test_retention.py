"""Retention: which segments go, and above all which do not."""

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from odradek.log.config import LogConfig
from odradek.log.retention import Expired, expired

NOW = 1_000_000


@dataclass
class Facts:
    base_offset: int
    size: int
    largest_timestamp: int


FOREVER = LogConfig(retention_ms=-1, retention_bytes=-1)
# Offsets 0-9, 10-19 and the active segment 20-24.
SEGMENTS = [Facts(0, 100, 1000), Facts(10, 100, 2000), Facts(20, 50, 3000)]


def decide(
    config: LogConfig, segments: list[Facts] = SEGMENTS, start: int = 0, high_watermark: int = 25
) -> Expired:
    return expired(
        segments,
        config,
        start_offset=start,
        high_watermark=high_watermark,
        end_offset=25,
        now_ms=NOW,
    )


def test_without_limits_nothing_goes() -> None:
    assert decide(FOREVER).total == 0


def test_by_time() -> None:
    assert decide(replace(FOREVER, retention_ms=NOW - 1000)).by_time == 0  # not older, as old
    assert decide(replace(FOREVER, retention_ms=NOW - 1001)).by_time == 1
    assert decide(replace(FOREVER, retention_ms=NOW - 2001)).by_time == 2
    assert decide(replace(FOREVER, retention_ms=0)) == Expired(0, 0, 3)


def test_time_stops_at_the_first_young_segment() -> None:
    segments = [Facts(0, 1, 5000), Facts(10, 1, 10), Facts(20, 1, 10)]
    assert decide(replace(FOREVER, retention_ms=NOW - 4000), segments).total == 0


def test_by_size_keeps_at_least_the_limit() -> None:
    assert decide(replace(FOREVER, retention_bytes=151)).total == 0
    assert decide(replace(FOREVER, retention_bytes=150)) == Expired(0, 1, 0)
    assert decide(replace(FOREVER, retention_bytes=50)) == Expired(0, 2, 0)
    assert decide(replace(FOREVER, retention_bytes=0)) == Expired(0, 3, 0)


def test_by_start_offset_never_the_active_segment() -> None:
    assert decide(FOREVER, start=9).total == 0
    assert decide(FOREVER, start=10) == Expired(1, 0, 0)
    assert decide(FOREVER, start=25) == Expired(2, 0, 0)


def test_nothing_above_the_high_watermark() -> None:
    now = replace(FOREVER, retention_ms=0)
    assert decide(now, high_watermark=9).total == 0
    assert decide(now, high_watermark=10).total == 1
    assert decide(now, high_watermark=24).total == 2


def test_an_empty_active_segment_stays() -> None:
    segments = [SEGMENTS[0], Facts(25, 0, 0)]
    assert decide(replace(FOREVER, retention_ms=0), segments).total == 1


def test_compaction_alone_knows_only_the_start() -> None:
    config = LogConfig(cleanup_policy=frozenset({"compact"}), retention_ms=0, retention_bytes=0)
    assert decide(config, start=10) == Expired(1, 0, 0)
    both = replace(config, cleanup_policy=frozenset({"compact", "delete"}))
    assert decide(both).total == 3


@given(
    st.lists(st.tuples(st.integers(1, 100), st.integers(0, NOW)), min_size=1, max_size=8),
    st.integers(-1, 500),
    st.integers(-1, NOW),
    st.integers(0, 90),
    st.integers(0, 90),
)
def test_what_stays_is_within_the_limits_or_must_stay(
    shapes: list[tuple[int, int]], limit_bytes: int, limit_ms: int, start: int, high_watermark: int
) -> None:
    segments = [Facts(10 * index, size, time) for index, (size, time) in enumerate(shapes)]
    end = 10 * len(segments)
    config = replace(FOREVER, retention_bytes=limit_bytes, retention_ms=limit_ms)
    start, high_watermark = min(start, end), min(high_watermark, end)
    gone = expired(
        segments,
        config,
        start_offset=start,
        high_watermark=high_watermark,
        end_offset=end,
        now_ms=NOW,
    ).total
    assert 10 * gone <= high_watermark
    left = segments[gone:]
    if limit_bytes >= 0 and gone:
        # Whatever went for its size left at least the limit behind; time may take more.
        by_size = expired(
            segments,
            replace(config, retention_ms=-1),
            start_offset=0,
            high_watermark=high_watermark,
            end_offset=end,
            now_ms=NOW,
        ).by_size
        assert sum(f.size for f in segments[by_size:]) >= limit_bytes or by_size == 0
    if left and 10 * (gone + 1) <= high_watermark:
        assert limit_bytes < 0 or sum(f.size for f in left) - left[0].size < limit_bytes
        assert limit_ms < 0 or left[0].largest_timestamp >= NOW - limit_ms
