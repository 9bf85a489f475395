"""From an API key and version to the code that serves it.

Handlers are modules, imported when their API is first asked for, so that a broker that has just
started has loaded only what it uses.
"""

import logging
from collections.abc import Callable
from functools import partial
from importlib import import_module
from inspect import iscoroutinefunction
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from odradek.broker.authorization import BEFORE_CONTROLLER_CHECK, Permissions, authorized
from odradek.broker.handlers import HANDLERS, served_versions
from odradek.broker.histogram import Histogram
from odradek.broker.response_errors import error_finder
from odradek.security.acls import AclOperation, ResourceType
from odradek.wire.api import APIS, ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.header import RequestHeader
from odradek.wire.messages.fetch import FetchRequest, replica_id_of
from odradek.wire.refusal import refusal
from odradek.wire.reply import Exclusive, Now, Reply
from odradek.wire.schema import Buffer, Message

if TYPE_CHECKING:
    from odradek.broker.connection import ClientConnection
    from odradek.broker.server import Broker

logger = logging.getLogger(__name__)

__all__ = ["Answer", "RequestContext", "Route", "Routes", "refuse"]


# Requests that the controller sends, and that a broker must take before it serves any other.
CONTROL = frozenset({ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA})
# Requests between brokers (Kafka's CLUSTER_ACTION).
CLUSTER_ACTIONS = frozenset(
    {
        *CONTROL,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.ALTER_PARTITION,
        ApiKey.ALLOCATE_PRODUCER_IDS,
    }
)

# How many elements the arrays of a request may have: what it costs to serve one is paid by all
# clients, who wait meanwhile. A handler whose elements are dear has an ELEMENTS_MAX of its own.
ELEMENTS_MAX = 20_000
# The controller names every partition of a broker in one request.
CONTROL_ELEMENTS_MAX = 2_000_000


class RequestContext:
    """What a handler may know about a request beyond its message."""

    __slots__ = (
        "close_after",
        "connection",
        "header",
        "is_follower",
        "may_have_errors",
        "size_bytes",
        "started",
        "throttle_ms",
    )

    def __init__(
        self,
        header: RequestHeader,
        connection: "ClientConnection",
        size_bytes: int,
        started: float,
    ) -> None:
        self.header = header
        self.connection = connection
        self.size_bytes = size_bytes
        # Set by a handler that has no other way to tell its client of a failure (acks=0).
        self.close_after = False
        # Whether it replicates: its time is then counted apart from that of clients.
        self.is_follower = False
        # For how long the client is asked to be quiet, and is not listened to.
        self.throttle_ms = 0
        # In the loop's time, when the request began to be served.
        self.started = started
        # A handler of many requests says False where it knows, and spares the search for them.
        self.may_have_errors = True

    @property
    def may(self) -> Permissions:
        """What the client that sent the request is allowed to do."""
        return self.connection.permissions

    @property
    def user(self) -> str:
        """Whose quotas count for it."""
        return self.connection.permissions.principal.name

    @property
    def version(self) -> int:
        return self.header.api_version

    @property
    def sender(self) -> str:
        """For the log: the address and what the client calls itself."""
        return f"{self.connection.peer} (client id {self.client_id!r})"

    @property
    def client_id(self) -> str:
        return self.header.client_id or ""


# The reply of a handler; None is no response at all (acks=0).
Answer: TypeAlias = Reply[Message | None]


class Route:
    """One version of one API, with its decoder and its handler."""

    __slots__ = (
        "busy_s",
        "controller_only",
        "count",
        "decode",
        "errors",
        "follower_busy_s",
        "handle",
        "key",
        "module",
        "name",
        "response",
        "times",
        "version",
    )

    def __init__(self, key: ApiKey, version: int) -> None:
        api = APIS[key]
        self.key: int = key
        self.name = api.name
        self.version = version
        self.response: type[Message] = api.response
        self.module: ModuleType = import_module(f"odradek.broker.handlers.{HANDLERS[key]}")
        self.handle: Callable[..., Answer] = _as_reply(self.module.handle)
        self.controller_only: bool = getattr(self.module, "CONTROLLER_ONLY", False)
        request: type[Message] = api.request
        default = CONTROL_ELEMENTS_MAX if key in CONTROL else ELEMENTS_MAX
        elements_max: int = getattr(self.module, "ELEMENTS_MAX", default)
        self.decode: Callable[[Buffer], Any] = partial(
            request.decode, version=version, elements_max=elements_max
        )
        self.count = 0
        self.times = Histogram()
        self.errors: dict[int, int] = {}
        # What the loop worked on requests, without the time that they waited.
        self.busy_s = 0.0
        self.follower_busy_s = 0.0

    def worked(self, context: RequestContext, seconds: float) -> None:
        if context.is_follower:
            self.follower_busy_s += seconds
        else:
            self.busy_s += seconds

    def answered(
        self, answer: Message | None, context: RequestContext, resumed: float, now: float
    ) -> None:
        """Counts a request that has been served: its time, the part of it since the work on it was
        resumed, and the errors in its response."""
        self.times.add(now - context.started)
        self.worked(context, now - resumed)
        if answer is not None and context.may_have_errors:
            for code in error_finder(ApiKey(self.key))(answer):
                self.errors[code] = self.errors.get(code, 0) + 1


