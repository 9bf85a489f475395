"""From an API key and version to the code that serves it.

Handlers are modules, imported when their API is first asked for, so that a broker that has just
started has loaded only what it uses.
"""

import asyncio
from collections.abc import Callable, Coroutine
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from odradek.broker.handlers import HANDLERS, served_versions
from odradek.wire.api import APIS, ApiKey
from odradek.wire.errors import KafkaError
from odradek.wire.header import RequestHeader
from odradek.wire.schema import Buffer, Message

if TYPE_CHECKING:
    from odradek.broker.connection import ClientConnection
    from odradek.broker.server import Broker

__all__ = ["Answer", "RequestContext", "Route", "Routes", "Waiting", "refusal"]


class RequestContext:
    """What a handler may know about a request beyond its message."""

    __slots__ = ("close_after", "connection", "header", "size_bytes", "throttle_ms")

    def __init__(
        self, header: RequestHeader, connection: "ClientConnection", size_bytes: int
    ) -> None:
        self.header = header
        self.connection = connection
        self.size_bytes = size_bytes
        # Set by a handler that has no other way to tell its client of a failure (acks=0).
        self.close_after = False
        # For how long the client is asked to be quiet, and is not listened to.
        self.throttle_ms = 0

    @property
    def version(self) -> int:
        return self.header.api_version

    @property
    def client_id(self) -> str:
        return self.header.client_id or ""


class Waiting:
    """An answer that has to be waited for, while the requests behind this one may start.

    `finish` makes the response of the future's result; `abandon` is called if the client goes away
    before that. `bytes_max` is how large the response may get.
    """

    __slots__ = ("abandon", "bytes_max", "finish", "future")

    def __init__(
        self,
        future: "asyncio.Future[Any]",
        finish: Callable[[Any], Message | None],
        abandon: Callable[[], None] | None = None,
        bytes_max: int = 0,
    ) -> None:
        self.future = future
        self.bytes_max = bytes_max
        self.finish = finish
        self.abandon = abandon


Answer: TypeAlias = Message | Waiting | Coroutine[Any, Any, Message | None] | None


class Route:
    """One version of one API, with its decoder and its handler."""

    __slots__ = ("count", "decode", "handle", "key", "module", "name", "response", "version")

    def __init__(self, key: ApiKey, version: int) -> None:
        api = APIS[key]
        self.key: int = key
        self.name = api.name
        self.version = version
        self.response: type[Message] = api.response
        self.module: ModuleType = import_module(f"odradek.broker.handlers.{HANDLERS[key]}")
        self.handle: Callable[..., Answer] = self.module.handle
        request: type[Message] = api.request
        self.decode: Callable[[Buffer], Any] = lambda data: request.decode(data, version)
        self.count = 0


class Routes:
    """All the routes of one broker, each made when it is first needed."""

    def __init__(self, broker: "Broker") -> None:
        self.broker = broker
        self._routes: dict[tuple[int, int], Route] = {}

    def find(self, key: int, version: int) -> Route | None:
        """The route, or None if we do not serve this API in this version."""
        route = self._routes.get((key, version))
        if route is None:
            if key not in HANDLERS or version not in served_versions(ApiKey(key)):
                return None
            route = self._routes[key, version] = Route(ApiKey(key), version)
        route.count += 1
        return route

    def statistics(self) -> dict[str, int]:
        """Requests so far, by API."""
        counts: dict[str, int] = {}
        for route in self._routes.values():
            counts[route.name] = counts.get(route.name, 0) + route.count
        return counts


def refusal(
    route: Route, request: Message, context: RequestContext, error: KafkaError
) -> Message | None:
    """The answer that carries `error` for the whole request, where this version of the API has a
    place for one: an answer without it would be a success with nothing in it.

    A handler whose response has no error code of its own says with `refuse` where it goes.
    """
    refuse = getattr(route.module, "refuse", None)
    if refuse is not None:
        answer: Message | None = refuse(request, error, context)
        return answer
    fields = route.response.FIELDS
    place = fields.get("error_code")
    if place is None or not place.first <= route.version <= place.last:
        return None
    response = route.response(error_code=int(error.error))
    if "error_message" in fields:
        response.error_message = error.message or None  # type: ignore[attr-defined]  # in FIELDS
    return response
