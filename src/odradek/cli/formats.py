"""Records as text: values by line, keys and values by line, or JSON by line.

    value    hello                          the line is the value
    keyed    user-1:hello                   split at the first separator
    json     {"key": "user-1", "value": "hello", "headers": {"h": "x"}, "timestamp": 1714564800000}

In JSON a null value is a tombstone, a text is its UTF-8, anything else is its JSON; bytes that are
no UTF-8 stand under `key_base64` and `value_base64`. What `consume` prints, `produce` takes.
"""

import base64
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from odradek.wire.records import Headers

if TYPE_CHECKING:
    from odradek.client import Received

FORMATS = ("value", "keyed", "json")


class Line(NamedTuple):
    """What one line says of a record; what it does not say is None."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def reader(form: str, separator: str, null: str | None) -> Callable[[bytes], Line]:
    """How to read a line. What it returns raises ValueError for a line it cannot read."""
    nothing = None if null is None else null.encode()
    split = separator.encode()

    def content(text: bytes) -> bytes | None:
        return None if text == nothing else text

    def keyed(line: bytes) -> Line:
        key, found, value = line.partition(split)
        if not found:
            raise ValueError(f"no {separator!r} between key and value")
        return Line(content(value), content(key))

    return {"value": lambda line: Line(content(line)), "keyed": keyed, "json": _from_json}[form]


def _from_json(line: bytes) -> Line:
    fields = json.loads(line)
    if not isinstance(fields, dict):
        raise ValueError("a record is a JSON object")
    headers = fields.get("headers") or {}
    pairs = headers.items() if isinstance(headers, dict) else headers
    return Line(
        _json_bytes(fields, "value"),
        _json_bytes(fields, "key"),
        tuple((str(name), _encoded(content)) for name, content in pairs),
        fields.get("partition"),
        fields.get("timestamp"),
    )


def _json_bytes(fields: dict[str, object], name: str) -> bytes | None:
    coded = fields.get(f"{name}_base64")
    if isinstance(coded, str):
        return base64.b64decode(coded, validate=True)
    return _encoded(fields.get(name))


def _encoded(value: object) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


def writer(form: str, separator: str, null: str | None) -> Callable[["Received"], bytes]:
    """How to write a record, without the end of the line."""
    nothing = (null or "").encode()
    split = separator.encode()

    def text(content: bytes | None) -> bytes:
        return nothing if content is None else content

    return {
        "value": lambda record: text(record.value),
        "keyed": lambda record: text(record.key) + split + text(record.value),
        "json": _to_json,
    }[form]


def _to_json(record: "Received") -> bytes:
    fields: dict[str, object] = {
        "topic": record.partition.topic,
        "partition": record.partition.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
    }
    for name, content in (("key", record.key), ("value", record.value)):
        try:
            fields[name] = None if content is None else content.decode()
        except UnicodeDecodeError:
            fields[f"{name}_base64"] = base64.b64encode(content or b"").decode()
    if record.headers:
        fields["headers"] = [
            [name, None if content is None else content.decode(errors="replace")]
            for name, content in record.headers
        ]
    return json.dumps(fields, ensure_ascii=False).encode()
