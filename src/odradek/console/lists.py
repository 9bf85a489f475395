"""Lists in pages: searched, sorted and divided on the server."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from starlette.requests import Request

from odradek.console.web import Problem, number_parameter

LIMIT, LIMIT_MAX = 100, 500
OFFSET_MAX = 10_000_000

T = TypeVar("T")


def page(
    request: Request,
    items: Sequence[T],
    *,
    text: Callable[[T], str],
    columns: Mapping[str, Callable[[T], Any]],
    default: str,
) -> tuple[list[T], dict[str, Any]]:
    """The items of the page that is asked for, and the rest of the list answer. A cursor is the
    number of rows before it: rows that come or go meanwhile shift it, and nothing worse."""
    query = request.query_params.get("q", "").lower()
    found = [item for item in items if query in text(item).lower()] if query else list(items)
    name = request.query_params.get("sort", default)
    descending = name.startswith("-")
    key = columns.get(name.removeprefix("-"))
    if key is None:
        raise Problem(
            422, f"there is no column {name!r}; there are {', '.join(columns)}", field="sort"
        )
    if name != default:
        found.sort(key=lambda item: _order(key(item)), reverse=descending)
    limit = number_parameter(request, "limit", LIMIT, 1, LIMIT_MAX)
    start = number_parameter(
        request, "after" if "after" in request.query_params else "offset", 0, 0, OFFSET_MAX
    )
    end = start + limit
    rest = {
        "total": len(items),
        "matched": len(found),
        "next": str(end) if end < len(found) else None,
    }
    return found[start:end], rest


def _order(value: Any) -> tuple[bool, Any]:
    """What is not known comes first, so that descending it is last."""
    return (value is not None, 0 if value is None else value)


def total(values: Iterable[float | None]) -> float | None:
    """A sum; None if nothing is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None
