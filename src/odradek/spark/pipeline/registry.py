"""Confluent's schema registry: the schema that each value was written by, over HTTP.

The id in a value's frame names the writer's schema. It is asked for once in each worker, and what
it decodes is brought into the columns of the reader's schema: a field that the writer does not
have is its default or null, one that the reader does not have is left out, numbers are widened, and
a field may have had another name (its aliases).

A schema that the registry does not have, or that does not fit, makes its values dead letters. A
registry that does not answer fails the task: Spark tries again, and no record is given up.
"""

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from odradek.spark.pipeline.avro import CONFLUENT_HEADER_BYTES, AvroSchemaError, Codec
from odradek.spark.pipeline.avro_program import NO_VALUE, AvroDecoder, Decoded

TIMEOUT_S = 10.0
NO_FRAME = "it does not begin with a zero and the id of a schema"
# What each type may be read as besides itself.
WIDENED = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


class Misfit(Exception):
    """A writer's schema that cannot be read as the reader's; says where."""


class Registry:
    """Schemas by their id."""

    def __init__(self, address: str, timeout_s: float = TIMEOUT_S) -> None:
        parts = urllib.parse.urlsplit(address)
        self._address = urllib.parse.urlunsplit(
            (parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", "")
        )
        self._headers = {}
        if parts.username:
            secret = f"{urllib.parse.unquote(parts.username)}:{parts.password or ''}"
            token = base64.b64encode(secret.encode()).decode()
            self._headers["Authorization"] = f"Basic {token}"
        self._timeout_s = timeout_s

    def schema(self, number: int) -> str | None:
        """The text of a schema; None if there is none of this id. OSError if nothing answers."""
        address = f"{self._address}/schemas/ids/{number}"
        request = urllib.request.Request(address, headers=self._headers)
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as answer:
                found: dict[str, Any] = json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise OSError(f"the registry answers {error.code} to {address}") from None
        except urllib.error.URLError as error:
            raise OSError(f"the registry does not answer at {address}: {error.reason}") from None
        return str(found["schema"])


class _Writer(NamedTuple):
    """The decoder of a writer's schema, or why there is none."""

    decoder: AvroDecoder | None
    fault: str = ""


class RegistryDecoder:
    """Decodes values of many schemas into the columns of one."""

    def __init__(self, registry: Registry, reader: AvroDecoder) -> None:
        self._registry = registry
        self._reader = reader
        self._writers: dict[int, _Writer] = {}

    def decode(self, values: pa.Array) -> Decoded:
        """As AvroDecoder.decode, each value by the schema that it names."""
        numbers = np.array([_number(value) for value in values.to_pylist()], np.int64)
        kinds = np.unique(numbers)
        if len(kinds) == 1:
            return self._decode(int(kinds[0]), values)
        parts, rows = [], []
        reasons: list[str | None] = [None] * len(values)
        for kind in kinds:
            of_kind = np.flatnonzero(numbers == kind)
            decoded = self._decode(int(kind), values.take(pa.array(of_kind)))
            parts.append(decoded.events)
            rows.append(of_kind)
            for row, reason in zip(of_kind, decoded.reasons, strict=True):
                reasons[row] = reason
        if not parts:
            return Decoded(pa.nulls(0, self._reader.codec.type), [])
        order = np.argsort(np.concatenate(rows), kind="stable")
        return Decoded(pa.concat_arrays(parts).take(pa.array(order)), reasons)

    def _decode(self, number: int, values: pa.Array) -> Decoded:
        nothing = pa.nulls(len(values), self._reader.codec.type)
        if number < 0:
            fault = NO_VALUE if number == NOTHING else NO_FRAME
            return Decoded(nothing, [fault] * len(values))
        writer = self._writer(number)
        if writer.decoder is None:
            return Decoded(nothing, [writer.fault] * len(values))
        decoded = writer.decoder.decode(values, confluent=True)
        events = resolved(decoded.events, writer.decoder.codec, self._reader.codec, "")
        return Decoded(events, decoded.reasons)

    def _writer(self, number: int) -> _Writer:
        if number not in self._writers:
            self._writers[number] = self._asked(number)
        return self._writers[number]

    def _asked(self, number: int) -> _Writer:
        text = self._registry.schema(number)
        if text is None:
            return _Writer(None, f"the registry has no schema {number}")
        try:
            decoder = AvroDecoder(text)
            empty = pa.nulls(0, decoder.codec.type)
            resolved(empty, decoder.codec, self._reader.codec, "")
        except (AvroSchemaError, Misfit) as error:
            return _Writer(None, f"schema {number} of the registry: {error}")
        return _Writer(decoder)


NOTHING, UNFRAMED = -1, -2


def _number(value: bytes | None) -> int:
    if value is None:
        return NOTHING
    if len(value) < CONFLUENT_HEADER_BYTES or value[0]:
        return UNFRAMED
    return int.from_bytes(value[1:CONFLUENT_HEADER_BYTES], "big")


def _inner(codec: Codec) -> Codec:
    return codec.node.children[0] if codec.node.kind == "union" else codec


def resolved(values: pa.Array, writer: Codec, reader: Codec, where: str) -> pa.Array:
    """A column of the writer's type as one of the reader's; Misfit if it cannot be."""
    written, wanted = _inner(writer), _inner(reader)
    have, want = written.node.kind, wanted.node.kind
    if want == "record" and have == "record":
        return _resolved_record(values, written, wanted, where)
    if want == have == "array":
        items = resolved(values.flatten(), written.node.children[0], wanted.node.children[0], where)
        return pa.ListArray.from_arrays(
            _starts(values), items, type=wanted.type, mask=pc.is_null(values)
        )
    if want == have == "map":
        flat = values.values if not len(values) else values.items
        items = resolved(flat, written.node.children[0], wanted.node.children[0], where)
        made = pa.MapArray.from_arrays(values.offsets, values.keys, items)
        return made.cast(wanted.type)
    if written.type == wanted.type:
        return values
    if want in WIDENED.get(have, ()) or {have, want} <= {"long", "millis", "int"}:
        return values.cast(wanted.type)
    name = where or "the value"
    raise Misfit(f"field {name} is {written.type}, and {wanted.type} is wanted")


def _starts(values: pa.Array) -> pa.Array:
    """Where each list begins among the items that are not null."""
    lengths = pc.fill_null(pc.list_value_length(values), 0)
    starts = np.concatenate([[0], np.cumsum(lengths.to_numpy(zero_copy_only=False))])
    return pa.array(starts.astype(np.int32))


def _resolved_record(values: pa.Array, writer: Codec, reader: Codec, where: str) -> pa.Array:
    columns = []
    node = reader.node
    for name, codec in zip(node.names, node.children, strict=True):
        inner = f"{where}.{name}".lstrip(".")
        known = [one for one in (name, *node.aliases.get(name, ())) if one in writer.node.names]
        if known:
            index = writer.node.names.index(known[0])
            column = values.field(index)
            columns.append(resolved(column, writer.node.children[index], codec, inner))
        elif name in node.defaults or codec.node.kind == "union":
            default = node.defaults.get(name)
            columns.append(pa.array([default] * len(values), codec.type))
        else:
            raise Misfit(f"field {inner} is not in it and has no default")
    mask = pc.is_null(values)
    return pa.StructArray.from_arrays(columns, fields=list(reader.type), mask=mask)
