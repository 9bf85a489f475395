"""Writes, compiles and keeps the decoder of one message in one version.

The decoder is one flat function over a buffer and a position: nested arrays are nested loops, and
consecutive fields of fixed size are one call of `struct` that assigns to their slots at once.

It is given whatever a client sends. Reading beyond the end raises (IndexError, struct.error) or is
checked (slices, counts); a count is checked against the bytes that are left before anything is made
of it. So what it makes is in proportion to the frame, and all it raises is DecodeError. A server
also says how many elements it takes: a frame of 100 MB can hold 50 million of them, and each costs
a microsecond or more to decode and as much again to serve. Numbers in arrays count by half.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from struct import Struct as Packer
from struct import error as UnpackError  # noqa: N812  # an exception, whatever its name
from typing import Any
from uuid import UUID

from .encoder import ARRAY_CODES, FIXED, SMALL_ARRAY
from .errors import DecodeError
from .schema import ELEMENTS_MAX, ZERO_UUID, Buffer, Field, Message, Struct, WireType, fields_of

# The fewest bytes a value of fixed size takes; anything else takes at least its size or count.
FIXED_BYTES = {name: Packer(f">{code}").size for name, code in FIXED.items()}
VARINT_BYTES_MAX = 5
VARINT_MAX = 2**32 - 1
STRING_BYTES_MAX = 2**15 - 1


def unsigned_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The number that begins here, and where the next thing begins."""
    value = 0
    for index in range(VARINT_BYTES_MAX):
        byte = buffer[position + index]
        value |= (byte & 127) << (7 * index)
        if byte < 128:
            if value > VARINT_MAX:
                break
            return value, position + index + 1
    raise DecodeError(f"a varint at byte {position} that is too long")


def skip_tagged(buffer: Buffer, position: int) -> int:
    """Where the tagged fields that begin here end; none of them is known in this version."""
    count, position = unsigned_varint(buffer, position)
    for _ in range(count):
        _, position = unsigned_varint(buffer, position)
        size, position = unsigned_varint(buffer, position)
        position += size
        if position > len(buffer):
            raise DecodeError("a tagged field that ends beyond the message")
    return position


# The ids of topics, above all: a fetch names those that the one before it named.
@lru_cache(1024)
def read_uuid(data: bytes) -> UUID:
    return UUID(bytes=data) if any(data) else ZERO_UUID


class ArrayUnpackers(dict[int, Callable[[Buffer, int], tuple[Any, ...]]]):
    """By length: what unpacks an array of that many elements of fixed size."""

    def __init__(self, code: str) -> None:
        self._code = code

    def __missing__(self, length: int) -> Callable[[Buffer, int], tuple[Any, ...]]:
        if length < 0:
            raise DecodeError("an array is null")
        unpack = Packer(f">{length}{self._code}").unpack_from
        if length <= SMALL_ARRAY:
            self[length] = unpack
        return unpack


ARRAY_UNPACKERS = {code: ArrayUnpackers(code) for code in ARRAY_CODES.values()}


def fewest_bytes(kind: WireType, version: int, compact: bool) -> int:
    """The size of the smallest value of this type."""
    if kind.primitive in FIXED_BYTES:
        return FIXED_BYTES[kind.primitive]
    if kind.struct is None:
        return 1 if compact else (2 if kind.primitive == "str" else 4)
    return int(compact) + sum(
        fewest_bytes(field.kind, version, compact)
        for field in fields_of(kind.struct)
        if field.in_version(version) and field.tag is None
    )


def has_records(struct: type[Struct]) -> bool:
    kinds = [field.kind.element or field.kind for field in fields_of(struct)]
    return any(
        kind.primitive == "Records" or (kind.struct is not None and has_records(kind.struct))
        for kind in kinds
    )


