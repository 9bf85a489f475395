"""Telemetry frames to Arrow: one table of partitions, one of brokers. No Python per row.

A frame that is none is passed over, with a line in the log and a count. Of frames of the same
(broker, incarnation, tick) the one that ends last counts: it has all that the others have.
"""

import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from odradek.wire.telemetry import COLUMNS, BrokerLoad, Frame, InvalidFrame, decode_frame

__all__ = [
    "BROKERS",
    "ROWS",
    "Decoded",
    "decode_frames",
    "disk_space",
    "frame_brokers",
    "frame_rows",
    "open_frame",
]

logger = logging.getLogger(__name__)

COUNTS = ("bytes_in", "bytes_out", "follower_out", "messages", "requests")
ROWS = pa.schema(
    [
        ("broker", pa.int32()),
        ("from_ms", pa.int64()),
        ("to_ms", pa.int64()),
        ("is_estimated", pa.bool_()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("role", pa.uint8()),
        ("directory", pa.string()),
        *((name, pa.int64()) for name in (*COUNTS, "size", "log_end")),
    ]
)
_SECONDS = ("cpu_s", "produce_s", "consumer_s", "follower_s", "other_s")
BROKERS = pa.schema(
    [
        ("broker", pa.int32()),
        ("from_ms", pa.int64()),
        ("to_ms", pa.int64()),
        ("is_estimated", pa.bool_()),
        ("cores", pa.float64()),
        *((name, pa.float64()) for name in _SECONDS),
        *((name, pa.int64()) for name in BrokerLoad._fields[6:]),
        ("disk_capacity", pa.int64()),
        ("disk_used", pa.int64()),
        ("failed_directories", pa.list_(pa.string())),
    ]
)
INT64_MAX = 2**63 - 1
# No partition has or does so much: sums of a thousand such still fit, and so do all plans.
AMOUNT_MAX = 2**53
# Warnings about one read: more say nothing new.
SAID_MAX = 5


class Decoded(NamedTuple):
    """What some frames say. `skipped` is how many values were none."""

    rows: pa.Table
    brokers: pa.Table
    skipped: int


def decode_frames(values: Iterable[bytes | None]) -> Decoded:
    frames: dict[tuple[int, int, int], Frame] = {}
    skipped = 0
    for value in values:
        try:
            frame = open_frame(value)
        except InvalidFrame as error:
            skipped += 1
            if skipped <= SAID_MAX:
                logger.warning("a record of the telemetry topic is skipped: %s", error)
            continue
        key = frame.broker, frame.incarnation, frame.tick
        known = frames.get(key)
        if known is None or known.to_ms < frame.to_ms:
            frames[key] = frame
    kept = sorted(frames.values(), key=lambda frame: (frame.to_ms, frame.broker, frame.tick))
    return Decoded(frame_rows(kept), frame_brokers(kept), skipped)


def open_frame(value: bytes | None) -> Frame:
    """Raises InvalidFrame."""
    frame = decode_frame(value or b"")
    _check_rows(frame)
    return frame


def _check_rows(frame: Frame) -> None:
    """What numbers in rows point at exists, and nothing is less than zero or beyond belief: sums of
    what one sender makes up must not run over."""
    if not len(frame):
        return
    columns = {
        name: np.frombuffer(column, column.typecode) for name, column in frame.columns.items()
    }
    if columns["topic"].max() >= len(frame.topics):
        raise InvalidFrame(f"a row of topic {columns['topic'].max()} of {len(frame.topics)}")
    for name in COLUMNS:
        if columns[name].min() < 0:
            raise InvalidFrame(f"{name} of {columns[name].min()}")
        if columns[name].max() > AMOUNT_MAX:
            raise InvalidFrame(f"{name} of {columns[name].max()}")


def frame_rows(frames: list[Frame]) -> pa.Table:
    """Strings are looked up once per frame and name, not per row."""
    lengths = [len(frame) for frame in frames]

    def repeated(value: Callable[[Frame], object], kind: pa.DataType) -> pa.Array:
        values = np.array([value(frame) for frame in frames], kind.to_pandas_dtype())
        return pa.array(np.repeat(values, lengths), kind)

    def column(name: str) -> np.ndarray:
        parts = [np.frombuffer(frame.columns[name], COLUMNS[name]) for frame in frames]
        return np.concatenate(parts) if parts else np.empty(0, COLUMNS[name])

    def names(of: Callable[[Frame], Iterable[str | None]], name: str) -> pa.Array:
        known: dict[str | None, int] = {}
        parts = []
        for frame in frames:
            # A number beyond the end, as that of no directory, is null.
            numbers = [known.setdefault(each, len(known)) for each in (*of(frame), None)]
            codes = np.array(numbers, np.int64)
            parts.append(
                codes[np.minimum(np.frombuffer(frame.columns[name], COLUMNS[name]), len(codes) - 1)]
            )
        indices = np.concatenate(parts) if parts else np.empty(0, np.int64)
        return pa.array(list(known), pa.string()).take(pa.array(indices))

    made = {
        "broker": repeated(lambda frame: frame.broker, pa.int32()),
        "from_ms": repeated(lambda frame: frame.from_ms, pa.int64()),
        "to_ms": repeated(lambda frame: frame.to_ms, pa.int64()),
        "is_estimated": repeated(lambda frame: frame.is_estimated, pa.bool_()),
        "topic": names(lambda frame: frame.topics, "topic"),
        "directory": names(lambda frame: [each.path for each in frame.directories], "directory"),
    }
    for field in ROWS:
        if field.name not in made:
            made[field.name] = pa.array(column(field.name), field.type)
    return pa.table([made[name] for name in ROWS.names], ROWS)


def frame_brokers(frames: list[Frame]) -> pa.Table:
    def row(frame: Frame) -> dict[str, object]:
        live = [each for each in frame.directories if not each.is_failed]
        capacity, free = disk_space((each.capacity, each.free) for each in live)
        return {
            "broker": frame.broker,
            "from_ms": frame.from_ms,
            "to_ms": frame.to_ms,
            "is_estimated": frame.is_estimated,
            # Of a sender's lies the largest number that fits is as good as any.
            **{
                name: value if isinstance(value, float) else min(value, INT64_MAX)
                for name, value in frame.load._asdict().items()
            },
            "disk_capacity": min(capacity, INT64_MAX),
            "disk_used": max(0, min(capacity - free, INT64_MAX)),
            "failed_directories": [each.path for each in frame.directories if each.is_failed],
        }

    return pa.Table.from_pylist([row(frame) for frame in frames], BROKERS)


def disk_space(directories: Iterable[tuple[int, int]]) -> tuple[int, int]:
    """Capacity and free bytes of a broker, from those of its log directories, each of which has
    the numbers of the file system that it is on. One that several directories share counts once.

    Nothing names the file system, so directories with the same two numbers are taken to share one.
    That is wrong twice: of disks that are alike to the byte, as new ones may be, all but one are
    left out until something is written to them, which errs towards too little room; and a shared
    one whose free bytes change between two directories' answers is counted for both.
    """
    systems = set(directories)
    return sum(capacity for capacity, _ in systems), sum(free for _, free in systems)
