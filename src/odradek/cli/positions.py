"""A place in a log as the command line names it: an end, an offset, the last N, a time."""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from odradek.cli.output import parse_moment
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    from odradek.client import Client, Isolation

EXPLANATION = (
    "earliest, latest, an offset, -N for the last N, or a time (2024-05-01T12:00 or @MILLISECONDS)."
)


def checked(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """The callback of an option that takes a position."""
    if value not in (None, "earliest", "latest") and _whole(value) is None:
        try:
            if not -(2**63) <= parse_moment(value) < 2**63:
                raise ValueError
        except ValueError:
            raise click.BadParameter(f"{value!r} is none: it is {EXPLANATION}") from None
    return value


async def resolve(
    client: "Client",
    position: str,
    partitions: Iterable[TopicPartition],
    isolation: "Isolation | None" = None,
) -> dict[TopicPartition, int]:
    """The offset that the position means in each partition, never outside its log.

    A time after the last record means the end."""
    from odradek.client import EARLIEST, LATEST, Isolation, offsets_at

    partitions = list(partitions)
    level = Isolation.READ_UNCOMMITTED if isolation is None else isolation

    async def at(timestamp: int) -> dict[TopicPartition, int]:
        found = await offsets_at(client, dict.fromkeys(partitions, timestamp), isolation=level)
        return {partition: place.offset for partition, place in found.items()}

    if position == "earliest":
        return await at(EARLIEST)
    if position == "latest":
        return await at(LATEST)
    number = _whole(position)
    starts, ends = await asyncio.gather(at(EARLIEST), at(LATEST))
    if number is None:
        found = await at(parse_moment(position))
        return {part: ends[part] if offset < 0 else offset for part, offset in found.items()}
    return {
        part: min(max(number if number >= 0 else ends[part] + number, starts[part]), ends[part])
        for part in partitions
    }


def _whole(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