def _as_reply(handle: Callable[..., Any]) -> Callable[..., Answer]:
    """A handler in one of the three forms CONTRIBUTING names, as one that returns a Reply."""
    if iscoroutinefunction(handle):
        return lambda broker, request, context: Exclusive(handle(broker, request, context))

    def reply(broker: "Broker", request: Message, context: RequestContext) -> Answer:
        found = handle(broker, request, context)
        # Nearly all are messages, and asking an abstract class costs ten times as much.
        return Now(found) if found is None or isinstance(found, Message) else found

    return reply


def _is_exempt(route: Route, request: Message, context: RequestContext) -> bool:
    """Whether no client is charged for the time a request takes: those of other brokers, and those
    that get no answer (KIP-124)."""
    if getattr(request, "acks", -1) == 0:
        return True
    replica_id = getattr(request, "replica_id", -1)
    if isinstance(request, FetchRequest):
        replica_id = replica_id_of(request)
    if route.key not in CLUSTER_ACTIONS and replica_id < 0:
        return False
    return context.may.allows(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)


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

    def serve(self, route: Route, request: Any, context: RequestContext) -> Answer:
        """Raises KafkaError if this request is not to be served."""
        broker = self.broker
        if route.key in CLUSTER_ACTIONS:
            self._check_listener(context)
        if route.key in CONTROL:
            # Before the store is asked about it: a client without permission costs it nothing.
            refused = context.may.check(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
            if refused is not None:
                raise refused
        if route.key in CONTROL and not broker.control.is_known(request, broker.epoch):
            return Exclusive(self._serve_checked(route, request, context))
        if broker.quotas.limit_time and not _is_exempt(route, request, context):
            return broker.quotas.timed(lambda: self._serve(route, request, context), context)
        return self._serve(route, request, context)

    def _check_listener(self, context: RequestContext) -> None:
        self.broker.control.check_listener(
            context.connection.listener, self.broker.connections.broker_listeners, context.sender
        )

    def _serve(self, route: Route, request: Message, context: RequestContext) -> Answer:
        """The rules that hold before any handler runs, and then the handler."""
        broker = self.broker
        if broker.authorizer is None:
            if route.controller_only:
                self._require_controller(route)
            return route.handle(broker, request, context)

        def handle() -> Answer:
            self._require_controller(route)
            return route.handle(broker, request, context)

        if route.key not in BEFORE_CONTROLLER_CHECK:
            self._require_controller(route)
        return authorized(route, request, context.may, handle)

    def _require_controller(self, route: Route) -> None:
        if route.controller_only and not self.broker.controller.is_active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)

    async def _serve_checked(
        self, route: Route, request: Any, context: RequestContext
    ) -> Message | None:
        """A control request of a controller, or for a registration, that is new to this broker."""
        await self.broker.control.check(request, self.broker.id, context.sender)
        logger.info(
            "controller %d at epoch %d sends %s from %s",
            request.controller_id,
            request.controller_epoch,
            route.name,
            context.sender,
        )
        return await self._serve(route, request, context).result()

    def used(self) -> list[Route]:
        """The routes that have been asked for."""
        return list(self._routes.values())

    def statistics(self) -> dict[str, int]:
        """Requests so far, by API."""
        counts: dict[str, int] = {}
        for route in self._routes.values():
            counts[route.name] = counts.get(route.name, 0) + route.count
        return counts


def refuse(
    route: Route, request: Message, context: RequestContext, error: KafkaError
) -> Message | None:
    """The response that carries `error` for the whole request; None where there is no place for it.

    It is made from the schemas, unless the handler has a `refuse` of its own.
    """
    if getattr(request, "acks", None) == 0:
        return None
    own = getattr(route.module, "refuse", None)
    if own is not None:
        response: Message | None = own(request, error, context)
        return response
    return refusal(request, route.response, route.version, error)
