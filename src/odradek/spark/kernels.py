"""Compiled loops between the bytes of records and the columns of Arrow.

No Python object per record: a batch goes through in one call. Every read is checked against the end
of the buffer before it is made, since the bytes come from a network; a kernel that meets nonsense
returns its position as a negative number and the caller says where it was.

Compiled once (`compilation`) and kept on disk, beside this file or in the user's cache, so a Spark
worker only loads them; where nothing can be kept each worker compiles for itself, which takes it a
second or two and some memory. All arrays that are only read are read-only (`arrays.frozen`): the
compiler makes another version for those that are not.

A record, all numbers zigzag varints: length, attributes (one byte), timestamp delta, offset delta,
key length (-1 null) and key, value length (-1 null) and value, header count, then per header key
length, key, value length (-1 null), value.
"""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, types
from numba.core import cgutils, event
from numba.extending import intrinsic

logger = logging.getLogger(__name__)

Array = np.ndarray[Any, Any]
Number = Any  # an int to Python, a machine word to the compiler

raw_memcpy: Any = cgutils.raw_memcpy

# Kinds of nonsense, as negative results; a position is the other result.
OK = 0
BAD_RECORD = -1
BAD_TIMESTAMP = -2

# Milliseconds beyond these do not fit a timestamp of microseconds.
TIMESTAMP_MS_MAX = (2**63 - 1) // 1000
TIMESTAMP_MS_MIN = -(2**63) // 1000 + 1


class _Announcement(event.Listener):
    """Says once why the first read or write on a machine takes its time."""

    def __init__(self) -> None:
        self._said = False

    def on_start(self, event: Any) -> None:
        module = event.data["dispatcher"].py_func.__module__
        if not self._said and module and module.startswith("odradek."):
            self._said = True
            logger.warning("compiling the loops that read and write records, once")

    def on_end(self, event: Any) -> None:
        pass


_listen: Any = event.register
_listen("numba:compile", _Announcement())


def compiled(function: Callable[..., Any]) -> Any:
    """The function in machine code, made when it is first called, or loaded if it was before."""
    try:
        return njit(cache=True, nogil=True)(function)
    except RuntimeError:  # there is nowhere to keep it
        return njit(nogil=True)(function)


