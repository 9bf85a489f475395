"""The response that refuses a whole request, made from the schemas of both.

1. Where this version of the response has an `error_code` of its own, that is where the error goes.
2. Else every element that the request names gets it: the response's first array with an error code
   in its elements, or in theirs, mirrors the request's first array, element by element.
3. A response with no place for an error cannot refuse: an answer without one would be a success
   with nothing in it.

What identifies an element (its name, index, id) is copied from the request. What would have been
found out is -1, as in Kafka, where zero would be taken for an offset or a broker.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from .errors import KafkaError
from .schema import Field, Message, Struct, fields_of

# Fields that a refusal leaves unknown.
UNKNOWN = frozenset(
    {
        "base_offset",
        "committed_leader_epoch",
        "committed_offset",
        "end_offset",
        "high_watermark",
        "leader_epoch",
        "log_start_offset",
        "low_watermark",
        "node_id",
        "num_partitions",
        "offset",
        "port",
        "replication_factor",
        "timestamp",
    }
)


class Element(NamedTuple):
    """How one element of the response is made from one of the request."""

    struct: type[Struct]
    has_error: bool
    has_message: bool
    unknown: dict[str, object]
    # Name in the response, name in the request (None: the element is the value), value for null.
    copied: list[tuple[str, str | None, object]]
    # The arrays in both that hold the elements with the error codes, and how those are made.
    inner: tuple[str, str | None, Element] | None


def refusal(
    request: Message, response: type[Message], version: int, error: KafkaError
) -> Message | None:
    """The response that carries `error` for all of `request`; None if it has no place for it."""
    top = _top(type(request), response, version)
    if top is None:
        return None
    made = _filled(top, request, error)
    assert isinstance(made, Message)
    return made


def _filled(element: Element, asked: Any, error: KafkaError) -> Struct:
    values = dict(element.unknown)
    for name, source, if_null in element.copied:
        value = asked if source is None else getattr(asked, source)
        values[name] = if_null if value is None else value
    if element.has_error:
        values["error_code"] = int(error.error)
    if element.has_message:
        values["error_message"] = error.message or None
    if element.inner is not None:
        name, source, inner = element.inner
        each = asked if source is None else getattr(asked, source)
        values[name] = [_filled(inner, one, error) for one in each or ()]
    return element.struct(**values)


@cache
def _top(request: type[Message], response: type[Message], version: int) -> Element | None:
    fields = _fields(response, version)
    unknown = _unknown(fields)
    if "error_code" in fields:
        return Element(response, True, "error_message" in fields, unknown, [], None)
    inner = _mirror(request, fields, version)
    return inner and Element(response, False, False, unknown, [], inner)


def _mirror(
    request: type[Struct], fields: dict[str, Field], version: int
) -> tuple[str, str, Element] | None:
    """The first arrays of the two that match, and how an element of one becomes the other's."""
    array = next((field for field in fields.values() if _carries_errors(field, version)), None)
    asked = next(
        (field for field in _fields(request, version).values() if field.kind.element), None
    )
    if array is None or asked is None:
        return None
    assert array.kind.element is not None
    assert asked.kind.element is not None
    struct = array.kind.element.struct
    assert struct is not None
    return array.name, asked.name, _element(asked.kind.element.struct, struct, version)


def _element(asked: type[Struct] | None, struct: type[Struct], version: int) -> Element:
    fields = _fields(struct, version)
    sources = {} if asked is None else _fields(asked, version)
    copied: list[tuple[str, str | None, object]] = [
        (name, name, _if_null(field, version))
        for name, field in fields.items()
        if name in sources and name not in UNKNOWN and field.kind.element is None
    ]
    key = next((name for name, field in fields.items() if _is_key(field)), None)
    if key is not None and key not in sources:
        source = next((name for name, field in sources.items() if _is_key(field)), None)
        if asked is None or source is not None:
            copied.append((key, source, _if_null(fields[key], version)))
    has_error = "error_code" in fields
    inner = None if has_error or asked is None else _mirror(asked, fields, version)
    unknown = _unknown(fields)
    return Element(struct, has_error, "error_message" in fields, unknown, copied, inner)


def _fields(struct: type[Struct], version: int) -> dict[str, Field]:
    return {field.name: field for field in fields_of(struct) if field.in_version(version)}


def _is_key(field: Field) -> bool:
    return field.kind.primitive in ("str", "int32") and field.name != "error_message"


def _if_null(field: Field, version: int) -> object:
    return None if field.nullable_in(version) else field.default


def _unknown(fields: dict[str, Field]) -> dict[str, object]:
    unknown: dict[str, object] = {name: -1 for name in fields if name in UNKNOWN}
    if "records" in fields:
        unknown["records"] = b""  # null records would be an error of their own
    return unknown


def _carries_errors(field: Field, version: int) -> bool:
    """Whether this is an array of elements with an error code, or of such arrays."""
    element = field.kind.element
    if element is None or element.struct is None:
        return False
    fields = _fields(element.struct, version)
    return "error_code" in fields or any(
        _carries_errors(inner, version) for inner in fields.values()
    )
