"""Positions in a log as a user writes them: an end, an offset, the last N, or a time."""

import asyncio
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple, Self

from odradek.client.client import Client
from odradek.client.reader import EARLIEST, LATEST, Isolation, offsets_at
from odradek.wire.topics import TopicPartition

EXPLANATION = (
    "earliest, latest, an offset, -N for the last N, or a time (2024-05-01T12:00 or @MILLISECONDS)."
)
TIMESTAMPS = range(-(2**63), 2**63)


class Position(NamedTuple):
    """Where to begin reading: one of the three."""

    end: int | None = None  # EARLIEST or LATEST
    offset: int | None = None  # negative: so many before the end
    timestamp_ms: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError for what is no position."""
        if text in ("earliest", "latest"):
            return cls(end=EARLIEST if text == "earliest" else LATEST)
        try:
            return cls(offset=int(text))
        except ValueError:
            pass
        try:
            timestamp_ms = parse_moment(text)
        except (ValueError, OverflowError):
            timestamp_ms = TIMESTAMPS.stop
        if timestamp_ms not in TIMESTAMPS:
            raise ValueError(f"{text!r} is not a position; use {EXPLANATION}")
        return cls(timestamp_ms=timestamp_ms)


AT_START = Position(end=EARLIEST)
AT_END = Position(end=LATEST)


def parse_moment(text: str) -> int:
    """A point in time in ms: ISO 8601 (local time unless it says otherwise), or @ms. ValueError."""
    if text.startswith("@"):
        return int(text[1:])
    return int(datetime.fromisoformat(text).timestamp() * 1000)


class Range(NamedTuple):
    """What a partition's log has: the first offset, and the one after the last."""

    start: int
    end: int


async def log_ranges(
    client: Client,
    tps: Iterable[TopicPartition],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[TopicPartition, Range]:
    """The offsets each partition has."""
    tps = list(tps)
    starts, ends = await asyncio.gather(
        offsets_at(client, dict.fromkeys(tps, EARLIEST), isolation=isolation),
        offsets_at(client, dict.fromkeys(tps, LATEST), isolation=isolation),
    )
    return {tp: Range(starts[tp].offset, ends[tp].offset) for tp in tps}


async def resolve(
    client: Client,
    position: Position,
    tps: Iterable[TopicPartition],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
) -> dict[TopicPartition, int]:
    """The offset that a position means in each partition, never outside its log.

    A time after the last record means the end."""
    tps = list(tps)

    async def at(timestamp: int) -> dict[TopicPartition, int]:
        found = await offsets_at(client, dict.fromkeys(tps, timestamp), isolation=isolation)
        return {tp: place.offset for tp, place in found.items()}

    if position.end is not None:
        return await at(position.end)
    if position.timestamp_ms is not None:
        found, ends = await asyncio.gather(at(position.timestamp_ms), at(LATEST))
        return {tp: ends[tp] if offset < 0 else offset for tp, offset in found.items()}
    ranges = await log_ranges(client, tps, isolation)
    return {tp: clamp(position.offset or 0, ranges[tp]) for tp in tps}


def clamp(offset: int, log: Range) -> int:
    """The offset nearest to this one that the log has; a negative one counts from the end."""
    wanted = offset if offset >= 0 else log.end + offset
    return min(max(wanted, log.start), log.end)
