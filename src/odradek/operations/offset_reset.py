"""Setting where a consumer group goes on reading: first planned, then carried out.

    reset = await plan_reset(groups, "billing", to=AT_START)
    outcomes = await groups.alter_offsets("billing", reset.after)

Only a group without members can be reset; the coordinator refuses any other.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from odradek.client.groups import Groups
from odradek.operations.positions import Position, Range, clamp, log_ranges, resolve
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """What a group has committed (None: nothing yet), and what it shall have."""

    group: str
    before: Mapping[TopicPartition, int | None]
    after: Mapping[TopicPartition, int]


async def plan_reset(
    groups: Groups,
    group: str,
    *,
    topics: Collection[str] = (),
    to: Position | None = None,
    shift: int = 0,
) -> OffsetReset:
    """Where a group is and where it shall be: at a position, or `shift` records on.

    `topics` are NAME or NAME:0,1; without them it is every partition the group has committed."""
    committed = await groups.offsets(group)
    tps = await select_partitions(groups, topics) if topics else sorted(committed)
    if not tps:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"group {group!r} has committed nothing: name topics"
        )
    before = {tp: committed[tp].offset if tp in committed else None for tp in tps}
    if to is not None:
        return OffsetReset(group, before, await resolve(groups.client, to, tps))
    ranges = await log_ranges(groups.client, tps)
    return OffsetReset(group, before, shifted(before, shift, ranges))


def shifted(
    before: Mapping[TopicPartition, int | None],
    shift: int,
    ranges: Mapping[TopicPartition, Range],
) -> dict[TopicPartition, int]:
    """Offsets moved on by `shift`, within each log; where nothing is committed, from its start."""
    return {
        tp: clamp(max(0, (ranges[tp].start if offset is None else offset) + shift), ranges[tp])
        for tp, offset in before.items()
    }


async def select_partitions(groups: Groups, topics: Collection[str]) -> list[TopicPartition]:
    """The partitions behind NAME or NAME:0,1. ValueError if a text is neither."""
    selected: list[TopicPartition] = []
    for text in topics:
        name, indexes = parse_selection(text)
        metadata = await groups.client.require_topics([name])
        every = metadata.partitions_of([name])
        selected += every if indexes is None else [TopicPartition(name, i) for i in indexes]
    return selected


def parse_selection(text: str) -> tuple[str, Sequence[int] | None]:
    """A topic, and the partitions of it that are meant; None for all."""
    name, _, wanted = text.partition(":")
    try:
        return name, [int(index) for index in wanted.split(",")] if wanted else None
    except ValueError:
        raise ValueError(f"partitions look like orders or orders:0,1, not {text!r}") from None
