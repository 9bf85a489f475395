"""Decoders of hostile bytes, and filters that are data."""

import json
import struct

import pytest

from odradek.console.decoders import Decoder, Undecodable, decoder_of, hex_dump
from odradek.console.decoders.msgpack import decode_msgpack
from odradek.console.filters import Filter, InvalidFilter, parse_text
from odradek.wire.records import Record

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": ["null", "string"]},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
            {"name": "next", "type": ["null", "Order"]},
            {"name": "state", "type": {"type": "enum", "name": "S", "symbols": ["NEW", "PAID"]}},
        ],
    }
)


def zigzag(value: int) -> bytes:
    return varint((value << 1) ^ (value >> 63))


def varint(value: int) -> bytes:
    out = b""
    while True:
        byte, value = value & 0x7F, value >> 7
        out += bytes([byte | (0x80 if value else 0)])
        if not value:
            return out


def shown(settings: object, data: bytes) -> object:
    field = decoder_of(settings).field(data)  # type: ignore[arg-type]
    assert field is not None and field["error"] is None, field
    return json.loads(field["text"])


def test_avro_is_read_with_its_schema() -> None:
    order = zigzag(4711) + zigzag(1) + zigzag(2) + b"hi" + zigzag(1) + zigzag(1) + b"x" + zigzag(0)
    order += zigzag(0) + zigzag(1)
    expected = {"id": 4711, "note": "hi", "tags": ["x"], "next": None, "state": "PAID"}
    avro = {"format": "avro", "schema": ORDER}
    assert shown(avro, order) == expected
    assert shown(avro, b"\0\0\0\0\7" + order) == expected, "a registry's header is skipped"


def test_protobuf_is_read_with_and_without_descriptors() -> None:
    def tag(number: int, kind: int) -> bytes:
        return varint(number << 3 | kind)

    def text(number: int, value: bytes) -> bytes:
        return tag(number, 2) + varint(len(value)) + value

    message = tag(1, 0) + varint(4711) + text(2, b"hi") + text(3, tag(1, 0) + varint(1))
    assert shown("protobuf", message) == {"1": 4711, "2": "hi", "3": {"1": 1}}

    def field(name: bytes, number: int, kind: int, type_name: bytes = b"") -> bytes:
        body = text(1, name) + tag(3, 0) + varint(number) + tag(4, 0) + varint(1)
        body += tag(5, 0) + varint(kind)
        return text(2, body + (text(6, type_name) if type_name else b""))

    item = text(4, text(1, b"Item") + field(b"count", 1, 5))
    order = text(
        4,
        text(1, b"Order")
        + field(b"id", 1, 3)
        + field(b"note", 2, 9)
        + field(b"item", 3, 11, b".shop.Item"),
    )
    descriptors = text(1, text(1, b"shop.proto") + text(2, b"shop") + item + order)
    import base64

    settings = {
        "format": "protobuf",
        "descriptor": base64.b64encode(descriptors).decode(),
        "message": "shop.Order",
    }
    assert shown(settings, message) == {"id": 4711, "note": "hi", "item": {"count": 1}}
    with pytest.raises(Undecodable, match=r"shop\.Item, shop\.Order"):
        decoder_of({**settings, "message": "shop.Nothing"})


def test_messagepack_and_text() -> None:
    data = b"\x83\xa2id\xcd\x12\x67\xa4tags\x92\xa1x\xc0\xa3pi_\xcb" + struct.pack(">d", 3.5)
    assert decode_msgpack(data) == {"id": 4711, "tags": ["x", None], "pi_": 3.5}
    auto = Decoder("auto")
    cases: list[tuple[bytes, str]] = [
        (b'{"a": 1}', "json"),
        (b"hello", "text"),
        (b"\x00\x01\x02\xff", "hex"),
        (b"", "text"),
        (b"4711", "json"),
        (b"{not json", "text"),
        ("grüße".encode(), "text"),
    ]
    for data, format in cases:
        field = auto.field(data)
        assert field is not None and field["format"] == format, data
    assert auto.field(None) is None
    damaged = Decoder("text").field(b"a\xffb")
    assert damaged is not None and damaged["text"] == "a\\xffb" and damaged["error"]
    assert hex_dump(b"AB\x00").startswith("00000000  41 42 00")


