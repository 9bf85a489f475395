"""Numbers by partition, in columns.

Those of thousands of groups take little memory, and the garbage collector does not look at them,
which would hold up the loop: bytes, and dictionaries of nothing but text and bytes, are not its
business (arrays are).
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from odradek.wire.topics import TopicPartition

__all__ = ["PartitionOffsets"]

NONE = -1
NUMBER: Final = "q"
# A column is as long as the largest number of a partition: a cluster has no such topic.
PARTITIONS_MAX = 200_000


class PartitionOffsets(Mapping[TopicPartition, int]):
    """A column of offsets, or of sizes, for each topic. None is negative."""

    __slots__ = ("_columns", "_count")

    def __init__(self, items: Iterable[tuple[TopicPartition, int]] = ()) -> None:
        columns: dict[str, array[int]] = {}
        for (topic, p), number in items:
            if 0 <= p < PARTITIONS_MAX and number >= 0:
                column = columns.get(topic)
                if column is None:
                    column = columns[topic] = array(NUMBER)
                if p >= len(column):
                    column.extend([NONE] * (p + 1 - len(column)))
                column[p] = number
        self._keep(columns)

    @classmethod
    def of_columns(cls, columns: Mapping[str, "array[int]"]) -> "PartitionOffsets":
        """What was collected by topic and number of partition; -1 where there is none."""
        made = cls()
        made._keep(columns)
        return made

    def _keep(self, columns: Mapping[str, "array[int]"]) -> None:
        self._columns = {topic: column.tobytes() for topic, column in columns.items()}
        self._count = sum(len(column) - column.count(NONE) for column in columns.values())

    @property
    def topics(self) -> Iterable[str]:
        return self._columns.keys()

    def column(self, topic: str) -> Sequence[int]:
        """By number of partition; -1 where there is none."""
        return memoryview(self._columns.get(topic, b"")).cast(NUMBER)

    def __getitem__(self, tp: TopicPartition) -> int:
        column = self.column(tp.topic)
        number = column[tp.partition] if 0 <= tp.partition < len(column) else NONE
        if number == NONE:
            raise KeyError(tp)
        return number

    def __iter__(self) -> Iterator[TopicPartition]:
        for topic in self._columns:
            for p, number in enumerate(self.column(topic)):
                if number != NONE:
                    yield TopicPartition(topic, p)

    def __len__(self) -> int:
        return self._count
