"""How far a stream has come: the offset that Spark writes into the checkpoint, and what goes next.

Spark's own format is kept: topics, partitions, next offsets. Under a key that no topic can have,
MARK, an offset carries two more things that Spark keeps nowhere for a Python source:

- `begin`: where its batch began, for every partition where the previous offset does not say: all
  of them in the first batch, since Spark asks for the initial offset again when it repeats that
  batch and would skip what came between; later a new partition, or a topic that was
  created again.
- the identity of what was read: the topic's id, or on a cluster without ids the first record of
  each log (its offset and time) and its leader's epoch. A log that was deleted and made again under
  its name begins with another record, even when it has grown beyond the old offset.

All of this is pure; docs/spec/spark-kafka-format.md section 3.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek.spark.ranges import OffsetRange, Offsets, nested_offsets, read_nested
from odradek.wire.topics import TopicPartition

MARK = "@odradek"

Numbers = Mapping[TopicPartition, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Identity:
    """What distinguishes a topic from another of its name."""

    topic_ids: Mapping[str, str] = field(default_factory=dict)
    # (offset, timestamp) of the first record of each log; an empty log has none.
    firsts: Numbers = field(default_factory=dict)
    # The epoch of the leader whose log that was, also of an empty one.
    epochs: Offsets = field(default_factory=dict)

    @property
    def is_known(self) -> bool:
        return bool(self.topic_ids or self.firsts)


@dataclass(frozen=True, slots=True)
class Position:
    """An offset of a stream with its memory."""

    offsets: Offsets
    begin: Offsets = field(default_factory=dict)
    identity: Identity = field(default_factory=Identity)

    def to_json(self) -> dict[str, Any]:
        """What Spark stores. It compares the text, so the order is always the same."""
        mark: dict[str, Any] = {}
        if self.begin:
            mark["begin"] = nested_offsets(self.begin)
        if self.identity.topic_ids:
            mark["ids"] = dict(sorted(self.identity.topic_ids.items()))
        if self.identity.firsts:
            mark["first"] = nested_offsets(
                {part: list(first) for part, first in self.identity.firsts.items()}
            )
        if self.identity.epochs:
            mark["epoch"] = nested_offsets(self.identity.epochs)
        offsets = nested_offsets(self.offsets)
        return {**offsets, MARK: mark} if mark else offsets

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Position":
        """What `to_json` made, or an offset of Spark's own format. ValueError on anything else."""
        mark = value.get(MARK, {})
        firsts = {
            TopicPartition(topic, int(partition)): (int(first[0]), int(first[1]))
            for topic, partitions in mark.get("first", {}).items()
            for partition, first in partitions.items()
        }
        return cls(
            read_nested({topic: parts for topic, parts in value.items() if topic != MARK}),
            read_nested(mark.get("begin", {})),
            Identity(mark.get("ids", {}), firsts, read_nested(mark.get("epoch", {}))),
        )

    @property
    def is_first(self) -> bool:
        """Whether nothing was read before it."""
        return self.begin == self.offsets


@dataclass(frozen=True, slots=True)
class Found:
    """The cluster as the driver finds it now."""

    latest: Offsets
    earliest: Offsets
    identity: Identity
    # Partitions that went away while we looked.
    gone: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class Loss:
    """Something that was to be read and is gone: Spark's condition, and a sentence."""

    condition: str
    text: str


@dataclass(frozen=True, slots=True)
class Progress:
    """Where the next batch begins, what is lost before it, and which partitions start over."""

    begin: Offsets
    restarted: frozenset[TopicPartition]
    shrunk: frozenset[TopicPartition]
    losses: tuple[Loss, ...]


