"""Offsets by partition, in columns.

Those of thousands of groups take little memory, and the garbage collector does not look at them,
which would hold up the loop.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping

from odradek.wire.topics import TopicPartition

__all__ = ["PartitionOffsets"]

NONE = -1
# A column is as long as the largest number of a partition: a cluster has no such topic.
PARTITIONS_MAX = 200_000


class PartitionOffsets(Mapping[TopicPartition, int]):
    """A column of offsets for each topic. Offsets are not negative."""

    __slots__ = ("_columns", "_count")

    def __init__(self, items: Iterable[tuple[TopicPartition, int]] = ()) -> None:
        self._columns: dict[str, array[int]] = {}
        self._count = 0
        for tp, offset in items:
            if 0 <= tp.partition < PARTITIONS_MAX and offset >= 0:
                self._put(tp.topic, tp.partition, offset)

    def _put(self, topic: str, p: int, offset: int) -> None:
        column = self._columns.setdefault(topic, array("q"))
        if p >= len(column):
            column.extend([NONE] * (p + 1 - len(column)))
        self._count += column[p] == NONE
        column[p] = offset

    @property
    def topics(self) -> Iterable[str]:
        return self._columns.keys()

    def __getitem__(self, tp: TopicPartition) -> int:
        column = self._columns.get(tp.topic, ())
        offset = column[tp.partition] if 0 <= tp.partition < len(column) else NONE
        if offset == NONE:
            raise KeyError(tp)
        return offset

    def __iter__(self) -> Iterator[TopicPartition]:
        for topic, column in self._columns.items():
            for p, offset in enumerate(column):
                if offset != NONE:
                    yield TopicPartition(topic, p)

    def __len__(self) -> int:
        return self._count
