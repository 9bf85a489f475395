"""Records as text: values by line, keys and values by line, or JSON by line.

    value    hello                          the line is the value
    keyed    user-1:hello                   split at the first separator
    json     {"key": "user-1", "value": "hello", "headers": {"h": "x"}, "timestamp": 1714564800000}

In JSON a null value is a tombstone, a text is its UTF-8, anything else is its JSON; bytes that are
no UTF-8 stand under `key_base64` and `value_base64`. Headers are an object, or a list where names
may repeat: of pairs, and of objects {"key": "h", "value_base64": "/wCA"} where a pair will not do.
What `consume` prints, `produce` takes.
"""

import base64
import json
from collections.abc import Callable
from typing import NamedTuple

from odradek.client.consumer import ConsumerRecord
from odradek.operations.suggestion import did_you_mean
from odradek.wire.records import Headers

FORMATS = ("value", "keyed", "json")
NO_TIMESTAMP = -1
# Topic and offset are what `consume` prints of where a record was: it goes elsewhere now.
FIELDS = (
    *("topic", "partition", "offset", "timestamp"),
    *("key", "key_base64", "value", "value_base64", "headers"),
)


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
    for name in fields:
        if name not in FIELDS:
            # Passed over, any object would make a record, with nothing in it.
            hint = (
                did_you_mean(name, FIELDS) or "; a line is a value as a whole with --format value"
            )
            raise ValueError(f"a record has no field {json.dumps(name)}{hint}")
    if not _has_value(fields):
        raise ValueError("a record has a value, which is null for a tombstone, or a value_base64")
    return Line(
        _json_bytes(fields, "value"),
        _json_bytes(fields, "key"),
        _json_headers(fields.get("headers")),
        _json_number(fields, "partition", range(2**31)),
        _json_number(fields, "timestamp", range(NO_TIMESTAMP, 2**63)),
    )


def _json_headers(headers: object) -> Headers:
    if isinstance(headers, dict):
        return tuple((_json_name(name), _encoded(content)) for name, content in headers.items())
    if not isinstance(headers, list | None):
        raise ValueError("headers are an object, or a list of pairs")
    return tuple(_json_header(header) for header in headers or ())


def _json_header(header: object) -> tuple[str, bytes | None]:
    if isinstance(header, dict) and isinstance(header.get("key"), str) and _has_value(header):
        return _json_name(header["key"]), _json_bytes(header, "value")
    if isinstance(header, list) and len(header) == 2:
        return _json_name(str(header[0])), _encoded(header[1])
    raise ValueError(f"a header is a pair or has a key and a value, unlike {json.dumps(header)}")


def _json_name(name: str) -> str:
    name.encode()  # JSON can spell halves of characters, of which there are no bytes to send
    return name


def _has_value(fields: dict[str, object]) -> bool:
    return "value" in fields or "value_base64" in fields


def _json_number(fields: dict[str, object], name: str, allowed: range) -> int | None:
    number = fields.get(name)
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool) or number not in allowed:
        raise ValueError(f"a {name} is a whole number, not {json.dumps(number)}")
    return number


def _json_bytes(fields: dict[str, object], name: str) -> bytes | None:
    if f"{name}_base64" not in fields:
        return _encoded(fields.get(name))
    coded = fields[f"{name}_base64"]
    if not isinstance(coded, str):
        raise ValueError(f"{name}_base64 is a text, not {json.dumps(coded)}")
    return base64.b64decode(coded, validate=True)


def _encoded(value: object) -> bytes | None:
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


def writer(form: str, separator: str, null: str | None) -> Callable[[ConsumerRecord], bytes]:
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


def _to_json(record: ConsumerRecord) -> bytes:
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
        fields["headers"] = [_header_json(name, content) for name, content in record.headers]
    return json.dumps(fields, ensure_ascii=False).encode()


def _header_json(name: str, content: bytes | None) -> list[str | None] | dict[str, str]:
    try:
        return [name, None if content is None else content.decode()]
    except UnicodeDecodeError:
        return {"key": name, "value_base64": base64.b64encode(content or b"").decode()}
