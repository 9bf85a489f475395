"""MessagePack, by its specification (github.com/msgpack/msgpack/blob/master/spec.md)."""

import struct
from typing import Any

from odradek.console.decoders.limits import Budget, Input, Undecodable, printable

_NUMBERS = {
    0xCA: ">f", 0xCB: ">d",
    0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q",
    0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_LENGTHS = {1: ">B", 2: ">H", 4: ">I"}
_BINARY = {0xC4: 1, 0xC5: 2, 0xC6: 4}
_TEXT = {0xD9: 1, 0xDA: 2, 0xDB: 4}
_ARRAY = {0xDC: 2, 0xDD: 4}
_MAP = {0xDE: 2, 0xDF: 4}
_EXTENSION = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_FIXED_EXTENSION = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}


def decode_msgpack(data: bytes) -> Any:
    """One value and nothing after it."""
    source = Input(data)
    value = _value(source, Budget())
    if source.rest:
        raise Undecodable(f"{source.rest} bytes after the value")
    return value


def _value(source: Input, budget: Budget) -> Any:
    budget.item()
    tag = source.byte()
    if tag < 0x80:
        return tag
    if tag >= 0xE0:
        return tag - 0x100
    if tag < 0x90:
        return _map(source, budget, tag & 0x0F)
    if tag < 0xA0:
        return _array(source, budget, tag & 0x0F)
    if tag < 0xC0:
        return _text(source.take(tag & 0x1F))
    if tag in _CONSTANTS:
        return _CONSTANTS[tag]
    if tag in _NUMBERS:
        return printable(_number(source, _NUMBERS[tag]))
    if tag in _BINARY:
        return printable(source.take(_length(source, _BINARY[tag])))
    if tag in _TEXT:
        return _text(source.take(_length(source, _TEXT[tag])))
    if tag in _ARRAY:
        return _array(source, budget, _length(source, _ARRAY[tag]))
    if tag in _MAP:
        return _map(source, budget, _length(source, _MAP[tag]))
    if tag in _EXTENSION or tag in _FIXED_EXTENSION:
        size = _FIXED_EXTENSION.get(tag) or _length(source, _EXTENSION[tag])
        kind = _number(source, ">b")
        return {"extension": kind, "data": printable(source.take(size))}
    raise Undecodable(f"0x{tag:02x} begins no value")


def _number(source: Input, form: str) -> Any:
    return struct.unpack(form, source.take(struct.calcsize(form)))[0]


def _length(source: Input, size: int) -> int:
    return int(_number(source, _LENGTHS[size]))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _array(source: Input, budget: Budget, count: int) -> list[Any]:
    if count > source.rest:
        raise Undecodable(f"{count} items in {source.rest} bytes")
    with budget:
        return [_value(source, budget) for _ in range(count)]


def _map(source: Input, budget: Budget, count: int) -> dict[str, Any]:
    if 2 * count > source.rest:
        raise Undecodable(f"{count} pairs in {source.rest} bytes")
    found: dict[str, Any] = {}
    with budget:
        for _ in range(count):
            key = _value(source, budget)
            found[key if isinstance(key, str) else repr(key)] = _value(source, budget)
    return found
