"""Telemetry frames: whatever is encoded is decoded, and whatever else is refused."""

import math
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.wire import telemetry
from odradek.wire.crc32c import crc32c
from odradek.wire.telemetry import (
    COLUMNS,
    BrokerLoad,
    Directory,
    Frame,
    InvalidFrame,
    decode_frame,
    encode_frame,
    new_columns,
)

RANGES = {"i": (0, 2**31 - 1), "B": (0, 255), "q": (0, 2**63 - 1)}
names = st.text("abcXYZ019._-", min_size=1, max_size=249)
seconds = st.floats(0, 1e9)
counts = st.integers(0, 2**64 - 1)
smalls = st.integers(0, 2**32 - 1)
moments = st.integers(0, 2**63 - 1)
loads = st.builds(
    BrokerLoad,
    st.floats(0, 4096, width=32),
    *[seconds] * 5,
    *[counts] * 3,
    *[smalls] * 6,
)
directories = st.builds(Directory, st.text(max_size=40), counts, counts, st.booleans())


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    columns = new_columns()
    rows = draw(st.integers(0, 6))
    for name, code in COLUMNS.items():
        columns[name].extend(draw(st.integers(*RANGES[code])) for _ in range(rows))
    begin, end = sorted((draw(moments), draw(moments)))
    return Frame(
        draw(st.integers(0, 2**31 - 1)),
        draw(st.integers(-(2**63), 2**63 - 1)),
        draw(moments),
        begin,
        end,
        draw(loads),
        tuple(draw(st.lists(directories, max_size=3))),
        tuple(draw(st.lists(names, max_size=4))),
        columns,
        is_whole=draw(st.booleans()),
        is_estimated=draw(st.booleans()),
    )


def small_frame() -> Frame:
    columns = new_columns()
    for number, column in enumerate(columns.values()):
        column.extend([number, number + 1])
    where = (Directory("/disk", 100, 50),)
    return Frame(1, 7, 3, 1_000, 16_000, BrokerLoad(2.0, 1.5), where, ("a", "b.c"), columns)


def sealed(frame: bytes) -> bytes:
    """With a checksum that is right, so that the checks behind it are reached."""
    end = telemetry.HEADER_BYTES
    crc = struct.pack("<I", crc32c(frame[: end - 4] + frame[end:]))
    return frame[: end - 4] + crc + frame[end:]


@given(frames())
@settings(deadline=None)
def test_a_frame_survives_the_way(frame: Frame) -> None:
    encoded = encode_frame(frame)
    assert decode_frame(encoded) == frame
    assert decode_frame(memoryview(bytearray(encoded))) == frame


def test_the_bytes_are_those_of_the_format() -> None:
    """By hand, so that a reader written from the format alone reads it."""
    encoded = encode_frame(small_frame())
    assert encoded[:6] == b"ODRT\x01\x00"
    assert struct.unpack_from("<IIiqqqqII", encoded, 8) == (2, 2, 1, 7, 3, 1_000, 16_000, 5, 120)
    assert encoded[64:69] == b"a\nb.c"
    assert struct.unpack_from("<fd", encoded, 69) == (2.0, 1.5)
    first_row = 69 + 120
    assert struct.unpack_from("<iiii", encoded, first_row) == (0, 1, 1, 2)
    assert encoded[first_row + 16 : first_row + 20] == bytes([2, 3, 3, 4])
    assert struct.unpack_from("<qq", encoded, len(encoded) - 16) == (10, 11)
    assert len(encoded) == first_row + 2 * 66


@given(st.binary(max_size=400))
@settings(deadline=None)
def test_garbage_is_refused(garbage: bytes) -> None:
    with pytest.raises(InvalidFrame):
        decode_frame(garbage)
    with pytest.raises(InvalidFrame):
        decode_frame(encode_frame(small_frame())[:64] + garbage)


@given(st.data())
@settings(deadline=None)
def test_a_frame_that_lies_is_refused_or_consistent(data: st.DataObject) -> None:
    """Bytes changed at random, under a checksum that is right: the worst a sender can do."""
    frame = bytearray(encode_frame(small_frame()))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    try:
        decoded = decode_frame(sealed(bytes(frame)))
    except InvalidFrame:
        return
    assert {len(column) for column in decoded.columns.values()} == {len(decoded)}
    assert 0 <= decoded.from_ms <= decoded.to_ms
    assert all(math.isfinite(value) for value in decoded.load[:6])


def test_each_lie_has_its_reason() -> None:
    good = encode_frame(small_frame())

    def changed(position: int, value: bytes) -> bytes:
        return sealed(good[:position] + value + good[position + len(value) :])

    billions = struct.pack("<I", 2**32 - 1)
    for frame, reason in (
        (b"", "0 bytes are less than a header"),
        (good[:-1], "for 2 rows"),
        (good + b"x", "for 2 rows"),
        (good[:-1] + b"\xff", "checksum"),
        (changed(0, b"KFKA"), "begins with"),
        (changed(4, b"\x02"), "version 2"),
        (changed(8, billions), "4294967295 rows"),
        (changed(12, billions), "4294967295 were announced"),
        (changed(16, struct.pack("<i", -1)), "broker -1"),
        (changed(44, struct.pack("<q", 0)), "from 1000 to 0"),
        (changed(64, b"\xff"), "not ASCII"),
        (changed(64, b"\na"), "empty"),
        (changed(73, struct.pack("<d", math.nan)), "processor times"),
        (changed(69 + 92, billions), "4294967295 log directories"),
        (changed(69 + 92, struct.pack("<I", 2)), "truncated"),
        (changed(69 + 92, struct.pack("<I", 0)), "behind the log directories"),
        (changed(69 + 96 + 17, b"\xff\xff"), "path of a log directory is truncated"),
    ):
        with pytest.raises(InvalidFrame, match=reason):
            decode_frame(frame)