def test_30_hostile_values_end_in_a_message() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    recursive = json.dumps({"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]})
    nested = b"\x0a" * 200
    for _ in range(200):
        nested = b"\x0a" + varint(len(nested)) + nested
    cases: list[tuple[object, bytes]] = [
        ("json", deep),
        ("json", b'{"a": NaN}'),
        ("json", b"\xff\xfe{"),
        ("msgpack", b"\x91" * 100_000),
        ("msgpack", b"\xdd\xff\xff\xff\xff"),
        ("msgpack", b"\xdf\xff\xff\xff\xff"),
        ("msgpack", b"\xc1"),
        ("protobuf", b"\x0a\xff\xff\xff\xff\x0f"),
        ("protobuf", b"\xff" * 20),
        ("protobuf", nested),
        ({"format": "avro", "schema": recursive}, b"\x00" * 100),
        ({"format": "avro", "schema": ORDER}, b"\xff" * 11),
        ({"format": "avro", "schema": '{"type":"array","items":"null"}'}, zigzag(2**40) + b"\0"),
        ({"format": "avro", "schema": '"bytes"'}, zigzag(2**40)),
    ]
    for settings, data in cases:
        field = decoder_of(settings).field(data)  # type: ignore[arg-type]
        assert field is not None, settings
        assert field["error"], (settings, data[:20])
        assert len(field["text"]) <= 64 * 1024, settings
    automatic = Decoder("auto").field(deep)
    assert automatic is not None and "deeper" in (automatic["error"] or "")
    assert automatic["truncated"] and len(automatic["text"]) <= 64 * 1024
    for schema in ("", "[", '"Unknown"', '{"type": 7}', '{"name": "x"}', "[" * 5000, "7"):
        with pytest.raises(Undecodable):
            decoder_of({"format": "avro", "schema": schema}).value(b"\0")
    for settings in (
        {"format": "groovy"},
        {"format": "avro"},
        {"format": "protobuf", "descriptor": "?"},
        {"format": "protobuf", "descriptor": "AAAA"},
    ):
        with pytest.raises(Undecodable):
            decoder_of(settings)


RECORD = Record(
    42,
    1_700_000_000_000,
    b"user-12",
    b'{"order":{"id":4711,"items":[{"n":"x"}],"ok":true},"a":null}',
    (("trace", b"9f"), ("empty", None)),
)


def test_a_filter_is_data_and_finds_what_it_says() -> None:
    decoder = Decoder("auto")
    holds = [
        "4711",
        '"user-12"',
        "key = user-12",
        'key = "user-12" and 4711',
        "$.order.id = 4711",
        "$.order.id >= 4711 and not $.order.id > 4711",
        '$.order.items[0].n = "x"',
        "$.order.ok = true",
        "$.a = null",
        "$.order",
        "header.trace = 9f",
        'header.trace ~ "f"',
        "offset = 42",
        "size > 10",
        "time > 2023-01-01",
        "(nothing or user) and order",
        'value ~ "items"',
        "$.order.id != 7",
        "not nothing",
        "user-12 order",
    ]
    for text in holds:
        assert Filter(parse_text(text)).matches(RECORD, decoder), text
    fails = [
        "4712",
        "key = user",
        "$.order.id = 4712",
        '$.order.id = "4711"',
        "$.order.id = true",
        "$.nothing",
        "$.order.items[7].n = 1",
        "header.trace = 9",
        "header.other ~ x",
        "offset < 42",
        "time < 2023-01-01",
        "not order",
        "nothing or nowhere",
        "$.order.ok = 1",
        "$.order.id < 7",
        "$.a.b = 1",
    ]
    for text in fails:
        assert not Filter(parse_text(text)).matches(RECORD, decoder), text


def test_a_filter_that_is_none_is_refused_with_its_position() -> None:
    wrong = [
        "",
        "(",
        ")",
        "a and",
        "key =",
        "= 7",
        "nosuch = 7",
        "a) b",
        "$.a = = 1",
        "offset = x",
        "offset = --5",
        "time > yesterday",
        "(" * 20 + "a" + ")" * 20,
        "not " * 1000 + "a",
        "x " * 40,
        "a" * 5000,
        "$..a = 1",
    ]
    for text in wrong:
        with pytest.raises(InvalidFilter):
            parse_text(text)
    trees: list[object] = [
        None,
        [],
        {"all": []},
        {"all": {}},
        {"field": "value"},
        {"field": "value", "op": "eval"},
        {"field": "__class__", "op": "=", "text": "x"},
        {"field": "json", "op": "=", "path": "a"},
        {"field": "json", "op": "=", "path": "$.a", "value": {"b": 1}},
        {"any": ["x"]},
        {"field": "offset", "op": "=", "value": True},
        {"not": 7},
    ]
    for tree in trees:
        with pytest.raises(InvalidFilter):
            Filter(tree)


def test_bytes_that_are_looked_for_first_are_in_every_match() -> None:
    cases = {
        "4711": [b"4711"],
        "$.order.id = 4711": [b"4711"],
        '$.n = "grüße aus Prag"': [b"e aus Prag"],
        "(alpha or beta) and c": [b"alpha", b"beta"],
        "alpha and longer-one": [b"longer-one"],
        "not alpha": None,
        "alpha or not beta": None,
        "$.a = 1.5": None,
        "offset > 7": None,
        'value ~ "ab"': None,
    }
    for text, needles in cases.items():
        assert Filter(parse_text(text)).needles(is_text=True) == needles, text
    assert Filter(parse_text("$.id = 4711")).needles(is_text=False) is None, "binary formats"