class DecoderSource:
    """The source of one decoder while it is being written."""

    def __init__(self, cls: type[Message], version: int) -> None:
        self.name = f"{cls.__name__} v{version}"
        self.version = version
        self.compact = version >= cls.FLEXIBLE_FROM
        # Bytes are the fastest to read; a view is for what must stay where it was received.
        self.views = has_records(cls)
        self.scope: dict[str, Any] = {
            "DecodeError": DecodeError,
            "ZERO_UUID": ZERO_UUID,
            "FAILURES": (IndexError, UnpackError, UnicodeError),
            "new": object.__new__,
            "read_uuid": read_uuid,
            "skip_tagged": skip_tagged,
            "varint": unsigned_varint,
        }
        source = "memoryview(data)" if self.views else "bytes(data)"
        self.lines = [f"def decode(data, left={ELEMENTS_MAX}):", f"  buf = {source}"]
        self.lines += ["  limit = len(buf)", "  pos = 0", "  try:"]
        self.depth = 2
        self.fixed: list[tuple[str, str]] = []  # not yet read: codes and targets
        self.after: list[str] = []  # what to do with them once they are read
        self.add_struct(cls, 0)
        self.flush()
        self.add("return o0")
        self.depth = 1
        self.add("except FAILURES as error:")
        self.add(f"  raise DecodeError(f'{self.name}: {{error}}') from error")
        exec("\n".join(self.lines), self.scope)

    def add(self, line: str) -> None:
        self.lines.append("  " * self.depth + line)

    def flush(self) -> None:
        """Read the fields of fixed size that have come together, in one call."""
        codes = "".join(code for code, _ in self.fixed)
        if codes == "B":
            self.add(f"{self.fixed[0][1]} = buf[pos]")
            self.add("pos += 1")
        elif codes:
            packer = Packer(f">{codes}")
            name = "unpack_" + codes.replace("?", "z")
            self.scope[name] = packer.unpack_from
            targets = "".join(f"{target}, " for _, target in self.fixed)
            self.add(f"{targets}= {name}(buf, pos)")
            self.add(f"pos += {packer.size}")
        self.fixed = []
        for line in self.after:
            self.add(line)
        self.after = []

    def refuse(self, condition: str, reason: str) -> None:
        self.add(f"if {condition}:")
        self.add(f"  raise DecodeError('{self.name}: {reason}')")

    def count(self, elements: str) -> None:
        self.add(f"left -= {elements}")
        self.refuse("left < 0", "more elements than one request may have")

    def add_struct(self, struct: type[Struct], level: int) -> None:
        self.scope[struct.__name__] = struct
        self.add(f"o{level} = new({struct.__name__})")
        tagged = []
        for field in fields_of(struct):
            target = f"o{level}.{field.name}"
            if not field.in_version(self.version):
                self.add(f"{target} = {field.default_source()}")
            elif field.tag is not None:
                self.add(f"{target} = {field.default_source()}")
                tagged.append(field)
            else:
                nullable = field.nullable_in(self.version)
                self.add_value(field.kind, target, level, nullable=nullable)
        if self.compact:
            self.fixed.append(("B", "n"))
            self.flush()
            self.add("if n:")
            self.depth += 1
            self.add_tagged(tagged, level)
            self.depth -= 1

    def add_tagged(self, fields: list[Field], level: int) -> None:
        """The tagged fields: those that this version knows, in a loop over those that are there."""
        if not fields:
            self.add("pos = skip_tagged(buf, pos - 1)")
            return
        self.add("if n > 127:")
        self.add("  n, pos = varint(buf, pos - 1)")
        self.add("for _ in range(n):")
        self.depth += 1
        self.add("tag, n = buf[pos], buf[pos + 1]")
        self.add("pos += 2")
        self.add("if tag > 127 or n > 127:")
        self.add("  tag, pos = varint(buf, pos - 2)")
        self.add("  n, pos = varint(buf, pos)")
        self.add(f"end{level} = pos + n")
        self.refuse(f"end{level} > limit", "a tagged field that ends beyond the message")
        word = "if"
        for field in fields:
            self.add(f"{word} tag == {field.tag}:")
            self.depth += 1
            target = f"o{level}.{field.name}"
            if field.kind.struct is not None:
                self.add_struct(field.kind.struct, level + 1)
                self.add(f"{target} = o{level + 1}")
            else:
                nullable = field.nullable_in(self.version)
                self.add_value(field.kind, target, level, nullable=nullable)
            self.flush()
            self.refuse(f"pos != end{level}", f"the tagged field {field.name} has another size")
            self.depth -= 1
            word = "elif"
        self.add(f"pos = end{level}")
        self.depth -= 1

    def add_value(self, kind: WireType, target: str, level: int, *, nullable: bool) -> None:
        if kind.primitive == "UUID":
            self.fixed.append(("16s", target))
            self.after.append(f"{target} = read_uuid({target})")
            return
        if kind.primitive in FIXED:
            self.fixed.append((FIXED[kind.primitive], target))
            return
        self.add_size("h" if kind.primitive == "str" else "i")
        name = target.partition(".")[2] or "an element"
        element = kind.element.primitive if kind.element is not None else None
        if nullable:
            self.add("if n < 0:")
            self.add(f"  {target} = None")
            self.add("else:")
            self.depth += 1
        elif element not in ARRAY_CODES:
            self.refuse("n < 0", f"{name} is null")
        if element in ARRAY_CODES:
            code = ARRAY_CODES[element]
            self.scope[f"arrays_{code}"] = ARRAY_UNPACKERS[code]
            self.count("n >> 1")
            self.add(f"{target} = [*arrays_{code}[n](buf, pos)]")
            self.add(f"pos += n * {FIXED_BYTES[element]}")
        elif kind.element is not None:
            self.add_array(kind.element, target, level + 1)
        else:
            self.add_slice(kind.primitive or "", target)
        if nullable:
            self.depth -= 1

    def add_size(self, code: str) -> None:
        """Read a size or count into `n`; negative is null."""
        if self.compact:
            self.fixed.append(("B", "n"))
            self.flush()
            self.add("if n > 127:")
            self.add("  n, pos = varint(buf, pos - 1)")
            self.add("n -= 1")
        else:
            self.fixed.append((code, "n"))
            self.flush()

    def add_slice(self, primitive: str, target: str) -> None:
        self.add("end = pos + n")
        self.refuse("end > limit", "a value that ends beyond the message")
        if self.compact and primitive == "str":
            # As long as one may be in any version: what is taken must fit into what is answered.
            self.refuse(
                f"n > {STRING_BYTES_MAX}", f"a string of more than {STRING_BYTES_MAX} bytes"
            )
        read = "buf[pos:end]"
        if primitive == "str":
            read = f"str({read}, 'utf-8')" if self.views else f"{read}.decode()"
        elif primitive == "bytes" and self.views:
            read = f"bytes({read})"
        self.add(f"{target} = {read}")
        self.add("pos = end")

    def add_array(self, element: WireType, target: str, level: int) -> None:
        fewest = fewest_bytes(element, self.version, self.compact)
        self.refuse(f"n * {fewest} > limit - pos", "an array that ends beyond the message")
        self.count("n")
        self.add(f"a{level} = {target} = []")
        self.add("for _ in range(n):")
        self.depth += 1
        if element.struct is not None:
            self.add_struct(element.struct, level)
        else:
            self.add_value(element, f"o{level}", level, nullable=False)
        self.flush()
        self.add(f"a{level}.append(o{level})")
        self.depth -= 1


def build_decoder(cls: type[Message], version: int) -> Callable[..., Any]:
    """A function from bytes, and the most elements to take, to a message. Raises DecodeError."""
    decoder: Callable[..., Any] = DecoderSource(cls, version).scope["decode"]
    return decoder