def is_another_log(before: Position, found: Found, partition: TopicPartition) -> bool:
    """Whether the topic was deleted and made again since `before`."""
    topic = partition.topic
    old_id, new_id = before.identity.topic_ids.get(topic), found.identity.topic_ids.get(topic)
    if old_id is not None and new_id is not None:
        return old_id != new_id
    committed = before.offsets[partition]
    now = found.identity.firsts.get(partition)
    if now is None:
        return False  # an empty log: its end tells whether it is shorter
    if old_id is not None and partition not in before.identity.firsts:
        return False  # it was known by its id alone, which the cluster does not report any more
    # An empty log would have got its next record where we stopped.
    first, timestamp = before.identity.firsts.get(partition, (committed, now[1]))
    # Retention and compaction move the first record forward, never back, and never change it. But
    # each replica is compacted in its own time, so the log of the next leader may begin earlier.
    if now[0] < first:
        return not has_next_leader(before, found, partition)
    return now[0] == first and now[1] != timestamp


def has_next_leader(before: Position, found: Found, partition: TopicPartition) -> bool:
    """Whether a leader was elected since `before`. A topic that is made again begins at epoch 0."""
    epoch = found.identity.epochs.get(partition)
    # An offset that was written without epochs is judged by its first record alone.
    return epoch is not None and epoch > before.identity.epochs.get(partition, epoch)


def progress(before: Position, found: Found, group_id: str | None = None) -> Progress:
    """Compare what was read with what there is: the table of section 3."""
    begin: dict[TopicPartition, int] = {}
    restarted, shrunk, losses = set(), set(), []
    for partition in sorted(found.latest):
        earliest, latest = found.earliest[partition], found.latest[partition]
        committed = before.offsets.get(partition)
        if committed is None:
            restarted.add(partition)
            begin[partition] = earliest
            if earliest > 0:
                losses.append(
                    Loss(
                        "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
                        f"the new partition {partition} begins at offset {earliest}, not 0",
                    )
                )
        elif before.identity.is_known and is_another_log(before, found, partition):
            restarted.add(partition)
            begin[partition] = earliest
            losses.append(
                Loss(
                    "PARTITION_OFFSET_CHANGED",
                    f"the topic of {partition} was deleted and created again: it was read up to "
                    f"offset {committed}, and the new log begins at {earliest}",
                )
            )
        elif latest < committed:
            shrunk.add(partition)
            begin[partition] = latest
            losses.append(
                Loss(
                    "PARTITION_OFFSET_CHANGED",
                    f"{partition} was read up to offset {committed} and now ends at {latest}",
                )
            )
        else:
            begin[partition] = committed
    if gone := sorted(set(before.offsets) - set(found.latest)):
        suffix = "_AND_GROUP_ID_CONFIG_PROVIDED" if group_id else ""
        losses.append(
            Loss(
                f"PARTITIONS_DELETED{suffix}",
                f"{', '.join(map(str, gone))} existed and may have been deleted",
            )
        )
    if unseen := sorted(found.gone - set(before.offsets)):
        losses.append(
            Loss(
                "INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS",
                f"{', '.join(map(str, unseen))} appeared and went away before it could be read",
            )
        )
    return Progress(begin, frozenset(restarted), frozenset(shrunk), tuple(losses))


def next_position(before: Position, found: Found, going: Progress, end: Offsets) -> Position:
    """The offset of a batch up to `end`; the same as before, to the letter, if there is nothing."""
    offsets = dict(sorted(end.items()))
    if offsets == dict(before.offsets) and not going.restarted:
        return before
    begun = set(offsets) if before.is_first else going.restarted
    begin = {part: going.begin[part] for part in sorted(begun)}
    return Position(offsets, begin, found.identity)


def ranges_between(
    before: Position, end: Position
) -> tuple[list[OffsetRange], list[TopicPartition]]:
    """What a batch reads, and the partitions of which neither end says where it begins."""
    if before == end:
        return [], []  # a batch without data; what `end` says of its begin is behind us
    ranges, unknown = [], []
    for partition, until in sorted(end.offsets.items()):
        start = end.begin.get(partition, before.offsets.get(partition))
        if start is None:
            unknown.append(partition)
        elif start < until:
            ranges.append(OffsetRange(partition, start, until))
    return ranges, unknown
