"""The compiled loop that decodes a batch of Avro values into Arrow's buffers.

A schema is a program of operations (`avro_program`), run once for each row. Each operation reads a
value and appends to its column; no column outgrows the batch's bytes, so nothing is ever resized.
A row with a fault is undone and marked. Every read is checked against the end of its row first,
since the bytes come from a network.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from odradek.spark.kernels import Array, Number, compiled


def part(function: Callable[..., Any]) -> Any:
    """A part of the function that calls it. Calls are few here: each counts the users of every
    array that it is given, which takes longer than reading a number."""
    return njit(inline="always")(function)


# Operations. LONG to FIXED and NOTHING are leaves; what LIST begins, END ends.
(
    LONG,
    INT,
    MILLIS,
    ENUM,
    FLOAT,
    DOUBLE,
    BOOL,
    DECIMAL,
    BYTES,
    TEXT,
    UUID,
    FIXED,
    NOTHING,
    STRUCT,
    UNION,
    LIST,
    END,
) = range(17)

# What is known of a column: where its words, flags, offsets and bytes begin, how many values it has
# and how many bytes. Words and offsets are in one array of numbers, flags and bytes in another.
WORDS, FLAGS, OFFSETS, TEXTS, COUNT, SIZE = range(6)

ITEMS_MAX = 1_000_000
MILLIS_MAX = (2**63 - 1) // 1000
MILLIS_MIN = -(2**63 // 1000)
DEPTH_MAX = 64
DECIMAL_BYTES = 16
UUID_BYTES = 36


@part
def read_long(data: Array, at: Number, end: Number) -> Any:
    """A zigzag varint and the position behind it; -1 if there is none."""
    result = np.uint64(0)
    shift = np.uint64(0)
    while at < end and shift < np.uint64(70):
        byte = np.uint64(data[at])
        at += 1
        if shift == np.uint64(63) and byte > np.uint64(1):
            return np.int64(0), np.int64(-1)
        result |= (byte & np.uint64(127)) << shift
        if byte < np.uint64(128):
            return np.int64(result >> np.uint64(1)) ^ -np.int64(result & np.uint64(1)), at
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@compiled
def is_utf8(data: Array, at: Number, end: Number) -> Any:
    """Whether these bytes are UTF-8 without surrogates and without longer forms than needed."""
    while at < end:
        lead = data[at]
        if lead < 0x80:
            at += 1
            continue
        if lead < 0xC2 or lead > 0xF4:
            return False
        more = 1 if lead < 0xE0 else (2 if lead < 0xF0 else 3)
        if at + more >= end:
            return False
        for index in range(1, more + 1):
            if data[at + index] & 0xC0 != 0x80:
                return False
        second = data[at + 1]
        if (
            (lead == 0xE0 and second < 0xA0)
            or (lead == 0xED and second > 0x9F)
            or (lead == 0xF0 and second < 0x90)
            or (lead == 0xF4 and second > 0x8F)
        ):
            return False
        at += more + 1
    return True


@compiled
def read_decimal(data: Array, at: Number, size: Number, most_high: Number, most_low: Number) -> Any:
    """The high and low word of a big-endian number, and whether it is less than the bound."""
    is_negative = size > 0 and data[at] >= 0x80
    filler = np.uint8(255) if is_negative else np.uint8(0)
    while size > DECIMAL_BYTES:  # only the sign may be longer
        if data[at] != filler:
            return np.int64(0), np.int64(0), False
        at += 1
        size -= 1
    if size == DECIMAL_BYTES and (data[at] >= 0x80) != is_negative:
        return np.int64(0), np.int64(0), False
    high = low = np.uint64(0xFFFFFFFFFFFFFFFF) if is_negative else np.uint64(0)
    for index in range(size):
        high = (high << np.uint64(8)) | (low >> np.uint64(56))
        low = (low << np.uint64(8)) | np.uint64(data[at + index])
    above, below = high, low
    if is_negative:
        below = ~low + np.uint64(1)
        above = ~high + (np.uint64(1) if below == np.uint64(0) else np.uint64(0))
    fits = above < np.uint64(most_high) or (
        above == np.uint64(most_high) and below < np.uint64(most_low)
    )
    return np.int64(high), np.int64(low), fits


@compiled
def read_uuid(data: Array, at: Number, small: Array, into: Number) -> Any:
    """Copy a UUID as it is usually written, in lower case; False if it is written otherwise."""
    for index in range(UUID_BYTES):
        byte = data[at + index]
        if index == 8 or index == 13 or index == 18 or index == 23:
            if byte != 0x2D:
                return False
        elif 0x41 <= byte <= 0x46:
            byte += np.uint8(0x20)
        elif not (0x30 <= byte <= 0x39 or 0x61 <= byte <= 0x66):
            return False
        small[into + index] = byte
    return True


@compiled
def append_nulls(
    ops: Array, start: Number, until: Number, large: Array, small: Array, state: Array
) -> None:
    """Append a null to every column of a part of the program."""
    pc = start
    while pc < until:
        op, column = ops[pc, 0], ops[pc, 1]
        following = pc + 1
        if op != UNION and op != END:
            count = state[column, COUNT]
            small[state[column, FLAGS] + count] = 0
            if op == LIST:
                large[state[column, OFFSETS] + count + 1] = state[ops[pc, 2], COUNT]
                following = ops[pc, 3]
            elif BYTES <= op <= FIXED:
                large[state[column, OFFSETS] + count + 1] = state[column, SIZE]
            elif op == DECIMAL:
                large[state[column, WORDS] + 2 * count] = 0
                large[state[column, WORDS] + 2 * count + 1] = 0
            elif op < DECIMAL:
                large[state[column, WORDS] + count] = 0
            state[column, COUNT] = count + 1
        pc = following


@compiled
def append_decimal(
    ops: Array, pc: Number, data: Array, at: Number, end: Number, large: Array, state: Array
) -> Any:
    """Append a decimal's two words; the position behind it, or -1."""
    column, size = ops[pc, 1], ops[pc, 2]
    if size < 0:
        size, at = read_long(data, at, end)
    if at < 0 or size < 0 or size > end - at:
        return np.int64(-1)
    high, low, fits = read_decimal(data, at, size, ops[pc, 4], ops[pc, 5])
    if not fits:
        return np.int64(-1)
    place = state[column, WORDS] + 2 * state[column, COUNT]
    large[place] = low
    large[place + 1] = high
    return at + size


