"""The compiled decoder is the plain one, row by row: on any schema, any value, any bytes."""

import http.server
import json
import os
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spark.pipeline.test_avro import BYTES, EVERYTHING, number, record, text

from odradek.spark.pipeline import avro
from odradek.spark.pipeline.avro_program import NO_VALUE, AvroDecoder
from odradek.spark.pipeline.registry import Registry, RegistryDecoder
from odradek.wire.errors import DecodeError

EXAMPLES = int(os.environ.get("ODRADEK_EXAMPLES", "30"))
PRIMITIVES = ["boolean", "int", "long", "float", "double", "bytes", "string"]
LOGICAL = [
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10},
    {"type": "fixed", "name": "D", "size": 3, "logicalType": "decimal", "precision": 6},
]


def fixed(size: int) -> Any:
    return {"type": "fixed", "name": f"F{size}", "size": size}


def enum(count: int) -> Any:
    return {"type": "enum", "name": "E", "symbols": [f"S{n}" for n in range(count)]}


def a_record(fields: list[Any]) -> Any:
    named = [{"name": f"f{n}", "type": kind} for n, kind in enumerate(fields)]
    return {"type": "record", "name": "R", "fields": named}


KINDS = st.recursive(
    st.sampled_from([*PRIMITIVES, *LOGICAL, "null"])
    | st.builds(fixed, st.integers(1, 4))
    | st.builds(enum, st.integers(1, 4)),
    lambda inner: (
        st.builds(lambda kind: {"type": "array", "items": kind}, inner)
        | st.builds(lambda kind: {"type": "map", "values": kind}, inner)
        | st.builds(lambda kind: ["null", kind], inner.filter(lambda k: not isinstance(k, list)))
        | st.builds(lambda kind: [kind, "null"], inner.filter(lambda k: not isinstance(k, list)))
        | st.builds(a_record, st.lists(inner, min_size=1, max_size=3))
    ),
    max_leaves=6,
)


def encoded(kind: Any, draw: Any) -> bytes:
    """Some value of a type, in bytes."""
    if isinstance(kind, list):
        branch = draw(st.integers(0, len(kind) - 1))
        return number(branch) + encoded(kind[branch], draw)
    if isinstance(kind, str):
        return primitive(kind, draw)
    if kind["type"] == "record":
        return b"".join(encoded(field["type"], draw) for field in kind["fields"])
    if kind["type"] == "enum":
        return number(draw(st.integers(0, len(kind["symbols"]) - 1)))
    if kind["type"] == "fixed":
        return bytes(draw(st.binary(min_size=kind["size"], max_size=kind["size"])))
    if kind["type"] in ("array", "map"):
        return items(kind, draw)
    if kind.get("logicalType") == "uuid":
        return text(draw(st.uuids().map(str) | st.just("{" + "0" * 32 + "}") | st.just("x")))
    return primitive(kind["type"], draw)


def items(kind: Any, draw: Any) -> bytes:
    out = b""
    for count in draw(st.lists(st.integers(1, 2), max_size=2)):
        block = b""
        for _ in range(count):
            if kind["type"] == "map":
                block += text(draw(st.text(max_size=3)))
            block += encoded(kind["items" if kind["type"] == "array" else "values"], draw)
        with_size = draw(st.booleans())
        out += (number(-count) + number(len(block)) if with_size else number(count)) + block
    return out + number(0)


def primitive(kind: str, draw: Any) -> bytes:
    if kind == "null":
        return b""
    if kind == "boolean":
        return bytes([draw(st.integers(0, 1))])
    if kind == "int":
        return number(draw(st.integers(-(2**31), 2**31 - 1)))
    if kind == "long":
        return number(draw(st.integers(-(2**63), 2**63 - 1)))
    if kind == "float":
        return struct.pack("<f", draw(st.floats(width=32)))
    if kind == "double":
        return struct.pack("<d", draw(st.floats()))
    if kind == "bytes":
        raw: bytes = draw(st.binary(max_size=20))
        return number(len(raw)) + raw
    return text(draw(st.text(max_size=8)))


def plain(value: Any) -> Any:
    """A value as Python has it, and a time as a number: Python has no word for some."""
    if not value.is_valid:
        return None
    if isinstance(value, pa.StructScalar):
        return {name: plain(value[name]) for name in value.type.names}
    if isinstance(value, pa.MapScalar | pa.ListScalar):
        return [plain(one) for one in value.values]
    if isinstance(value, pa.TimestampScalar | pa.Date32Scalar):
        return value.value
    return value.as_py()


def compare(schema: str, values: list[bytes | None], confluent: bool = False) -> None:
    """Both decoders on the same column."""
    decoder = AvroDecoder(schema)
    decoded = decoder.decode(pa.array(values, pa.binary()), confluent=confluent)
    decoded.events.validate(full=True)
    expected: list[Any] = []
    good: Any
    why: str | None
    for value, reason in zip(values, decoded.reasons, strict=True):
        good, why = None, NO_VALUE
        try:
            if value is not None:
                good, why = avro.decode(decoder.codec, value, confluent=confluent), None
        except DecodeError as error:
            why = str(error)
        expected.append(good)
        assert reason == why
    want = pa.array(expected, decoder.codec.type)
    # As text: NaN is not equal to itself.
    assert str(list(map(plain, decoded.events))) == str(list(map(plain, want)))
    assert decoded.events.is_null().equals(want.is_null())


