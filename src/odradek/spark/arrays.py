"""Arrow columns over the memory of numpy arrays, and the other way round.

`pa.array`, `pa.scalar` and `to_numpy` do the same and load pandas first: a quarter of a second and
45 MB in each of Spark's workers, which have no use for it here.
"""

from typing import Any

import numpy as np
import pyarrow as pa

Array = np.ndarray[Any, Any]


def frozen(values: Array) -> Array:
    """The same array, read-only."""
    values.flags.writeable = False
    return values


def to_column(values: Array, kind: pa.DataType) -> pa.Array:
    """A column of numbers, none null."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def to_mask(flags: Array) -> pa.Array:
    """A column of booleans, none null."""
    return pa.Array.from_buffers(pa.bool_(), len(flags), [None, pa.py_buffer(to_bits(flags))])


def to_bits(flags: Array) -> Array:
    """The way Arrow packs booleans, and what is null."""
    return np.packbits(flags, bitorder="little")


def repeated(text: str, count: int) -> pa.Array:
    """A column with the same text in every row."""
    data = np.frombuffer(text.encode(), np.uint8)
    ends = np.arange(count + 1, dtype=np.int32) * np.int32(len(data))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.tile(data, count))]
    return pa.Array.from_buffers(pa.string(), count, buffers)


def valid_of(column: pa.Array) -> Array:
    """Which rows of a column are not null."""
    bits = column.buffers()[0]
    if bits is None or not column.null_count:
        return np.ones(len(column), np.bool_)
    unpacked = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
    return unpacked[column.offset : column.offset + len(column)].view(np.bool_)


def numbers_of(column: pa.Array, kind: type[np.generic], more: int = 0) -> Array:
    """The second buffer of a column: its numbers, or where its rows begin (and `more` = 1 end)."""
    buffer = column.buffers()[1]
    count = len(column) + more
    if buffer is None or not buffer.size:
        return np.zeros(count, kind)
    return np.frombuffer(buffer, kind)[column.offset : column.offset + count]
