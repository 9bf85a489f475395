"""How a message is declared: one class for all its versions, one line per field.

    class MetadataRequest(Request["MetadataResponse"], api_key=3, versions=(0, 12), flexible=9):
        topics: list[MetadataRequestTopic] | None = since(0, nullable_since=1)

    class MetadataResponseBroker(Struct):
        node_id: int32 = since(0)
        host: str = since(0)
        port: int32 = since(0)
        rack: str | None = since(1, default=None)

    class MetadataResponse(Message, api_key=3, versions=(0, 12), flexible=9):
        throttle_time_ms: int32 = since(3)
        brokers: list[MetadataResponseBroker] = since(0)

The annotation is the type on the wire; `since` says in which versions the field is there. A module
of messages begins with `from __future__ import annotations`: an annotation is read as text, when a
codec is first needed, so that importing a schema costs next to nothing.

Rules
1. Every field has a default (zero, empty, or what `since` says) and is a keyword argument.
2. Decoding a version that lacks a field gives the default.
3. Encoding a request in a version that lacks a field raises EncodeError if its value is not the
   default: it would ask for something else than was meant. `ignorable=True` says that leaving the
   field out does no harm. A response, or any other message, leaves out what the version cannot say.
4. A struct is the element of an array, or a tagged field; as a tagged field, absent is None.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from struct import Struct as Packer
from typing import (
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    Self,
    TypeAlias,
    TypeVar,
    dataclass_transform,
    overload,
)
from uuid import UUID

from .errors import DecodeError, EncodeError

Buffer: TypeAlias = bytes | bytearray | memoryview

# The types of the wire that Python has no name for; bool, str, bytes, UUID and list are the others.
int8: TypeAlias = int
int16: TypeAlias = int
int32: TypeAlias = int
int64: TypeAlias = int
float64: TypeAlias = float
# Record batches: decoded as a view of the frame, encoded from one buffer or several, never copied.
Records: TypeAlias = Buffer | list[Buffer]


def size_bytes(records: Records) -> int:
    return sum(map(len, records)) if isinstance(records, list) else len(records)


NEVER = 32767
ELEMENTS_MAX = 2**31 - 1
LARGE_BYTES = 4096  # less is cheaper to copy than to write apart
ZERO_UUID = UUID(int=0)
UNSET = object()

DEFAULTS: dict[str, object] = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "int32": 0,
    "int64": 0,
    "float64": 0.0,
    "str": "",
    "bytes": b"",
    "Records": None,
    "UUID": ZERO_UUID,
}

VERSION = Packer(">h")

T = TypeVar("T")
ResponseT = TypeVar("ResponseT", bound="Message", covariant=True)


class Declaration(NamedTuple):
    """What stands to the right of a field's name."""

    first: int
    last: int
    default: object
    nullable_since: int
    tag: int | None
    ignorable: bool


