"""One field of a record, a key or a value, in the format that was asked for."""

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from odradek.console.decoders.avro import AvroDecoder
from odradek.console.decoders.limits import DEPTH_MAX, Undecodable, printable
from odradek.console.decoders.msgpack import decode_msgpack
from odradek.console.decoders.protobuf import ProtobufDecoder, read_descriptors

FORMATS = ("auto", "json", "avro", "protobuf", "msgpack", "text", "hex")
PREVIEW_BYTES = 64 * 1024
# What is larger is not decoded at all, only shown from its beginning.
DECODED_BYTES_MAX = 8 * 1024 * 1024
HEX_BYTES = 4 * 1024

_JSON_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')


class Field(TypedDict):
    format: str
    text: str
    size_bytes: int
    truncated: bool
    error: str | None


Decode = Callable[[bytes], Any]


class Decoder:
    """Makes fields of bytes. Never raises: what is not in the format is shown as hex."""

    def __init__(self, format: str, decode: Decode | None = None) -> None:
        self.format = format
        self._decode = decode

    def field(self, data: bytes | None, preview_bytes: int = PREVIEW_BYTES) -> Field | None:
        """None stays None: a null key, or a tombstone."""
        if data is None:
            return None
        try:
            if self.format == "auto":
                return _automatic(data, preview_bytes)
            if self.format == "text":
                return _text(data, preview_bytes)
            if self.format == "hex":
                return _hex(data, None, preview_bytes)
            return _decoded(self.format, data, self.value(data), preview_bytes)
        except Undecodable as error:
            return _hex(data, f"not {self.format}: {error}", preview_bytes)
        except (ValueError, TypeError, KeyError, RecursionError, AttributeError) as error:
            return _hex(data, f"not {self.format}: {type(error).__name__}", preview_bytes)

    def value(self, data: bytes) -> Any:
        """What the bytes mean, for filters. Raises Undecodable, or ValueError and the like."""
        if len(data) > DECODED_BYTES_MAX:
            raise Undecodable(f"{len(data)} bytes, more than {DECODED_BYTES_MAX}")
        if self._decode is not None:
            return self._decode(data)
        return parse_json(data)


def decoder_of(settings: Mapping[str, Any] | str | None) -> Decoder:
    """From what a user asked for: a format, or one with its schema. Raises Undecodable."""
    given: Mapping[str, Any] = {"format": settings} if isinstance(settings, str) else settings or {}
    format = given.get("format", "auto")
    if format not in FORMATS:
        raise Undecodable(f"there is no format {format!r}; there are {', '.join(FORMATS)}")
    if format == "avro":
        schema = given.get("schema")
        if not isinstance(schema, str):
            raise Undecodable("avro needs a schema")
        return Decoder(format, AvroDecoder(schema))
    if format == "protobuf":
        text, message = given.get("descriptor"), given.get("message", "")
        if text is None:
            return Decoder(format, ProtobufDecoder())
        try:
            descriptors = read_descriptors(base64.b64decode(str(text), validate=True))
        except binascii.Error:
            raise Undecodable("the descriptor is not base64") from None
        return Decoder(format, ProtobufDecoder(descriptors, str(message)))
    return Decoder(format, decode_msgpack if format == "msgpack" else None)


def parse_json(data: bytes) -> Any:
    """JSON within the limit of depth."""
    depth = 0
    for token in _JSON_TOKEN.finditer(data):
        first = token[0][:1]
        if first in b"[{":
            depth += 1
            if depth > DEPTH_MAX:
                raise Undecodable(f"JSON deeper than {DEPTH_MAX} levels")
        elif first in b"]}":
            depth -= 1
    try:
        return json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise Undecodable("no JSON") from None


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _automatic(data: bytes, preview_bytes: int) -> Field:
    if data[:1] in (b"{", b"[", b'"') or data[:1].isdigit() or data in (b"true", b"false", b"null"):
        try:
            if len(data) <= DECODED_BYTES_MAX:
                parse_json(data)
                return _shortened("json", data.decode(), len(data), preview_bytes, None)
        except Undecodable as error:
            if "deeper" in str(error):
                return _text(data, preview_bytes, str(error))
        except UnicodeDecodeError:
            pass
    try:
        start = data[:preview_bytes].decode(
            "utf-8", "strict" if len(data) <= preview_bytes else "ignore"
        )
    except UnicodeDecodeError:
        return _hex(data, None, preview_bytes)
    return _text(data, preview_bytes) if _is_readable(start) else _hex(data, None, preview_bytes)


def _is_readable(text: str) -> bool:
    odd = sum(not letter.isprintable() and letter not in "\r\n\t" for letter in text[:1024])
    return odd * 8 <= min(len(text), 1024)


def _decoded(format: str, data: bytes, value: Any, preview_bytes: int) -> Field:
    if format == "json":
        text = data.decode("utf-8", "backslashreplace")
    else:
        text = json.dumps(value, ensure_ascii=False, default=printable)
    return _shortened(format, text, len(data), preview_bytes, None)


def _text(data: bytes, preview_bytes: int, error: str | None = None) -> Field:
    shown = data[:preview_bytes]
    try:
        text = shown.decode()
    except UnicodeDecodeError as wrong:
        if wrong.start < len(shown) - 3 or len(data) == len(shown):
            error = error or "not UTF-8: bytes that are not are shown as \\xNN"
        text = shown.decode("utf-8", "backslashreplace")
    return _shortened("text", text, len(data), preview_bytes, error, len(data) > preview_bytes)


def _shortened(
    format: str, text: str, size: int, preview: int, error: str | None, truncated: bool = False
) -> Field:
    return {
        # The beginning of a document is none: it is shown as text.
        "format": "text" if len(text) > preview else format,
        "text": text[:preview],
        "size_bytes": size,
        "truncated": truncated or len(text) > preview,
        "error": error,
    }


def _hex(data: bytes, error: str | None, preview_bytes: int) -> Field:
    shown = data[: min(HEX_BYTES, preview_bytes // 4)]
    return {
        "format": "hex",
        "text": shown.hex(" "),
        "size_bytes": len(data),
        "truncated": len(shown) < len(data),
        "error": error,
    }


def hex_dump(data: bytes | None) -> str:
    """Sixteen bytes a line, with their offsets and the ASCII letters among them."""
    if data is None:
        return ""
    lines = []
    for at in range(0, min(len(data), HEX_BYTES), 16):
        part = data[at : at + 16]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{at:08x}  {part.hex(' '):<47}  {letters}")
    return "\n".join(lines)
