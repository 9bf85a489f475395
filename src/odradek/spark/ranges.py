"""Offsets as arithmetic: how a batch is limited, and how it is cut into tasks.

Pure functions, all of docs/spec/spark-kafka-format.md section 3 that needs no broker. Offsets are
the next to read. Spark compares offsets as text, so there is one spelling of each: topics and
partitions in order.
"""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeVar

from odradek.wire.topics import TopicPartition

Offsets = Mapping[TopicPartition, int]
T = TypeVar("T")

LONG_MAX = 2**63 - 1


class OffsetRange(NamedTuple):
    """Offsets [start, end) of one partition: what one task reads."""

    topic_partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def nested_offsets(offsets: Mapping[TopicPartition, T]) -> dict[str, dict[str, T]]:
    """Topics, their partitions and what belongs to each, always in the same order."""
    topics: dict[str, dict[str, T]] = {}
    for topic, partition in sorted(offsets):
        topics.setdefault(topic, {})[str(partition)] = offsets[TopicPartition(topic, partition)]
    return topics


def read_nested(topics: object) -> dict[TopicPartition, int]:
    """The offsets in what `nested_offsets` or Spark's own format made. ValueError otherwise."""
    if not isinstance(topics, dict):
        raise ValueError(f"expected an object of topics, got {topics!r:.80}")
    offsets = {}
    for topic, partitions in topics.items():
        if not isinstance(partitions, dict):
            raise ValueError(f"expected an object of partitions for topic {topic!r}")
        for partition, offset in partitions.items():
            if not isinstance(offset, int) or isinstance(offset, bool):
                raise ValueError(f"offset of {topic}-{partition} is {offset!r}, not an integer")
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets


def limit_batch(limit: int, begin: Offsets, latest: Offsets) -> dict[TopicPartition, int]:
    """maxOffsetsPerTrigger: each partition gets its share of the limit, by how much it has.

    A share below one becomes one, so that every partition moves; others are rounded down. What
    rounding leaves is not handed out again.
    """
    sizes = {tp: latest[tp] - begin[tp] for tp in latest if latest[tp] > begin.get(tp, LONG_MAX)}
    total = float(sum(sizes.values()))
    limited = dict(latest)
    for tp, size in sizes.items():
        share = limit * (size / total)
        step = math.ceil(share) if share < 1 else math.floor(share)
        limited[tp] = min(begin[tp] + min(step, LONG_MAX - begin[tp]), latest[tp])
    return limited


def split(
    ranges: Iterable[OffsetRange],
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[OffsetRange]:
    """Cut ranges into tasks: none of more than `max_records`, and about `min_partitions` in all."""
    pieces = [r for r in ranges if r.size > 0]
    if max_records is not None:
        pieces = [cut for r in pieces for cut in _cut(r, -(-r.size // max_records))]
    if min_partitions is None or min_partitions <= len(pieces):
        return pieces
    total = sum(r.size for r in pieces)
    whole = {r.topic_partition for r in pieces if _count(r.size, total, min_partitions) == 1}
    unsplit = [r for r in pieces if r.topic_partition in whole]
    rest_total = sum(r.size for r in pieces if r.topic_partition not in whole)
    rest_count = max(min_partitions - len(unsplit), 1)
    return [
        cut
        for r in pieces
        for cut in (
            [r] if r.topic_partition in whole else _cut(r, _count(r.size, rest_total, rest_count))
        )
        if cut.size > 0
    ]


def _count(size: int, total: int, wanted: int) -> int:
    """A range's share of the wanted tasks, rounded half up, one at least."""
    return max(1, math.floor(size / total * wanted + 0.5))


def _cut(r: OffsetRange, parts: int) -> list[OffsetRange]:
    """Nearly equal parts; what does not divide goes to the later ones."""
    cuts = []
    start = r.start
    for left in range(parts, 0, -1):
        end = start + (r.end - start) // left
        cuts.append(OffsetRange(r.topic_partition, start, end))
        start = end
    return cuts