def _copy(typing: Any, out: Any, out_at: Any, data: Any, data_at: Any, size: Any) -> Any:
    """out[out_at:out_at + size] = data[data_at:data_at + size] as one memcpy, unchecked.

    The compiler does not find out by itself that two arrays do not overlap, and copies bytes.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to, to_at, source, source_at, count = arguments
        to = context.make_array(signature.args[0])(context, builder, to)
        source = context.make_array(signature.args[2])(context, builder, source)
        raw_memcpy(
            builder,
            builder.gep(to.data, [to_at]),
            builder.gep(source.data, [source_at]),
            count,
            1,
        )
        return context.get_dummy_value()

    index = types.int64
    return types.none(out, index, data, index, index), generate


copy: Any = intrinsic(_copy)


@compiled
def read_varint(data: Array, position: int, end: int) -> tuple[Number, int]:
    """A zigzag varint and the position behind it; position -1 when there is none."""
    if position < end and data[position] < 0x80:  # most of them
        small = np.int64(data[position])
        return (small >> 1) ^ -(small & 1), position + 1
    result = np.uint64(0)
    shift = np.uint64(0)
    while position < end and shift < np.uint64(64):
        byte = np.uint64(data[position])
        position += 1
        result |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            return np.int64(result >> np.uint64(1)) ^ -np.int64(result & np.uint64(1)), position
        shift += np.uint64(7)
    return np.int64(0), -1


@compiled
def skip_headers(data: Array, position: int, end: int, count: int) -> int:
    """The position behind `count` headers, or -1."""
    for _ in range(count):
        size, position = read_varint(data, position, end)
        if position < 0 or size < 0 or size > end - position:
            return -1
        position += size
        size, position = read_varint(data, position, end)
        if position < 0 or size < -1 or size > end - position:
            return -1
        position += max(size, 0)
    return position


@compiled
def read_records(
    data: Array,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int,
    first_offset: int,
    until_offset: int,
    offsets: Array,
    timestamps: Array,
    key_ends: Array,
    key_valid: Array,
    keys: Array,
    value_ends: Array,
    value_valid: Array,
    values: Array,
    headers_at: Array,
    header_counts: Array,
    row: int,
) -> tuple[int, int]:
    """Put each record with first <= offset < until into the columns, from `row` on.

    `key_ends[row]` says where row's key begins in `keys`, the next where it ends, and its bit in
    `key_valid` whether it is there; values likewise. The columns have room for all records of the
    batch and all bytes of `data`. Headers are only noted, if `headers_at` has room for that.
    Returns the next free row and OK, or where and what is wrong.
    """
    position = 0
    end = len(data)
    for _ in range(count):
        began = position
        length, position = read_varint(data, position, end)
        if position < 0 or length < 1 or length > end - position:
            return began, BAD_RECORD
        stop = position + length
        timestamp_delta, position = read_varint(data, position + 1, stop)
        if position < 0:
            return began, BAD_RECORD
        offset_delta, position = read_varint(data, position, stop)
        if position < 0:
            return began, BAD_RECORD
        key_size, key_at = read_varint(data, position, stop)
        if key_at < 0 or key_size < -1 or key_size > stop - key_at:
            return began, BAD_RECORD
        value_size, value_at = read_varint(data, key_at + max(key_size, 0), stop)
        if value_at < 0 or value_size < -1 or value_size > stop - value_at:
            return began, BAD_RECORD
        header_count, header_at = read_varint(data, value_at + max(value_size, 0), stop)
        # A header takes two bytes at least, so a count beyond that cannot be true.
        if header_at < 0 or header_count < 0 or header_count > (stop - header_at) // 2:
            return began, BAD_RECORD
        if skip_headers(data, header_at, stop, header_count) != stop:
            return began, BAD_RECORD
        position = stop
        offset = base_offset + offset_delta
        if offset < first_offset or offset >= until_offset:
            continue
        timestamp = append_time if append_time >= 0 else base_timestamp + timestamp_delta
        if timestamp > TIMESTAMP_MS_MAX or timestamp < TIMESTAMP_MS_MIN:
            return offset, BAD_TIMESTAMP
        offsets[row] = offset
        timestamps[row] = timestamp * 1000
        append_bytes(keys, key_ends, key_valid, row, data, key_at, key_size)
        append_bytes(values, value_ends, value_valid, row, data, value_at, value_size)
        if row < len(headers_at):
            headers_at[row] = header_at
            header_counts[row] = header_count
        row += 1
    return row, OK


@compiled
def append_bytes(
    out: Array, ends: Array, valid: Array, row: int, data: Array, at: int, size: int
) -> None:
    """Add data[at:at + size] to a column as its row; a size of -1 is null."""
    position = ends[row]
    if size >= 0:
        copy(out, position, data, at, size)
        valid[row >> 3] |= np.uint8(1 << (row & 7))
        position += size
    ends[row + 1] = position


@compiled
def read_headers(
    data: Array,
    at: Array,
    counts: Array,
    key_ends: Array,
    key_valid: Array,
    keys: Array,
    value_ends: Array,
    value_valid: Array,
    values: Array,
    row: int,
) -> int:
    """Put every header of the given records, checked before, into the columns."""
    end = len(data)
    for index in range(len(at)):
        position = at[index]
        for _ in range(counts[index]):
            key_size, key_at = read_varint(data, position, end)
            value_size, value_at = read_varint(data, key_at + key_size, end)
            append_bytes(keys, key_ends, key_valid, row, data, key_at, key_size)
            append_bytes(values, value_ends, value_valid, row, data, value_at, value_size)
            position = value_at + max(value_size, 0)
            row += 1
    return row


@compiled
def varint_size(value: int) -> int:
    """How many bytes a zigzag varint takes."""
    rest = np.uint64((value << 1) ^ (value >> 63)) >> np.uint64(7)
    size = 1
    while rest != np.uint64(0):
        rest >>= np.uint64(7)
        size += 1
    return size


@compiled
def write_varint(out: Array, position: int, value: int) -> int:
    """Write a zigzag varint; the position behind it."""
    rest = np.uint64((value << 1) ^ (value >> 63))
    while rest >= np.uint64(0x80):
        out[position] = np.uint8(rest & np.uint64(0x7F)) | np.uint8(0x80)
        position += 1
        rest >>= np.uint64(7)
    out[position] = np.uint8(rest)
    return position + 1


@compiled
def write_bytes(out: Array, position: int, data: Array, start: int, size: int) -> int:
    """Write a length and as many bytes; a negative length is null and has none."""
    position = write_varint(out, position, size)
    if size > 0:
        copy(out, position, data, start, size)
        position += size
    return position


@compiled
def piece(offsets: Array, valid: Array, row: int) -> tuple[int, int]:
    """Where a row of a column of bytes begins, and its size; -1 for null."""
    if not valid[row]:
        return 0, -1
    return offsets[row], offsets[row + 1] - offsets[row]


@compiled
def record_body_size(
    row: int,
    delta: int,
    key_offsets: Array,
    key_valid: Array,
    value_offsets: Array,
    value_valid: Array,
    header_lists: Array,
    header_key_offsets: Array,
    header_value_offsets: Array,
    header_value_valid: Array,
) -> Number:
    """The length field of a record: what follows it."""
    _, key_size = piece(key_offsets, key_valid, row)
    _, value_size = piece(value_offsets, value_valid, row)
    # Attributes and a timestamp delta of 0 take a byte each.
    size = 2 + varint_size(delta) + varint_size(key_size) + max(key_size, 0)
    size += varint_size(value_size) + max(value_size, 0)
    first, last = header_lists[row], header_lists[row + 1]
    size += varint_size(last - first)
    for header in range(first, last):
        header_key_size = header_key_offsets[header + 1] - header_key_offsets[header]
        size += varint_size(header_key_size) + header_key_size
        _, header_value_size = piece(header_value_offsets, header_value_valid, header)
        size += varint_size(header_value_size) + max(header_value_size, 0)
    return size


@compiled
def write_records(
    out: Array,
    rows: Array,
    start: int,
    key_offsets: Array,
    key_data: Array,
    key_valid: Array,
    value_offsets: Array,
    value_data: Array,
    value_valid: Array,
    header_lists: Array,
    header_key_offsets: Array,
    header_key_data: Array,
    header_value_offsets: Array,
    header_value_data: Array,
    header_value_valid: Array,
) -> tuple[int, int]:
    """Write rows[start:] as records until `out` is full; the next row and the bytes written.

    When not even the first fits, the next row is `start` and the number is the size it needs.
    """
    position = 0
    for index in range(start, len(rows)):
        row = rows[index]
        length = record_body_size(
            row,
            index - start,
            key_offsets,
            key_valid,
            value_offsets,
            value_valid,
            header_lists,
            header_key_offsets,
            header_value_offsets,
            header_value_valid,
        )
        needed = varint_size(length) + length
        if position + needed > len(out):
            return index, position if index > start else needed
        position = write_varint(out, position, length)
        out[position] = 0
        position = write_varint(out, position + 1, 0)
        position = write_varint(out, position, index - start)
        at, size = piece(key_offsets, key_valid, row)
        position = write_bytes(out, position, key_data, at, size)
        at, size = piece(value_offsets, value_valid, row)
        position = write_bytes(out, position, value_data, at, size)
        first, last = header_lists[row], header_lists[row + 1]
        position = write_varint(out, position, last - first)
        for header in range(first, last):
            at = header_key_offsets[header]
            size = header_key_offsets[header + 1] - at
            position = write_bytes(out, position, header_key_data, at, size)
            at, size = piece(header_value_offsets, header_value_valid, header)
            position = write_bytes(out, position, header_value_data, at, size)
    return len(rows), position


@compiled
def murmur2(data: Array, start: int, size: int) -> Number:
    """Kafka's hash of a key: 32-bit Murmur 2 with its seed, as a number without sign."""
    m = np.uint32(0x5BD1E995)
    h = np.uint32(0x9747B28C) ^ np.uint32(size)
    whole = size - size % 4
    for i in range(start, start + whole, 4):
        k = (
            np.uint32(data[i])
            | np.uint32(data[i + 1]) << np.uint32(8)
            | np.uint32(data[i + 2]) << np.uint32(16)
            | np.uint32(data[i + 3]) << np.uint32(24)
        )
        k = np.uint32(k * m)
        k ^= k >> np.uint32(24)
        k = np.uint32(k * m)
        h = np.uint32(h * m) ^ k
    rest = size % 4
    at = start + whole
    if rest == 3:
        h ^= np.uint32(data[at + 2]) << np.uint32(16)
    if rest >= 2:
        h ^= np.uint32(data[at + 1]) << np.uint32(8)
    if rest >= 1:
        h ^= np.uint32(data[at])
        h = np.uint32(h * m)
    h ^= h >> np.uint32(13)
    h = np.uint32(h * m)
    h ^= h >> np.uint32(15)
    return np.int64(h)


