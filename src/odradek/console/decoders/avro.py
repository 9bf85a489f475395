"""Avro's binary encoding, read with the schema that it was written with.

Apache Avro specification 1.11, "Binary Encoding". Values come out as JSON shows them; logical types
are left as what they are stored in. A registry's header (a zero and four bytes) is skipped.
"""

import json
import struct
from collections.abc import Mapping
from typing import Any

from odradek.console.decoders.limits import Budget, Input, Undecodable, printable

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED = frozenset({"record", "error", "enum", "fixed"})
REGISTRY_HEADER_BYTES = 5
SCHEMA_BYTES_MAX = 1024 * 1024


class AvroDecoder:
    """Decodes values of one schema. Raises Undecodable for a schema that is none."""

    def __init__(self, schema: str) -> None:
        if len(schema) > SCHEMA_BYTES_MAX:
            raise Undecodable("the schema is too large")
        try:
            self._schema = json.loads(schema)
        except (ValueError, RecursionError):
            raise Undecodable("the schema is not JSON") from None
        self._names: dict[str, Any] = {}
        self._register(self._schema, "", 0)

    def __call__(self, data: bytes) -> Any:
        try:
            return self._whole(data)
        except Undecodable:
            if len(data) <= REGISTRY_HEADER_BYTES or data[0]:
                raise
            return self._whole(data[REGISTRY_HEADER_BYTES:])

    def _whole(self, data: bytes) -> Any:
        source = Input(data)
        value = self._value(self._schema, "", source, Budget())
        if source.rest:
            raise Undecodable(f"{source.rest} bytes after the value")
        return value

    # The schema

    def _register(self, schema: Any, space: str, depth: int) -> None:
        if depth > 200:
            raise Undecodable("the schema is nested too deeply")
        if isinstance(schema, list):
            for branch in schema:
                self._register(branch, space, depth + 1)
            return
        if isinstance(schema, str):
            return
        if not isinstance(schema, dict):
            raise Undecodable("a schema is a name, a list or an object")
        kind = schema.get("type")
        if kind in NAMED:
            name = _full_name(schema, space)
            self._names[name] = schema
            space = name.rpartition(".")[0]
            for field in schema.get("fields", ()):
                self._register(_entry(field, "type"), space, depth + 1)
        elif kind == "array":
            self._register(_entry(schema, "items"), space, depth + 1)
        elif kind == "map":
            self._register(_entry(schema, "values"), space, depth + 1)
        elif isinstance(kind, dict | list):
            self._register(kind, space, depth + 1)
        elif not isinstance(kind, str):
            raise Undecodable("a schema without a type")

    # Values

    def _value(self, schema: Any, space: str, source: Input, budget: Budget) -> Any:
        budget.item()
        if isinstance(schema, list):
            return self._union(schema, space, source, budget)
        if isinstance(schema, str):
            return self._named(schema, space, source, budget)
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema, space, source, budget)
        if kind == "enum":
            symbols, at = schema.get("symbols", []), source.zigzag()
            if not 0 <= at < len(symbols):
                raise Undecodable(f"symbol {at} of {len(symbols)}")
            return symbols[at]
        if kind == "fixed":
            return printable(source.take(int(schema.get("size", 0))))
        if kind == "array":
            items: list[Any] = []
            self._blocks(
                source,
                lambda: items.append(self._value(schema["items"], space, source, budget)),
                budget,
            )
            return items
        if kind == "map":
            pairs: dict[str, Any] = {}

            def pair() -> None:
                key = _text(source)
                pairs[key] = self._value(schema["values"], space, source, budget)

            self._blocks(source, pair, budget)
            return pairs
        with budget:
            return self._value(kind, space, source, budget)

    def _record(self, schema: Any, space: str, source: Input, budget: Budget) -> dict[str, Any]:
        inner = _full_name(schema, space).rpartition(".")[0]
        with budget:
            return {
                str(field.get("name")): self._value(field["type"], inner, source, budget)
                for field in schema.get("fields", ())
            }

    def _union(self, branches: list[Any], space: str, source: Input, budget: Budget) -> Any:
        at = source.zigzag()
        if not 0 <= at < len(branches):
            raise Undecodable(f"branch {at} of a union of {len(branches)}")
        with budget:
            return self._value(branches[at], space, source, budget)

    def _named(self, name: str, space: str, source: Input, budget: Budget) -> Any:
        if name in PRIMITIVES:
            return _primitive(name, source)
        for full in (f"{space}.{name}" if space else name, name):
            if full in self._names:
                with budget:
                    return self._value(self._names[full], full.rpartition(".")[0], source, budget)
        raise Undecodable(f"the schema names {name!r} and does not define it")

    def _blocks(self, source: Input, item: Any, budget: Budget) -> None:
        with budget:
            while count := source.zigzag():
                if count < 0:
                    count = -count
                    source.zigzag()  # the block's size in bytes
                for _ in range(count):
                    budget.item()
                    item()


def _entry(schema: Any, name: str) -> Any:
    if not isinstance(schema, Mapping) or name not in schema:
        raise Undecodable(f"a part of the schema has no {name}")
    return schema[name]


def _full_name(schema: Mapping[str, Any], space: str) -> str:
    name = schema.get("name")
    if not isinstance(name, str):
        raise Undecodable("a named type without a name")
    own = schema.get("namespace", space)
    return name if "." in name or not own else f"{own}.{name}"


def _primitive(name: str, source: Input) -> Any:
    match name:
        case "null":
            return None
        case "boolean":
            return source.byte() != 0
        case "int" | "long":
            return source.zigzag()
        case "float":
            return printable(struct.unpack("<f", source.take(4))[0])
        case "double":
            return printable(struct.unpack("<d", source.take(8))[0])
        case "bytes":
            return printable(source.take(source.zigzag()))
        case _:
            return _text(source)


def _text(source: Input) -> str:
    return source.take(source.zigzag()).decode("utf-8", "backslashreplace")