@part
def read_number(op: Number, extra: Number, data: Array, at: Number, end: Number) -> Any:
    """A number, a truth or an enum's index, and the position behind it; -1 if there is none."""
    value = np.int64(0)
    behind = np.int64(-1)
    if op <= ENUM:
        value, behind = read_long(data, at, end)
        if op == INT:
            if value < -2147483648 or value > 2147483647:
                behind = np.int64(-1)
        elif op == MILLIS:
            if value < MILLIS_MIN or value > MILLIS_MAX:
                behind = np.int64(-1)
            value *= 1000
        elif op == ENUM and (value < 0 or value >= extra):
            behind = np.int64(-1)
    elif op == BOOL:
        if at < end and data[at] <= 1:
            value = np.int64(data[at])
            behind = at + 1
    else:
        width = 8 if op == DOUBLE else 4
        if end - at >= width:
            bits = np.uint64(0)
            for index in range(width):
                bits |= np.uint64(data[at + index]) << np.uint64(8 * index)
            value = np.int64(bits)
            behind = at + width
    return value, behind


@part
def read_count(data: Array, at: Number, end: Number) -> Any:
    """How many items come next in a list, and the position behind it; -1 if that is none."""
    count, at = read_long(data, at, end)
    if at >= 0 and count < 0:
        _, at = read_long(data, at, end)
        count = -count
        if count < 0:  # the smallest number has no opposite
            at = np.int64(-1)
    if count > ITEMS_MAX:
        at = np.int64(-1)
    return count, at


