"""The table of routes: what the application serves and what OpenAPI describes are made from it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from odradek.console.accounts import Right
from odradek.console.console import Console

Handler = Callable[[Console, Request], Awaitable[Response]]


class Parameter(NamedTuple):
    """A query parameter."""

    name: str
    about: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """One method on one path below /api/v1."""

    method: str
    path: str
    handler: Handler
    summary: str
    right: Right = Right.READ
    parameters: tuple[Parameter, ...] = ()
    # Whether it changes the cluster: such a route does not exist with --read-only.
    changes: bool = False
    # The answer's shape, a TypedDict; None for a stream or a download.
    answer: Any = None


LIST_PARAMETERS = (
    Parameter("q", "a part of the name, upper or lower case"),
    Parameter("sort", "a column; - before it for descending"),
    Parameter("limit", "1 to 500, 100 by default"),
    Parameter("after", "the `next` of the page before"),
    Parameter("offset", "how many rows to leave out"),
)
AT = Parameter("at", "a moment, ISO 8601 or ms: the state that the journal shows for it")
