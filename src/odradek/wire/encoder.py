"""Writes, compiles and keeps the encoder of one message in one version.

The encoder is one flat function: nested arrays are nested loops, consecutive fields of fixed size
are one call of `struct`, everything is appended to one list of chunks. MetadataResponse v9 begins:

    def encode(o0, chunks):
        append = chunks.append
        append(pack_i(o0.throttle_time_ms))
        a1 = o0.brokers
        n = len(a1)
        append(ONE_BYTE[n + 1] if n < 127 else varint(n + 1))
        for o1 in a1:
            ...
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct as Packer
from struct import error as PackError  # noqa: N812  # an exception, whatever its name
from typing import Any

from .errors import EncodeError
from .schema import (
    UNSET,
    ZERO_UUID,
    Buffer,
    Field,
    Message,
    Struct,
    WireType,
    fields_of,
    size_bytes,
)

FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "UUID": "16s",
}
# Elements of which a whole array is packed at once. (An array of UUIDs is a loop.)
ARRAY_CODES = {name: code for name, code in FIXED.items() if len(code) == 1}
SMALL_ARRAY = 64
ONE_BYTE = tuple(bytes([value]) for value in range(128))
ZERO = b"\0"


def unsigned_varint(value: int) -> bytes:
    """Seven bits to a byte, least significant first; the top bit says that more follow."""
    if value < 128:
        return ONE_BYTE[value]
    encoded = bytearray()
    while value >= 128:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


class ArrayPackers(dict[int, Callable[..., bytes]]):
    """By length: what packs that many elements of one fixed size."""

    def __init__(self, code: str) -> None:
        self._code = code

    def __missing__(self, length: int) -> Callable[..., bytes]:
        pack = Packer(f">{length}{self._code}").pack
        if length <= SMALL_ARRAY:
            self[length] = pack
        return pack


ARRAY_PACKERS = {code: ArrayPackers(code) for code in ARRAY_CODES.values()}


def join_tagged(tagged: list[tuple[int, list[Buffer]]]) -> bytes:
    """The tagged fields of a struct that are not at their default, in the order of their tags."""
    joined = [unsigned_varint(len(tagged))]
    for tag, chunks in tagged:
        body = b"".join(chunks)
        joined += unsigned_varint(tag), unsigned_varint(len(body)), body
    return b"".join(joined)


class EncoderSource:
    """The source of one encoder while it is being written."""

    def __init__(self, cls: type[Message], version: int) -> None:
        self.name = f"{cls.__name__} v{version}"
        self.version = version
        self.compact = version >= cls.FLEXIBLE_FROM
        self.is_request = cls.__name__.endswith("Request")
        self.scope: dict[str, Any] = {
            "ONE_BYTE": ONE_BYTE,
            "ZERO_UUID": ZERO_UUID,
            "EncodeError": EncodeError,
            "FAILURES": (PackError, AttributeError, TypeError, OverflowError, UnicodeError),
            "join_tagged": join_tagged,
            "size_bytes": size_bytes,
            "varint": unsigned_varint,
        }
        self.lines = ["def encode(o0, chunks):", "  try:", "    append = chunks.append"]
        self.depth = 2
        self.fixed: list[tuple[str, str]] = []  # not yet written: codes and expressions
        self.add_struct(cls, 0)
        self.flush()
        self.depth = 1
        self.add("except FAILURES as error:")
        self.add(f"  raise EncodeError(f'{self.name}: {{error}}') from error")
        exec("\n".join(self.lines), self.scope)

    def add(self, line: str) -> None:
        self.lines.append("  " * self.depth + line)

    def flush(self) -> None:
        """Write the fields of fixed size that have come together, in one call."""
        if not self.fixed:
            return
        codes = "".join(code for code, _ in self.fixed)
        values = ", ".join(value for _, value in self.fixed if value)
        self.fixed = []
        if values:
            name = "pack_" + codes.replace("?", "z")
            self.scope[name] = Packer(f">{codes}").pack
            self.add(f"append({name}({values}))")
        else:
            self.add(f"append({bytes(len(codes))!r})")

    def add_struct(self, struct: type[Struct], level: int) -> None:
        tagged = []
        for field in fields_of(struct):
            if not field.in_version(self.version):
                if self.is_request and not field.ignorable:
                    self.refuse(field, f"o{level}.{field.name}")
            elif field.tag is not None:
                tagged.append(field)
            else:
                self.add_field(field, level)
        if self.compact:
            self.add_tagged(sorted(tagged, key=lambda field: field.tag or 0), level)

    def differs(self, field: Field, value: str) -> str:
        """The condition that a field is not at its default."""
        if field.default is UNSET:
            return f"{value} is None or {value}"
        if field.default is None:
            return f"{value} is not None"
        return f"{value} != {field.default_source()}"

    def refuse(self, field: Field, value: str) -> None:
        self.add(f"if {self.differs(field, value)}:")
        self.add(f"  raise EncodeError('{self.name} has no {field.name}')")

    def add_tagged(self, fields: list[Field], level: int) -> None:
        if not fields:
            self.fixed.append(("x", ""))
            return
        self.flush()
        self.add(f"t{level} = []")
        for field in fields:
            value = f"o{level}.{field.name}"
            self.add(f"if {self.differs(field, value)}:")
            self.depth += 1
            self.add(f"outer{level} = chunks, append")
            self.add("chunks = []")
            self.add("append = chunks.append")
            self.add(f"t{level}.append(({field.tag}, chunks))")
            self.add_field(field, level)
            self.flush()
            self.add(f"chunks, append = outer{level}")
            self.depth -= 1
        self.add(f"append(join_tagged(t{level}) if t{level} else {ZERO!r})")

    def add_field(self, field: Field, level: int) -> None:
        value = f"o{level}.{field.name}"
        if field.kind.struct is not None:
            self.add(f"o{level + 1} = {value}")
            self.add_struct(field.kind.struct, level + 1)
            return
        self.add_value(field.kind, value, level, nullable=field.nullable_in(self.version))

    def add_value(self, kind: WireType, value: str, level: int, *, nullable: bool) -> None:
        if kind.primitive in FIXED:
            code = FIXED[kind.primitive]
            self.fixed.append((code, f"{value}.bytes" if code == "16s" else value))
            return
        if not nullable:
            self.add_sized(kind, value, level)
            return
        self.flush()
        self.add(f"if {value} is None:")
        short = kind.primitive == "str"
        null = ZERO if self.compact else (b"\xff\xff" if short else b"\xff\xff\xff\xff")
        self.add(f"  append({null!r})")
        self.add("else:")
        self.depth += 1
        self.add_sized(kind, value, level)
        self.flush()
        self.depth -= 1

    def add_sized(self, kind: WireType, value: str, level: int) -> None:
        """What begins with its size: a string, bytes, records or an array, not null."""
        if kind.element is not None:
            self.add_array(kind.element, value, level + 1)
            return
        self.add(f"s = {value}.encode()" if kind.primitive == "str" else f"s = {value}")
        if kind.primitive == "Records":
            self.flush()
            self.add("if type(s) is list:")
            self.depth += 1
            self.add_size("size_bytes(s)", "i")
            self.add("chunks += s")
            self.depth -= 1
            self.add("else:")
            self.depth += 1
        self.add_size("len(s)", "h" if kind.primitive == "str" else "i")
        self.add("append(s)")
        if kind.primitive == "Records":
            self.depth -= 1

    def add_size(self, size: str, code: str) -> None:
        self.add(f"n = {size}")
        if self.compact:
            self.flush()
            self.add("append(ONE_BYTE[n + 1] if n < 127 else varint(n + 1))")
        else:
            self.fixed.append((code, "n"))
            self.flush()

    def add_array(self, element: WireType, value: str, level: int) -> None:
        array = f"a{level}"
        self.add(f"{array} = {value}")
        self.add_size(f"len({array})", "i")
        if element.primitive in ARRAY_CODES:
            code = ARRAY_CODES[element.primitive]
            self.scope[f"arrays_{code}"] = ARRAY_PACKERS[code]
            self.add("if n:")
            self.add(f"  append(arrays_{code}[n](*{array}))")
            return
        self.add(f"for o{level} in {array}:")
        self.depth += 1
        if element.struct is not None:
            self.add_struct(element.struct, level)
        else:
            self.add_value(element, f"o{level}", level, nullable=False)
        self.flush()
        self.depth -= 1


def build_encoder(cls: type[Message], version: int) -> Callable[[Any, list[Buffer]], None]:
    """A function that appends the chunks of a message to a list. Raises EncodeError."""
    encoder: Callable[[Any, list[Buffer]], None] = EncoderSource(cls, version).scope["encode"]
    return encoder
