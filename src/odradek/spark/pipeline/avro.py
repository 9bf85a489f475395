"""Avro's binary encoding, decoded by a schema of its own: no jar and no registry.

Spark's `from_avro` is in a jar that PySpark does not ship. A schema is turned into one function per
type, and into the Arrow type of what it returns. Unions are those that mean "or null"; a schema
that refers to itself is refused, since a column has a finite type.

Batches are decoded by a compiled program (`avro_program`) that knows good from bad and not why.
The functions here decode the bad ones, to say why, and are what the program is tested against.
"""

import decimal
import json
import struct
import uuid
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from odradek.wire.errors import DecodeError

T = TypeVar("T")
# A value and the position behind it.
Read = Callable[[bytes, int], tuple[Any, int]]

CONFLUENT_HEADER_BYTES = 5  # a zero and the id of the schema
ITEMS_MAX = 1_000_000
DECIMAL_DIGITS_MAX = 38  # Arrow's, and Spark's


class AvroSchemaError(ValueError):
    """A schema that cannot be used."""


class Node(NamedTuple):
    """A type as the compiled decoder (`avro_program`) sees it: what it is, and what it is made of.

    `number` is the size of a fixed, the precision of a decimal or the real branch of a union;
    `children` are fields, items, or the value of a map. `names` are fields, symbols, or of a union
    "" for each branch; `defaults` has those that the fields have, and `aliases` their other names.
    """

    kind: str
    children: tuple["Codec", ...] = ()
    number: int = 0
    names: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = {}
    aliases: Mapping[str, tuple[str, ...]] = {}


class Codec(NamedTuple):
    """How a type is read, what it is in Arrow, and what it is made of."""

    read: Read
    type: pa.DataType
    node: Node


def load_schema(text: str) -> Codec:
    """The codec of a schema; the top must be a record."""
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise AvroSchemaError(f"the schema is not JSON: {error}") from None
    codec = _codec(schema, {}, ())
    if not pa.types.is_struct(codec.type):
        raise AvroSchemaError("the schema must be of a record")
    return codec


def decode(codec: Codec, data: bytes, *, confluent: bool = False) -> dict[str, Any]:
    """One value; DecodeError says what is wrong with the bytes."""
    start = 0
    if confluent:
        if len(data) < CONFLUENT_HEADER_BYTES or data[0] != 0:
            raise DecodeError("it does not begin with a zero and the id of a schema")
        start = CONFLUENT_HEADER_BYTES
    value, end = codec.read(data, start)
    if end != len(data):
        raise DecodeError(f"{len(data) - end} bytes are left over after the record")
    record: dict[str, Any] = value
    return record


def _take(data: bytes, position: int, size: int) -> tuple[bytes, int]:
    if size < 0 or size > len(data) - position:
        raise DecodeError(f"{size} bytes are wanted at byte {position}, and it has {len(data)}")
    return data[position : position + size], position + size


def _read_long(data: bytes, position: int) -> tuple[int, int]:
    start = position
    result = shift = 0
    while shift < 70:
        if position >= len(data):
            raise DecodeError(f"it ends in a number at byte {position}")
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            if result >> 64:
                raise DecodeError(f"the number at byte {start} has more than 64 bits")
            return (result >> 1) ^ -(result & 1), position
        shift += 7
    raise DecodeError(f"a number at byte {position} does not end")


def _read_int(data: bytes, position: int) -> tuple[int, int]:
    value, end = _read_long(data, position)
    if not -(2**31) <= value < 2**31:
        raise DecodeError(f"the int at byte {position} is {value}")
    return value, end


def _read_null(data: bytes, position: int) -> tuple[None, int]:
    return None, position


def _read_boolean(data: bytes, position: int) -> tuple[bool, int]:
    byte, end = _take(data, position, 1)
    if byte[0] > 1:
        raise DecodeError(f"the boolean at byte {position} is {byte[0]}")
    return byte[0] == 1, end


def _read_packed(format: str) -> Read:
    packed = struct.Struct(format)

    def read(data: bytes, position: int) -> tuple[Any, int]:
        raw, end = _take(data, position, packed.size)
        return packed.unpack(raw)[0], end

    return read


def _read_bytes(data: bytes, position: int) -> tuple[bytes, int]:
    size, position = _read_long(data, position)
    return _take(data, position, size)