@overload
def since(
    first: int,
    *,
    default: T,
    until: int = ...,
    nullable_since: int = ...,
    tag: int | None = ...,
    ignorable: bool = ...,
) -> T: ...
@overload
def since(
    first: int,
    *,
    until: int = ...,
    nullable_since: int = ...,
    tag: int | None = ...,
    ignorable: bool = ...,
) -> Any: ...  # whatever the annotation says
def since(
    first: int,
    *,
    default: object = UNSET,
    until: int = NEVER,
    nullable_since: int = 0,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """A field that the versions from `first` to `until` carry.

    One that is annotated `| None` may be null from version `nullable_since` on.
    """
    return Declaration(first, until, default, nullable_since, tag, ignorable)


class WireType(NamedTuple):
    """A type of the wire: a primitive, a struct, or an array of either."""

    primitive: str | None = None
    struct: type[Struct] | None = None
    element: WireType | None = None


class Field(NamedTuple):
    """A declaration whose annotation has been read. The default of an array is UNSET: a list."""

    name: str
    kind: WireType
    first: int
    last: int
    default: object
    nullable_since: int
    tag: int | None
    ignorable: bool

    def default_source(self) -> str:
        """The default as it is written in Python."""
        if self.default is UNSET:
            return "[]"
        return "ZERO_UUID" if isinstance(self.default, UUID) else repr(self.default)

    def in_version(self, version: int) -> bool:
        return self.first <= version <= self.last

    def nullable_in(self, version: int) -> bool:
        return version >= self.nullable_since


def read_kind(annotation: str, module: str) -> WireType:
    if annotation.startswith("list[") and annotation.endswith("]"):
        return WireType(element=read_kind(annotation[5:-1], module))
    if annotation in DEFAULTS:
        return WireType(primitive=annotation)
    return WireType(struct=getattr(sys.modules[module], annotation))


def read_field(owner: type[Struct], name: str, declaration: Declaration) -> Field:
    annotation = owner.__annotations__[name]
    bare = annotation.removesuffix(" | None")
    kind = read_kind(bare, owner.__module__)
    first, last, default, nullable_since, tag, ignorable = declaration
    if default is UNSET and kind.element is None:
        default = DEFAULTS[kind.primitive] if kind.primitive else None
    if bare == annotation:
        nullable_since = NEVER
    assert kind.struct is None or tag is not None, f"{owner.__name__}.{name}: a struct has no tag"
    return Field(name, kind, first, last, default, nullable_since, tag, ignorable)


def fields_of(owner: type[Struct]) -> list[Field]:
    """The fields of a struct, in the order of the wire."""
    return [read_field(owner, name, declaration) for name, declaration in owner.FIELDS.items()]


@dataclass_transform(kw_only_default=True)
class StructType(type):
    """Turns declarations into slots; whatever is dearer waits until it is needed."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **keywords: Any
    ) -> StructType:
        fields = {key: value for key, value in namespace.items() if type(value) is Declaration}
        for key in fields:
            del namespace[key]
        namespace["__slots__"] = tuple(fields)
        namespace["FIELDS"] = fields
        return super().__new__(mcs, name, bases, namespace, **keywords)


class Struct(metaclass=StructType):
    """Some fields that travel together."""

    FIELDS: ClassVar[dict[str, Declaration]]

    def __init__(self, **values: object) -> None:
        cls = type(self)
        constructor = build_constructor(cls)
        type.__setattr__(cls, "__init__", constructor)
        constructor(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.FIELDS)

    __hash__ = None  # type: ignore[assignment]  # mutable, like a list

    def __repr__(self) -> str:
        values = (f"{name}={getattr(self, name)!r}" for name in self.FIELDS)
        return f"{type(self).__name__}({', '.join(values)})"


def build_constructor(cls: type[Struct]) -> Callable[..., None]:
    """`__init__(self, *, a=0, b="", c=...)`, compiled when the first instance is made."""
    scope: dict[str, Any] = {"unset": UNSET}
    parameters = []
    lines = []
    for field in fields_of(cls):
        name = field.name
        if field.default is UNSET:
            parameters.append(f"{name}=unset")
            lines.append(f"self.{name} = [] if {name} is unset else {name}")
        else:
            scope[f"default_{name}"] = field.default
            parameters.append(f"{name}=default_{name}")
            lines.append(f"self.{name} = {name}")
    signature = ", ".join(["self", *(["*", *parameters] if parameters else [])])
    exec("\n ".join([f"def __init__({signature}):", *lines, "pass"]), scope)
    constructor: Callable[..., None] = scope["__init__"]
    return constructor


def join_small(chunks: list[Buffer]) -> list[Buffer]:
    """The same bytes in fewer chunks, without copying the large ones."""
    parts: list[Buffer] = []
    small: list[Buffer] = []
    for chunk in chunks:
        if len(chunk) < LARGE_BYTES:
            small.append(chunk)
            continue
        if small:
            parts.append(b"".join(small))
            small = []
        parts.append(chunk)
    if small:
        parts.append(b"".join(small))
    return parts


class Message(Struct):
    """A struct that stands alone: a request, a response, or a record of an internal topic."""

    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[range]
    FLEXIBLE_FROM: ClassVar[int]
    ENCODERS: ClassVar[dict[int, Callable[[Any, list[Buffer]], None]]]
    DECODERS: ClassVar[dict[int, Callable[..., Any]]]

    def __init_subclass__(
        cls, *, versions: tuple[int, int], flexible: int = NEVER, api_key: int = -1
    ) -> None:
        cls.API_KEY = api_key
        cls.VERSIONS = range(versions[0], versions[1] + 1)
        cls.FLEXIBLE_FROM = flexible
        cls.ENCODERS = {}
        cls.DECODERS = {}

    def encode(self, version: int) -> bytes:
        """The message in one piece. Raises EncodeError."""
        return b"".join(self._chunks(version))

    def encode_parts(self, version: int) -> list[Buffer]:
        """The message in pieces to write in turn: large records stay the caller's own buffers."""
        chunks = self._chunks(version)
        if max(map(len, chunks), default=0) < LARGE_BYTES:
            return [b"".join(chunks)]
        return join_small(chunks)

    def _chunks(self, version: int) -> list[Buffer]:
        encoder = self.ENCODERS.get(version)
        if encoder is None:
            from .encoder import build_encoder

            if version not in self.VERSIONS:
                raise EncodeError(f"{type(self).__name__} has no version {version}")
            encoder = self.ENCODERS[version] = build_encoder(type(self), version)
        chunks: list[Buffer] = []
        encoder(self, chunks)
        return chunks

    def encode_versioned(self, version: int) -> bytes:
        """The version, then the message: how it stands in a record of an internal topic."""
        return VERSION.pack(version) + self.encode(version)

    @classmethod
    def decode_versioned(cls, data: Buffer) -> Self:
        """The message that follows its version. Raises DecodeError, also if we do not know that."""
        if len(data) < VERSION.size:
            raise DecodeError(f"{cls.__name__}: no version")
        return cls.decode(data[VERSION.size :], *VERSION.unpack_from(data))

    @classmethod
    def decode(cls, data: Buffer, version: int, elements_max: int = ELEMENTS_MAX) -> Self:
        """The message that these bytes begin with; like Kafka, what follows it is not looked at.

        Raises DecodeError, also if its arrays have more elements than `elements_max`. Records are
        views of `data`; everything else is a copy.
        """
        decoder = cls.DECODERS.get(version)
        if decoder is None:
            from .decoder import build_decoder

            if version not in cls.VERSIONS:
                raise DecodeError(f"{cls.__name__} has no version {version}")
            decoder = cls.DECODERS[version] = build_decoder(cls, version)
        message: Self = decoder(data, elements_max)
        return message


class Request(Message, Generic[ResponseT], versions=(0, -1)):
    """A message that is answered. Where one is sent, the answer has the type that it names."""

    def __class_getitem__(cls, response: object) -> type[Self]:
        # For type checkers alone: what `typing` makes of a name takes longer than the whole class.
        return cls
