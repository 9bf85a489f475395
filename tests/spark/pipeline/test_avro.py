"""Avro's binary encoding against bytes made by hand, and against nonsense."""

import decimal
import json
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.spark.pipeline.avro import AvroSchemaError, decode, load_schema
from odradek.wire.errors import DecodeError


def record(*fields: tuple[str, Any]) -> str:
    return json.dumps(
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": name, "type": kind} for name, kind in fields],
        }
    )


def number(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def text(value: str) -> bytes:
    return number(len(value.encode())) + value.encode()


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
EVERYTHING = record(
    ("flag", "boolean"),
    ("small", "int"),
    ("large", "long"),
    ("single", "float"),
    ("double", "double"),
    ("raw", "bytes"),
    ("name", ["null", "string"]),
    ("color", {"type": "enum", "name": "C", "symbols": ["RED", "BLUE"]}),
    ("tags", {"type": "array", "items": "string"}),
    ("counts", {"type": "map", "values": "long"}),
    ("id", {"type": "fixed", "name": "F", "size": 2}),
    ("day", {"type": "int", "logicalType": "date"}),
    ("at", MILLIS),
    ("price", PRICE),
    ("inner", {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}),
    ("again", "I"),
)
BYTES = (
    b"\x01"
    + number(-5)
    + number(2**40)
    + struct.pack("<f", 1.5)
    + struct.pack("<d", -2.5)
    + number(2)
    + b"\x00\xff"
    + number(1)
    + text("né")
    + number(1)
    + number(2)
    + text("a")
    + text("b")
    + number(0)
    + number(-1)
    + number(3)
    + text("k")
    + number(7)
    + number(0)
    + b"xy"
    + number(3)
    + number(1_700_000_000_123)
    + number(2)
    + (-1234).to_bytes(2, "big", signed=True)
    + number(9)
    + number(10)
)


def test_every_type() -> None:
    codec = load_schema(EVERYTHING)
    value = decode(codec, BYTES)
    assert value == {
        "flag": True,
        "small": -5,
        "large": 2**40,
        "single": 1.5,
        "double": -2.5,
        "raw": b"\x00\xff",
        "name": "né",
        "color": "BLUE",
        "tags": ["a", "b"],
        "counts": [("k", 7)],
        "id": b"xy",
        "day": 3,
        "at": 1_700_000_000_123_000,
        "price": decimal.Decimal("-12.34"),
        "inner": {"x": 9},
        "again": {"x": 10},
    }
    (row,) = pa.array([value], codec.type).to_pylist()
    assert row["price"] == decimal.Decimal("-12.34")
    assert row["at"].isoformat() == "2023-11-14T22:13:20.123000+00:00"


def test_the_largest_numbers_are_columns_to_the_last_digit() -> None:
    long = {**PRICE, "precision": 38}
    codec = load_schema(record(("large", "long"), ("at", MILLIS), ("price", long)))
    for sign in (1, -1):
        largest, at, digits = sign * (2**63 - 1), sign * (2**63 // 1000), sign * (10**38 - 1)
        data = number(largest) + number(at) + number(16) + digits.to_bytes(16, "big", signed=True)
        (row,) = pa.array([decode(codec, data)], codec.type)
        assert row["large"].as_py() == largest
        assert row["at"].value == at * 1000
        assert row["price"].as_py() == decimal.Decimal(f"{digits}e-2")


def test_confluents_header() -> None:
    codec = load_schema(record(("x", "int")))
    assert decode(codec, b"\0\0\0\0\x07" + number(4), confluent=True) == {"x": 4}
    with pytest.raises(DecodeError, match="does not begin with a zero"):
        decode(codec, b"\x01\0\0\0\x07" + number(4), confluent=True)


@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        ("int", number(2**31), "field x: the int at byte 0 is 2147483648"),
        ("int", b"", "field x: it ends in a number"),
        ("long", b"\xff" * 11, "does not end"),
        ("boolean", b"\x02", "is 2"),
        ("string", number(5) + b"ab", "5 bytes are wanted"),
        ("string", number(-1), "-1 bytes are wanted"),
        ("string", number(1) + b"\xff", "not UTF-8"),
        (["null", "int"], number(2), "no branch 2"),
        ({"type": "array", "items": "null"}, number(2**40), "more than"),
        ("int", number(1) + b"rest", "4 bytes are left over"),
        ("long", b"\xff" * 9 + b"\x7f", "field x: the number at byte 0 has more than 64 bits"),
        (MILLIS, number(2**63 // 1000 + 1), "at byte 0: 9223372036854776 ms do not fit"),
        (MILLIS, number(-(2**63) // 1000), "ms do not fit microseconds"),
        (PRICE, number(4) + (10**6).to_bytes(4, "big"), "a decimal of more than 6 digits"),
    ],
)
def test_what_is_wrong_is_named(kind: Any, data: bytes, message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        decode(load_schema(record(("x", kind))), data)


@given(st.binary(max_size=120), st.integers(0, len(BYTES)))
def test_nonsense_is_refused_or_read_never_worse(noise: bytes, cut: int) -> None:
    codec = load_schema(EVERYTHING)
    for data in (noise, BYTES[:cut] + noise):
        try:
            value = decode(codec, data)
        except DecodeError:
            continue
        # What was read can become a column.
        pa.array([value], codec.type)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{", "not JSON"),
        ('"int"', "must be of a record"),
        (record(("x", "nope")), "there is no type 'nope'"),
        (record(("x", ["int", "string"])), "a union can be a type or null"),
        (record(("x", ["null", "R"])), "R contains itself"),
        (record(), "has no fields"),
        (record(("x", {"type": "array"})), "this has no items that can be used"),
        (record(("x", {"type": "map"})), "this has no values"),
        (record(("x", {"type": "enum", "name": "C"})), "this has no symbols"),
        (record(("x", {"type": "enum", "name": "C", "symbols": [1]})), "symbols are texts"),
        (record(("x", {"type": "fixed", "name": "F"})), "this has no size"),
        (record(("x", {"type": "bytes", "logicalType": "decimal"})), "this has no precision"),
        ('{"type": "record", "name": "R", "fields": [{"name": "x"}]}', "this has no type"),
        ('{"type": "record", "name": "R", "fields": [{"type": "int"}]}', "this has no name"),
        ('{"type": "record", "name": "R", "fields": ["x"]}', "this is no field"),
        ('{"type": "record", "name": "R", "fields": 5}', "this has no fields that"),
    ],
)
def test_schemas_that_cannot_be_used(schema: str, message: str) -> None:
    with pytest.raises(AvroSchemaError, match=message):
        load_schema(schema)