def _read_string(data: bytes, position: int) -> tuple[str, int]:
    raw, end = _read_bytes(data, position)
    try:
        return raw.decode(), end
    except UnicodeDecodeError:
        raise DecodeError(f"the string at byte {position} is not UTF-8") from None


PRIMITIVES: Mapping[str, Codec] = {
    "null": Codec(_read_null, pa.null(), Node("null")),
    "boolean": Codec(_read_boolean, pa.bool_(), Node("boolean")),
    "int": Codec(_read_int, pa.int32(), Node("int")),
    "long": Codec(_read_long, pa.int64(), Node("long")),
    "float": Codec(_read_packed("<f"), pa.float32(), Node("float")),
    "double": Codec(_read_packed("<d"), pa.float64(), Node("double")),
    "bytes": Codec(_read_bytes, pa.binary(), Node("bytes")),
    "string": Codec(_read_string, pa.string(), Node("string")),
}
UTC_MICROSECONDS = pa.timestamp("us", tz="UTC")


def _codec(schema: Any, named: dict[str, Codec], inside: tuple[str, ...]) -> Codec:
    if isinstance(schema, str):
        if schema in PRIMITIVES:
            return PRIMITIVES[schema]
        if schema in inside:
            raise AvroSchemaError(f"{schema} contains itself, and a column cannot")
        if schema in named:
            return named[schema]
        raise AvroSchemaError(f"there is no type {schema!r}")
    if isinstance(schema, list):
        return _union(schema, named, inside)
    if not isinstance(schema, dict) or "type" not in schema:
        raise AvroSchemaError(f"this is no type: {json.dumps(schema)[:80]}")
    kind = schema["type"]
    if isinstance(kind, list | dict):
        return _codec(kind, named, inside)
    if logical := _logical(schema):
        return logical
    build = {
        "record": _record,
        "enum": _enum,
        "array": _array,
        "map": _map,
        "fixed": _fixed,
    }.get(kind)
    if build is None:
        return _codec(kind, named, inside)
    codec = build(schema, named, inside)
    if "name" in schema:
        own = _part(schema, "name", str)
        for name in (own, f"{schema.get('namespace', '')}.{own}"):
            named[name] = codec
    return codec


def _part(schema: dict[str, Any], name: str, kind: type[T]) -> T:
    """A part that a type cannot be without."""
    value = schema.get(name)
    if name not in schema or not isinstance(value, kind):
        raise AvroSchemaError(f"this has no {name} that can be used: {json.dumps(schema)[:80]}")
    return value


def _logical(schema: dict[str, Any]) -> Codec | None:
    kind, logical = schema["type"], schema.get("logicalType")
    if kind == "int" and logical == "date":
        return Codec(_read_int, pa.date32(), Node("int"))
    if kind == "long" and logical == "timestamp-micros":
        return Codec(_read_long, UTC_MICROSECONDS, Node("long"))
    if kind == "long" and logical == "timestamp-millis":
        return Codec(_mapped(_read_long, _milliseconds), UTC_MICROSECONDS, Node("millis"))
    if kind == "string" and logical == "uuid":
        read_uuid = _mapped(_read_string, lambda value: str(uuid.UUID(value)))
        return Codec(read_uuid, pa.string(), Node("uuid"))
    if kind in ("bytes", "fixed") and logical == "decimal":
        precision = _part(schema, "precision", int)
        scale = _part({"scale": 0, **schema}, "scale", int)
        read = _read_bytes if kind == "bytes" else _read_fixed(_part(schema, "size", int))
        # Python's own would round to 28 digits.
        context = decimal.Context(prec=DECIMAL_DIGITS_MAX)

        def number(raw: bytes) -> decimal.Decimal:
            digits = int.from_bytes(raw, "big", signed=True)
            if abs(digits) >= 10**precision:
                raise ValueError(f"a decimal of more than {precision} digits")
            return decimal.Decimal(digits).scaleb(-scale, context)

        size = -1 if kind == "bytes" else _part(schema, "size", int)
        arrow = pa.decimal128(precision, scale)
        return Codec(_mapped(read, number), arrow, Node("decimal", number=size))
    return None


def _milliseconds(value: int) -> int:
    """As microseconds, which are what a column has."""
    if not -(2**63) <= value * 1000 < 2**63:
        raise ValueError(f"{value} ms do not fit microseconds")
    return value * 1000


def _mapped(read: Read, change: Callable[[Any], Any]) -> Read:
    def changed(data: bytes, position: int) -> tuple[Any, int]:
        value, end = read(data, position)
        try:
            return change(value), end
        except ValueError as error:
            raise DecodeError(f"the value at byte {position}: {error}") from None

    return changed