@compiled
def next_item(stack: Array, level: Number, data: Array, at: Number, end: Number) -> Any:
    """Whether a list goes on, and the position; -1 if that is none, or the list is too long."""
    if stack[level, 0] == 0:
        items, at = read_count(data, at, end)
        stack[level, 0] = items
        stack[level, 1] += items
    if at < 0 or stack[level, 1] > ITEMS_MAX:
        return False, np.int64(-1)
    if stack[level, 0] == 0:
        return False, at
    stack[level, 0] -= 1
    return True, at


@compiled
def read_row(
    ops: Array,
    data: Array,
    at: Number,
    end: Number,
    stack: Array,
    large: Array,
    small: Array,
    state: Array,
) -> Any:
    """Run the program over one value; whether it was one, to its last byte."""
    depth = 0
    pc = 0
    while pc < len(ops):
        op, column, extra = ops[pc, 0], ops[pc, 1], ops[pc, 2]
        if op == UNION:
            branch, at = read_long(data, at, end)
            if at < 0 or branch < 0 or branch >= column:
                return False
            if branch != extra:
                append_nulls(ops, pc + 1, ops[pc, 3], large, small, state)
                pc = ops[pc, 3]
            else:
                pc += 1
            continue
        if op == LIST:
            stack[depth, 0] = stack[depth, 1] = 0
            depth += 1
            pc = ops[pc, 3] - 1
            continue
        count = state[column, COUNT]
        if op < DECIMAL:
            value, at = read_number(op, extra, data, at, end)
            large[state[column, WORDS] + count] = value
        elif op == DECIMAL:
            at = append_decimal(ops, pc, data, at, end, large, state)
        elif op <= FIXED:
            size = extra
            if op != FIXED:
                size, at = read_long(data, at, end)
            if at < 0 or size < 0 or size > end - at:
                return False
            begin = state[column, SIZE]
            place = state[column, TEXTS] + begin
            bits = 0
            for index in range(size):
                byte = data[at + index]
                bits |= byte
                small[place + index] = byte
            if (op == TEXT and bits >= 0x80 and not is_utf8(data, at, at + size)) or (
                op == UUID and (size != UUID_BYTES or not read_uuid(data, at, small, place))
            ):
                return False
            state[column, SIZE] = begin + size
            large[state[column, OFFSETS] + count + 1] = begin + size
            at += size
        elif op == END:
            has_item, at = next_item(stack, depth - 1, data, at, end)
            if has_item:
                pc = ops[pc, 3]
                continue
            large[state[column, OFFSETS] + count + 1] = state[extra, COUNT]
            depth -= 1
        if at < 0:
            return False
        small[state[column, FLAGS] + count] = 1
        state[column, COUNT] = count + 1
        pc += 1
    return at == end


@compiled
def decode_rows(
    ops: Array,
    begins: Array,
    data: Array,
    is_null: Array,
    skipped: Number,
    large: Array,
    small: Array,
    state: Array,
    bad: Array,
) -> None:
    """Decode every row; `bad` marks those that are none, which are null in every column."""
    saved = np.empty((len(state), 2), np.int64)
    stack = np.zeros((DEPTH_MAX, 2), np.int64)
    for row in range(len(begins) - 1):
        at, end = np.int64(begins[row]), np.int64(begins[row + 1])
        for column in range(len(state)):
            saved[column, 0] = state[column, COUNT]
            saved[column, 1] = state[column, SIZE]
        is_good = not is_null[row]
        if is_good and skipped:
            is_good = end - at >= skipped and data[at] == 0
            at += skipped
        if is_good:
            is_good = read_row(ops, data, at, end, stack, large, small, state)
        if not is_good:
            bad[row] = 1
            for column in range(len(state)):
                state[column, COUNT] = saved[column, 0]
                state[column, SIZE] = saved[column, 1]
            append_nulls(ops, 0, len(ops), large, small, state)