@pytest.mark.timeout(400 + EXAMPLES)  # compiles first
@settings(max_examples=EXAMPLES)
@given(st.data())
def test_any_value_of_any_schema_and_bytes_that_are_none(data: st.DataObject) -> None:
    fields = data.draw(st.lists(KINDS, min_size=1, max_size=4))
    kind = a_record(fields)
    schema = json.dumps(kind)
    try:
        avro.load_schema(schema)
    except ValueError:
        return  # two nulls in a union, say
    values: list[bytes | None] = [
        encoded(kind, data.draw) for _ in range(data.draw(st.integers(1, 4)))
    ]
    for value in list(values):
        assert value is not None
        at = data.draw(st.integers(0, len(value)))
        flipped = bytes([data.draw(st.integers(0, 255))])
        values += [value[:at], value[:at] + flipped + value[at + 1 :], value + b"\x00"]
    values += [None, b"", data.draw(st.binary(max_size=12))]
    compare(schema, values)
    compare(schema, [b"\x00\x00\x00\x00\x07" + v if v else v for v in values], confluent=True)


def test_every_type_at_once_among_nonsense() -> None:
    assert AvroDecoder(EVERYTHING)._program is not None
    compare(EVERYTHING, [BYTES, BYTES[:-1], None, b"", BYTES + b"x", BYTES])
    sliced = pa.array([b"?", BYTES, BYTES], pa.binary()).slice(1)
    assert AvroDecoder(EVERYTHING).decode(sliced).reasons == [None, None]
    assert len(AvroDecoder(EVERYTHING).decode(pa.array([], pa.binary())).events) == 0


def test_a_million_items_in_a_few_bytes_are_refused() -> None:
    tags = record(("tags", {"type": "array", "items": "int"}))
    compare(tags, [number(2**40) + b"\x02", number(-(2**63)) + b"\x00\x00", b"\x02\x02\x00"])
    # Items of no bytes at all are for the plain decoder.
    empty = record(("tags", {"type": "array", "items": "null"}))
    assert AvroDecoder(empty)._program is None
    compare(empty, [number(3) + number(0), number(2_000_000) + number(0)])


# The registry


@pytest.fixture
def registry() -> Iterator[tuple[str, dict[int, str], list[str]]]:
    """A server with what the test puts into it; its address, its schemas, and what it was asked."""
    schemas: dict[int, str] = {}
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the library's name
            asked.append(self.path)
            known = schemas.get(int(self.path.rpartition("/")[2]))
            self.send_response(200 if known else 404)
            self.end_headers()
            if known:
                self.wfile.write(json.dumps({"schema": known}).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", schemas, asked
    server.shutdown()
    thread.join()
    server.server_close()


def framed(schema: int, content: bytes) -> bytes:
    return b"\x00" + schema.to_bytes(4, "big") + content


def test_each_value_is_read_by_the_schema_it_was_written_by(registry: Any) -> None:
    address, schemas, asked = registry
    schemas[1] = record(("id", "int"), ("title", "string"), ("gone", "double"))
    schemas[2] = record(
        ("id", "long"), ("name", "string"), ("tags", {"type": "array", "items": "int"})
    )
    schemas[3] = record(("id", "string"), ("name", "string"))
    reader = json.dumps(
        {
            "type": "record",
            "name": "R",
            "fields": [
                {"name": "id", "type": "long"},
                {"name": "name", "type": "string", "aliases": ["title"]},
                {"name": "country", "type": "string", "default": "?"},
                {
                    "name": "tags",
                    "type": ["null", {"type": "array", "items": "long"}],
                    "default": None,
                },
            ],
        }
    )
    decoder = RegistryDecoder(Registry(address), AvroDecoder(reader))
    old = framed(1, number(5) + text("five") + struct.pack("<d", 1.0))
    new = framed(2, number(6) + text("six") + number(1) + number(9) + number(0))
    values = [old, new, framed(3, b""), None, b"x", old, framed(2, b"\x01"), framed(4, b"")]
    decoded = decoder.decode(pa.array(values, pa.binary()))
    five = {"id": 5, "name": "five", "country": "?", "tags": None}
    six = {"id": 6, "name": "six", "country": "?", "tags": [9]}
    assert decoded.events.to_pylist() == [five, six, None, None, None, five, None, None]
    reasons = decoded.reasons
    assert reasons[:2] == [None, None]
    assert reasons[2] == "schema 3 of the registry: field id is string, and int64 is wanted"
    assert reasons[3] == NO_VALUE
    assert reasons[4] == "it does not begin with a zero and the id of a schema"
    assert "field name" in str(reasons[6])
    assert reasons[7] == "the registry has no schema 4"
    # Each is asked for once.
    assert decoder.decode(pa.array([old, new], pa.binary())).reasons == [None, None]
    assert sorted(asked) == [f"/schemas/ids/{number}" for number in (1, 2, 3, 4)]


def test_a_registry_that_does_not_answer_fails_the_task() -> None:
    decoder = RegistryDecoder(Registry("http://127.0.0.1:1"), AvroDecoder(record(("x", "int"))))
    with pytest.raises(OSError, match=r"the registry does not answer at http://127\.0\.0\.1:1/sch"):
        decoder.decode(pa.array([framed(1, b"\x02")], pa.binary()))