def _union(branches: list[Any], named: dict[str, Codec], inside: tuple[str, ...]) -> Codec:
    codecs = [_codec(branch, named, inside) for branch in branches]
    real = [codec for codec in codecs if not pa.types.is_null(codec.type)]
    if len(real) != 1:
        raise AvroSchemaError(
            f"a union can be a type or null, not {json.dumps(branches)[:80]}: a column has one type"
        )

    def read(data: bytes, position: int) -> tuple[Any, int]:
        branch, after = _read_long(data, position)
        if not 0 <= branch < len(codecs):
            raise DecodeError(f"the union at byte {position} has no branch {branch}")
        return codecs[branch].read(data, after)

    index = codecs.index(real[0])
    node = Node("union", (real[0],), index, ("",) * len(codecs))
    return Codec(read, real[0].type, node)


def _record(schema: dict[str, Any], named: dict[str, Codec], inside: tuple[str, ...]) -> Codec:
    deeper = (*inside, schema.get("name", ""))
    fields = []
    for field in _part({"fields": [], **schema}, "fields", list):
        if not isinstance(field, dict):
            raise AvroSchemaError(f"this is no field: {json.dumps(field)[:80]}")
        kind = _codec(_part(field, "type", object), named, deeper)
        fields.append((_part(field, "name", str), kind))
    if not fields:
        raise AvroSchemaError(f"record {schema.get('name')} has no fields")

    def read(data: bytes, position: int) -> tuple[dict[str, Any], int]:
        values = {}
        for name, codec in fields:
            try:
                values[name], position = codec.read(data, position)
            except DecodeError as error:
                raise DecodeError(f"field {name}: {error}") from None
        return values, position

    given = [field for field in schema["fields"] if isinstance(field, dict)]
    node = Node(
        "record",
        tuple(codec for _, codec in fields),
        names=tuple(name for name, _ in fields),
        defaults={field["name"]: field["default"] for field in given if "default" in field},
        aliases={field["name"]: tuple(field.get("aliases", ())) for field in given},
    )
    return Codec(read, pa.struct([pa.field(name, codec.type) for name, codec in fields]), node)


def _enum(schema: dict[str, Any], named: dict[str, Codec], inside: tuple[str, ...]) -> Codec:
    symbols = _part(schema, "symbols", list)
    if not all(isinstance(symbol, str) for symbol in symbols):
        raise AvroSchemaError(f"symbols are texts: {json.dumps(symbols)[:80]}")

    def read(data: bytes, position: int) -> tuple[str, int]:
        index, end = _read_long(data, position)
        if not 0 <= index < len(symbols):
            raise DecodeError(f"the enum at byte {position} has no symbol {index}")
        return symbols[index], end

    return Codec(read, pa.string(), Node("enum", names=tuple(symbols)))


def _items(read_item: Read) -> Read:
    def read(data: bytes, position: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        while True:
            count, position = _read_long(data, position)
            if count < 0:
                count = -count
                _, position = _read_long(data, position)
            if count == 0:
                return items, position
            if len(items) + count > ITEMS_MAX:
                raise DecodeError(f"more than {ITEMS_MAX} items at byte {position}")
            for _ in range(count):
                item, position = read_item(data, position)
                items.append(item)

    return read


def _array(schema: dict[str, Any], named: dict[str, Codec], inside: tuple[str, ...]) -> Codec:
    item = _codec(_part(schema, "items", object), named, inside)
    kind = pa.list_(pa.field("element", item.type))
    return Codec(_items(item.read), kind, Node("array", (item,)))


def _map(schema: dict[str, Any], named: dict[str, Codec], inside: tuple[str, ...]) -> Codec:
    value = _codec(_part(schema, "values", object), named, inside)

    def read_entry(data: bytes, position: int) -> tuple[tuple[str, Any], int]:
        key, position = _read_string(data, position)
        item, position = value.read(data, position)
        return (key, item), position

    return Codec(_items(read_entry), pa.map_(pa.string(), value.type), Node("map", (value,)))


def _read_fixed(size: int) -> Read:
    return lambda data, position: _take(data, position, size)


def _fixed(schema: dict[str, Any], named: dict[str, Codec], inside: tuple[str, ...]) -> Codec:
    size = _part(schema, "size", int)
    return Codec(_read_fixed(size), pa.binary(), Node("fixed", number=size))
