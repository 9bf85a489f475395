"""Which of a log's oldest segments have had their time.

docs/spec/controller-and-replication.md section 6.

A segment may go only as a whole, only from the old end, and only once every record in it is below
the high watermark: an uncommitted record is never deleted. Within that, three reasons, each
taken as far as it reaches: the log's start has moved past the segment; the log is larger than
`retention.bytes` even without it; its newest record is older than `retention.ms`. A log that is
only compacted knows the first reason alone.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from odradek.log.config import LogConfig


class SegmentFacts(Protocol):
    """What retention asks of a segment."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def largest_timestamp(self) -> int: ...


class Expired(NamedTuple):
    """How many of the oldest segments go for each reason, in this order."""

    by_start_offset: int
    by_size: int
    by_time: int

    @property
    def total(self) -> int:
        return sum(self)


def expired(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    *,
    start_offset: int,
    high_watermark: int,
    end_offset: int,
    now_ms: int,
) -> Expired:
    """How many of the oldest segments may be deleted now, all of them included."""
    ends = [*(segment.base_offset for segment in segments[1:]), end_offset]
    deletable = 0
    for segment, end in zip(segments, ends, strict=True):
        # An empty active segment is where the log continues; there is nothing in it to delete.
        if high_watermark < end or (segment.size == 0 and segment is segments[-1]):
            break
        deletable += 1

    # The active segment has no successor that the start could have reached.
    by_start = 0
    while by_start < min(deletable, len(segments) - 1) and ends[by_start] <= start_offset:
        by_start += 1
    if not config.delete:
        return Expired(by_start, 0, 0)

    index = by_start
    if config.retention_bytes >= 0:
        left_bytes = sum(segment.size for segment in segments[by_start:])
        while index < deletable:
            left_bytes -= segments[index].size
            if left_bytes < config.retention_bytes:
                break
            index += 1
    by_size = index - by_start

    if config.retention_ms >= 0:
        oldest_ms = now_ms - config.retention_ms
        while index < deletable and segments[index].largest_timestamp < oldest_ms:
            index += 1
    return Expired(by_start, by_size, index - by_start - by_size)
