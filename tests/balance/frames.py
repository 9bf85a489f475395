"""Frames of brokers that never were, for tests of what is made of them."""

from collections.abc import Mapping
from typing import NamedTuple

from odradek.wire.telemetry import (
    COLUMNS,
    IN_SYNC,
    LEADS,
    BrokerLoad,
    Directory,
    Frame,
    encode_frame,
    new_columns,
)

# The start of a window, far from zero.
START_MS = 1_700_000_100_000
TICK_MS = 15_000
TICKS_PER_WINDOW = 20

assert START_MS % 300_000 == 0


class Row(NamedTuple):
    """A partition in a frame; by default a leader's."""

    bytes_in: int = 0
    bytes_out: int = 0
    follower_out: int = 0
    messages: int = 0
    requests: int = 0
    size: int = 0
    log_end: int = 0
    role: int = LEADS | IN_SYNC


def frame(
    broker: int,
    tick: int,
    rows: Mapping[tuple[str, int], Row],
    load: BrokerLoad = BrokerLoad(4.0, 1.0, 0.5, 0.2, 0.1, 0.2),
    *,
    length: int = 1,
    is_estimated: bool = False,
    incarnation: int = 1,
) -> bytes:
    """`length` is how many ticks it covers, from `tick` on."""
    topics = sorted({topic for topic, _ in rows})
    columns = new_columns()
    for (topic, partition), row in rows.items():
        values = {**row._asdict(), "topic": topics.index(topic), "partition": partition}
        for name in COLUMNS:
            columns[name].append(values.get(name, 0))
    return encode_frame(
        Frame(
            broker,
            incarnation,
            tick,
            START_MS + tick * TICK_MS,
            START_MS + (tick + length) * TICK_MS,
            load,
            (Directory("/disk", 1000, 400), Directory("/broken", is_failed=True)),
            tuple(topics),
            columns,
            is_whole=True,
            is_estimated=is_estimated,
        )
    )
