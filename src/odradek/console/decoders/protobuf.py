"""Protocol Buffers: with a file of descriptors by name, without one by field number.

protobuf.dev/programming-guides/encoding. A descriptor file is what `protoc --descriptor_set_out
--include_imports` writes; it is a protobuf message itself and read by the same code.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek.console.decoders.limits import Budget, Input, Undecodable, printable

VARINT, FIXED64, BYTES, START, END, FIXED32 = range(6)
DESCRIPTOR_BYTES_MAX = 4 * 1024 * 1024
REPEATED = 3
# FieldDescriptorProto.Type
_DOUBLE, _FLOAT, _UINT64, _FIXED64, _FIXED32, _BOOL, _STRING = 1, 2, 4, 6, 7, 8, 9
_MESSAGE, _BYTES, _UINT32, _ENUM, _SFIXED32, _SFIXED64, _SINT32, _SINT64 = range(11, 19)
_PACKED_FORMS = {
    _DOUBLE: "<d", _FLOAT: "<f", _FIXED64: "<Q", _SFIXED64: "<q", _FIXED32: "<I", _SFIXED32: "<i",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class MessageField:
    name: str
    type: int
    is_repeated: bool
    type_name: str


@dataclass(slots=True)
class Descriptors:
    """Messages and enums by their full names."""

    messages: dict[str, dict[int, MessageField]] = field(default_factory=dict)
    enums: dict[str, dict[int, str]] = field(default_factory=dict)
    maps: set[str] = field(default_factory=set)


def raw_fields(data: bytes, budget: Budget) -> list[tuple[int, int, Any]]:
    """(number, wire type, value) of each field in order. Groups are refused: none are written."""
    source, found = Input(data), []
    while source.rest:
        budget.item()
        tag = source.varint()
        number, kind = tag >> 3, tag & 7
        if not number:
            raise Undecodable("field number 0")
        if kind == VARINT:
            value: Any = source.varint()
        elif kind == FIXED64:
            value = source.take(8)
        elif kind == BYTES:
            value = source.take(source.varint())
        elif kind == FIXED32:
            value = source.take(4)
        else:
            raise Undecodable(f"wire type {kind} in field {number}")
        found.append((number, kind, value))
    return found


def read_descriptors(data: bytes) -> Descriptors:
    """A FileDescriptorSet. Raises Undecodable."""
    if len(data) > DESCRIPTOR_BYTES_MAX:
        raise Undecodable("the descriptor file is too large")
    budget, found = Budget(), Descriptors()
    for number, kind, file in raw_fields(data, budget):
        if number == 1 and kind == BYTES:
            parts = raw_fields(file, budget)
            package = next((_name(value) for at, _, value in parts if at == 2), "")
            for at, _, value in parts:
                if at == 4:
                    _read_message(value, package, found, budget)
                elif at == 5:
                    _read_enum(value, package, found, budget)
    if not found.messages:
        raise Undecodable("the descriptor file has no message")
    return found


def _name(value: Any) -> str:
    if not isinstance(value, bytes):
        raise Undecodable("a name that is not a text")
    return value.decode("utf-8", "backslashreplace")


def _joined(package: str, name: str) -> str:
    return f"{package}.{name}" if package else name


def _read_message(data: Any, package: str, found: Descriptors, budget: Budget) -> None:
    with budget:
        parts = raw_fields(_bytes(data), budget)
        full = _joined(package, next((_name(value) for at, _, value in parts if at == 1), ""))
        fields: dict[int, MessageField] = {}
        for at, _, value in parts:
            if at == 2:
                each = {number: item for number, _, item in raw_fields(_bytes(value), budget)}
                fields[_int(each.get(3))] = MessageField(
                    _name(each.get(1, b"")),
                    _int(each.get(5)),
                    each.get(4) == REPEATED,
                    _name(each.get(6, b"")).lstrip("."),
                )
            elif at == 3:
                _read_message(value, full, found, budget)
            elif at == 4:
                _read_enum(value, full, found, budget)
            elif at == 7 and any(n == 7 and v for n, _, v in raw_fields(_bytes(value), budget)):
                found.maps.add(full)
        found.messages[full] = fields


def _read_enum(data: Any, package: str, found: Descriptors, budget: Budget) -> None:
    parts = raw_fields(_bytes(data), budget)
    full = _joined(package, next((_name(value) for at, _, value in parts if at == 1), ""))
    values = [
        {number: item for number, _, item in raw_fields(_bytes(value), budget)}
        for at, _, value in parts
        if at == 2
    ]
    found.enums[full] = {_int(each.get(2, 0)): _name(each.get(1, b"")) for each in values}


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise Undecodable("a part that should be a message is a number")
    return value


def _int(value: Any) -> int:
    return value if isinstance(value, int) else 0


class ProtobufDecoder:
    """Decodes one message; without descriptors each field is shown by its number."""

    def __init__(self, descriptors: Descriptors | None = None, message: str = "") -> None:
        self._found = descriptors
        if descriptors is not None and not message:
            message = next(iter(descriptors.messages))
        if descriptors is not None and message not in descriptors.messages:
            known = ", ".join(sorted(descriptors.messages)[:20])
            raise Undecodable(f"there is no message {message!r}; there are {known}")
        self._message = message

    def __call__(self, data: bytes) -> Any:
        budget = Budget()
        if self._found is None:
            return _by_number(data, budget)
        return self._decode(data, self._message, self._found, budget)

    def _decode(
        self, data: bytes, message: str, found: Descriptors, budget: Budget
    ) -> dict[str, Any]:
        fields: Mapping[int, MessageField] = found.messages.get(message, {})
        values: dict[str, Any] = {}
        with budget:
            for number, kind, value in raw_fields(data, budget):
                known = fields.get(number)
                if known is None:
                    _collect(values, str(number), _shown(kind, value, budget))
                    continue
                items = self._items(known, kind, value, found, budget)
                if known.type_name in found.maps:
                    pairs = values.setdefault(known.name, {})
                    for item in items:
                        pairs[str(item.get("key", ""))] = item.get("value")
                elif known.is_repeated:
                    values.setdefault(known.name, []).extend(items)
                elif items:
                    values[known.name] = items[-1]
        return values

    def _items(
        self, known: MessageField, kind: int, value: Any, found: Descriptors, budget: Budget
    ) -> list[Any]:
        if kind == BYTES and known.type in (_STRING, _BYTES, _MESSAGE):
            if known.type == _MESSAGE:
                return [self._decode(value, known.type_name, found, budget)]
            if known.type == _STRING:
                return [value.decode("utf-8", "backslashreplace")]
            return [printable(value)]
        if kind != BYTES:
            return [_scalar(known, value, found)]
        return [_scalar(known, each, found) for each in _packed(known, value, budget)]


def _packed(known: MessageField, data: bytes, budget: Budget) -> list[Any]:
    source, values = Input(data), []
    form = _PACKED_FORMS.get(known.type)
    while source.rest:
        budget.item()
        values.append(source.take(struct.calcsize(form)) if form else source.varint())
    return values


def _scalar(known: MessageField, value: Any, found: Descriptors) -> Any:
    form = _PACKED_FORMS.get(known.type)
    if form is not None:
        if not isinstance(value, bytes) or len(value) != struct.calcsize(form):
            raise Undecodable(f"field {known.name} has another type than the descriptor says")
        return printable(struct.unpack(form, value)[0])
    if not isinstance(value, int):
        raise Undecodable(f"field {known.name} has another type than the descriptor says")
    if known.type == _BOOL:
        return bool(value)
    if known.type in (_SINT32, _SINT64):
        return (value >> 1) ^ -(value & 1)
    signed = value - 2**64 if value >= 2**63 else value
    if known.type == _ENUM:
        return found.enums.get(known.type_name, {}).get(signed, signed)
    return value if known.type in (_UINT32, _UINT64) else signed


def _by_number(data: bytes, budget: Budget) -> dict[str, Any]:
    values: dict[str, Any] = {}
    with budget:
        for number, kind, value in raw_fields(data, budget):
            _collect(values, str(number), _shown(kind, value, budget))
    return values


def _shown(kind: int, value: Any, budget: Budget) -> Any:
    """What a field of unknown type most likely is."""
    if kind != BYTES:
        if isinstance(value, bytes):
            return printable(struct.unpack("<d" if kind == FIXED64 else "<f", value)[0])
        return value
    try:
        text: str = value.decode()
        if text.isprintable():
            return text
    except UnicodeDecodeError:
        pass
    try:
        return _by_number(value, budget) if value else ""
    except Undecodable as error:
        if "deeper" in str(error) or "more than" in str(error):
            raise
        return printable(value)


def _collect(values: dict[str, Any], name: str, value: Any) -> None:
    if name not in values:
        values[name] = value
    elif isinstance(values[name], list):
        values[name].append(value)
    else:
        values[name] = [values[name], value]