@compiled
def partition_keys(offsets: Array, data: Array, valid: Array, count: int, out: Array) -> None:
    """Kafka's partition of each key, where `out` has none yet (-1) and the key is not null."""
    for row in range(len(out)):
        if out[row] < 0 and valid[row]:
            hashed = murmur2(data, offsets[row], offsets[row + 1] - offsets[row])
            out[row] = (hashed & 0x7FFFFFFF) % count


@compiled
def mixed(sum_so_far: Number, data: Array, start: int, size: int) -> Number:
    """A sum of 64 bits with a byte string, or null (size -1), mixed into it."""
    number = np.uint64(1) << np.uint64(32)
    if size >= 0:
        number = np.uint64(murmur2(data, start, size)) ^ (np.uint64(size) << np.uint64(33))
    h = (np.uint64(sum_so_far) ^ number) * np.uint64(0x9E3779B97F4A7C15)
    return h ^ (h >> np.uint64(29))


@compiled
def sum_rows(
    partitions: Array,
    topic_offsets: Array,
    topic_data: Array,
    topic_valid: Array,
    key_offsets: Array,
    key_data: Array,
    key_valid: Array,
    value_offsets: Array,
    value_data: Array,
    value_valid: Array,
    header_lists: Array,
    header_key_offsets: Array,
    header_key_data: Array,
    header_value_offsets: Array,
    header_value_data: Array,
    header_value_valid: Array,
) -> Number:
    """The sum of a number for each row, modulo 2**64: the same for rows in any order."""
    total = np.uint64(0)
    for row in range(len(partitions)):
        h = np.uint64(partitions[row] + 2)
        at, size = piece(topic_offsets, topic_valid, row)
        h = mixed(h, topic_data, at, size)
        at, size = piece(key_offsets, key_valid, row)
        h = mixed(h, key_data, at, size)
        at, size = piece(value_offsets, value_valid, row)
        h = mixed(h, value_data, at, size)
        for header in range(header_lists[row], header_lists[row + 1]):
            at = header_key_offsets[header]
            h = mixed(h, header_key_data, at, header_key_offsets[header + 1] - at)
            at, size = piece(header_value_offsets, header_value_valid, header)
            h = mixed(h, header_value_data, at, size)
        total += h
    return total
