"""The error codes that a response carries, found by its schema.

At most two arrays deep: topics and their partitions. Responses that name every partition of a
cluster are looked at less deeply: what that costs is paid by all clients.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeAlias

from odradek.wire.api import APIS, ApiKey
from odradek.wire.schema import Struct, fields_of

__all__ = ["error_finder"]

Finder: TypeAlias = Callable[[Any], Iterator[int]]
DEPTH_MAX = 2
DEPTHS = {ApiKey.METADATA: 1, ApiKey.LEADER_AND_ISR: 0, ApiKey.STOP_REPLICA: 0}


@cache
def error_finder(key: ApiKey) -> Finder:
    """A function from a response of this API to the codes in it that are not 0."""
    return _finder(APIS[key].response, DEPTHS.get(key, DEPTH_MAX))


def _finder(struct: type[Struct], depth: int) -> Finder:
    has_code = "error_code" in struct.FIELDS
    arrays: list[tuple[str, Finder]] = []
    if depth > 0:
        for field in fields_of(struct):
            element = field.kind.element
            if element is not None and element.struct is not None:
                arrays.append((field.name, _finder(element.struct, depth - 1)))

    def find(response: Any) -> Iterator[int]:
        if has_code and response.error_code:
            yield response.error_code
        for name, finder in arrays:
            for element in getattr(response, name) or ():
                yield from finder(element)

    return find
