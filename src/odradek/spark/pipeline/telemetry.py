"""The decode format `telemetry`: a frame is one row, with its partitions as an array of structs.

Columns: what `odradek.balance.frames` says of a broker, the frame's incarnation and tick, `at`, the
moment that decides which window it belongs to, and `rows`.
"""

import numpy as np
import pyarrow as pa

from odradek.balance.frames import BROKERS, ROWS, frame_brokers, frame_rows, open_frame
from odradek.wire.telemetry import Frame, InvalidFrame

__all__ = ["EVENT", "decode_values"]

AT = pa.timestamp("us", tz="UTC")
# Spark has no unsigned numbers.
ROW = pa.struct(
    [field.with_type(pa.int16()) if field.type == pa.uint8() else field for field in list(ROWS)[4:]]
)
EVENT = pa.struct(
    [
        *BROKERS,
        pa.field("incarnation", pa.int64()),
        pa.field("tick", pa.int64()),
        pa.field("at", AT),
        pa.field("rows", pa.list_(ROW)),
    ]
)


def decode_values(values: pa.Array) -> tuple[pa.Array, list[str | None]]:
    """A struct for each value, null with a reason where it is no frame."""
    frames: list[Frame] = []
    positions: list[int | None] = []
    reasons: list[str | None] = []
    for value in values.to_pylist():
        try:
            frame = open_frame(value)
        except InvalidFrame as error:
            positions.append(None)
            reasons.append(str(error))
        else:
            positions.append(len(frames))
            reasons.append(None)
            frames.append(frame)
    return _events(frames).take(pa.array(positions, pa.int64())), reasons


def _events(frames: list[Frame]) -> pa.Array:
    brokers, rows = frame_brokers(frames), frame_rows(frames)
    rows = rows.select([field.name for field in ROW]).cast(pa.schema(list(ROW)))
    structs = rows.to_struct_array().combine_chunks()
    ends = np.concatenate([[0], np.cumsum([len(frame) for frame in frames])])
    at_us = [max(0, frame.to_ms - 1) * 1000 for frame in frames]
    columns = [
        *(brokers[name].combine_chunks() for name in BROKERS.names),
        pa.array([frame.incarnation for frame in frames], pa.int64()),
        pa.array([frame.tick for frame in frames], pa.int64()),
        pa.array(at_us, pa.int64()).cast(AT),
        pa.ListArray.from_arrays(pa.array(ends, pa.int32()), structs),
    ]
    return pa.StructArray.from_arrays(columns, fields=list(EVENT))
