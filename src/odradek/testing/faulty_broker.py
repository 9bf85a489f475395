"""A broker whose requests can be made to fail, wait or lose their answers (`faults.py`).

Only a broker with `odradek.faults.enable` is one. It wraps every route; any other broker never
loads this module.
"""

import asyncio
import json
from collections import deque
from dataclasses import asdict
from typing import Any

from odradek.broker.histogram import Histogram
from odradek.broker.routes import Answer, RequestContext, Route, Routes, refuse
from odradek.broker.server import Broker
from odradek.testing.faults import (
    FAULTS_KEY,
    Fault,
    FaultsRequest,
    FaultsResponse,
    LoggedRequest,
)
from odradek.wire.api import APIS
from odradek.wire.errors import DecodeError, ErrorCode, KafkaError
from odradek.wire.reply import Reply
from odradek.wire.schema import Message

__all__ = ["FaultyBroker", "FaultyRoutes"]

LOGGED_MAX = 100_000


class FaultyRoutes(Routes):
    """Routes that first look whether a fault is due."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.faults: list[Fault] = []
        self.log: deque[LoggedRequest] = deque(maxlen=LOGGED_MAX)
        self._requests = 0
        self._wrapped: set[Route] = set()
        self._control = _ControlRoute(self)

    def find(self, key: int, version: int) -> Route | None:
        if key == FAULTS_KEY:
            return self._control
        route = super().find(key, version)
        if route is not None and route not in self._wrapped:
            self._wrapped.add(route)
            self._wrap(route)
        return route

    def _wrap(self, route: Route) -> None:
        carry_out = route.handle

        def handle(broker: Broker, request: Message, context: RequestContext) -> Answer:
            fault = self._due(route, request, context)
            self._note(route, request, context, fault)
            if fault is None:
                return carry_out(broker, request, context)
            if fault.error:
                error = KafkaError(ErrorCode[fault.error], "a fault was injected")
                answer = refuse(route, request, context, error)
                if answer is None:
                    context.connection.close()
                return Reply.now(answer)
            return Reply.exclusive(_late(carry_out(broker, request, context), fault, context))

        route.handle = handle

    def _due(self, route: Route, request: Message, context: RequestContext) -> Fault | None:
        for fault in self.faults:
            if fault.strikes(route.name, request, context.client_id):
                fault.times -= 1
                if fault.times <= 0:
                    self.faults.remove(fault)
                return fault
        return None

    def _note(
        self, route: Route, request: Message, context: RequestContext, fault: Fault | None
    ) -> None:
        kind = ""
        if fault is not None:
            kind = "error" if fault.error else "drop" if fault.drop else "delay"
        self._requests += 1
        self.log.append(
            LoggedRequest(
                self._requests,
                self.broker.id,
                route.name,
                route.version,
                context.client_id,
                _topics(request),
                kind,
            )
        )

    def obey(self, command: dict[str, Any]) -> object:
        """What a test asks for. Raises ValueError or TypeError for what makes no sense."""
        match command.pop("do"):
            case "inject":
                fault = Fault(**command)
                if fault.api not in {api.name for api in APIS.values()}:
                    raise ValueError(f"no API is called {fault.api!r}")
                if fault.error and fault.error not in ErrorCode.__members__:
                    raise ValueError(f"no error is called {fault.error!r}")
                self.faults.append(fault)
                return None
            case "clear":
                self.faults.clear()
                return None
            case "log":
                after = command["after"]
                return [asdict(entry) for entry in self.log if entry.number > after]
            case other:
                raise ValueError(f"no such command: {other!r}")


class FaultyBroker(Broker):
    """A broker whose requests can be made to fail."""

    def make_routes(self) -> Routes:
        return FaultyRoutes(self)


class _ControlRoute(Route):
    """The one route that no Kafka client knows."""

    __slots__ = ("_routes",)

    def __init__(self, routes: FaultyRoutes) -> None:
        self.key, self.name, self.version, self.count = FAULTS_KEY, "Faults", 0, 0
        self.times, self.errors = Histogram(), {}
        self.controller_only = False
        self.response = FaultsResponse
        self.decode = self._decode
        self.handle = self._handle
        self._routes = routes

    def answered(
        self, answer: Message | None, context: RequestContext, resumed: float, now: float
    ) -> None:
        """Not counted: no metric is about this route."""

    @staticmethod
    def _decode(data: Any) -> dict[str, Any]:
        try:
            command = json.loads(FaultsRequest.decode(data, 0).command)
        except ValueError as error:
            raise DecodeError(f"a command that is no JSON: {error}") from error
        if not isinstance(command, dict) or "do" not in command:
            raise DecodeError("a command that says nothing to do")
        return command

    def _handle(self, broker: Broker, command: dict[str, Any], context: RequestContext) -> Answer:
        try:
            answer = {"answer": self._routes.obey(command)}
        except (ValueError, TypeError, KeyError) as error:
            answer = {"error": str(error)}
        return Reply.now(FaultsResponse(answer=json.dumps(answer).encode()))


async def _late(answer: Answer, fault: Fault, context: RequestContext) -> Message | None:
    """The answer, when it is due."""
    result = await answer.result()
    if fault.delay_s:
        await asyncio.sleep(fault.delay_s)
    if fault.drop:
        context.connection.close()
        return None
    return result


def _topics(request: Message) -> tuple[str, ...]:
    """The topics a request names, wherever it keeps them."""
    found = getattr(request, "topics", None) or getattr(request, "topic_data", None) or ()
    names = (item if isinstance(item, str) else _name(item) for item in found)
    return tuple(name for name in names if name)


def _name(item: object) -> str:
    name = getattr(item, "name", None) or getattr(item, "topic", None) or ""
    return name if isinstance(name, str) else ""
