"""Every route answers what the description of it says."""

import types
import typing
from typing import Any

import pytest
from tests.broker.clusters import Cluster, until
from tests.console.consoles import Browser

from odradek.client import Producer
from odradek.console.console import Console
from odradek.console.views.table import ROUTES
from odradek.wire.topics import TopicPartition

pytestmark = pytest.mark.process

TOPIC = "orders"
GROUP = "../../etc?#%2e%2e"
# What the routes that need something are asked for.
QUERIES: dict[str, dict[str, Any]] = {
    "/topic": {"name": TOPIC},
    "/topic/offsets": {"name": TOPIC},
    "/topic/producers": {"name": TOPIC},
    "/broker": {"id": 1},
    "/group": {"id": GROUP},
    "/partition": {"topic": TOPIC, "p": 0},
    "/partition/history": {"topic": TOPIC, "p": 0},
    "/grid": {"topic": TOPIC},
    "/find": {"q": "o"},
    "/chart": {"series": "cluster.bytes_in"},
    "/records": {"topic": TOPIC},
    "/record": {"topic": TOPIC, "p": 0, "offset": 0},
    "/decoders": {"topic": TOPIC},
    "/filter": {"text": "$.a = 1"},
    "/configs": {"type": "topic", "name": TOPIC},
    "/pipeline": {"name": "clicks", "query": "events"},
}


def fault(value: Any, shape: Any, where: str) -> str | None:
    """Where a value is not of the shape that the description gives it; None if it is."""
    if shape is Any:
        return None
    origin, arguments = typing.get_origin(shape), typing.get_args(shape)
    if origin in (typing.Union, types.UnionType):
        faults = [fault(value, each, where) for each in arguments]
        return None if None in faults else faults[0]
    if origin is list:
        if not isinstance(value, list):
            return f"{where}: {value!r} is no list"
        found = (fault(each, arguments[0], f"{where}[{at}]") for at, each in enumerate(value))
        return next(filter(None, found), None)
    if origin is dict:
        if not isinstance(value, dict):
            return f"{where}: {value!r} is no object"
        found = (fault(each, arguments[1], f"{where}.{name}") for name, each in value.items())
        return next(filter(None, found), None)
    if typing.is_typeddict(shape):
        hints = typing.get_type_hints(shape)
        if not isinstance(value, dict) or shape.__required_keys__ - value.keys():
            return f"{where}: {value!r} lacks something of {sorted(hints)}"
        found = (
            fault(value[name], hint, f"{where}.{name}")
            for name, hint in hints.items()
            if name in value
        )
        return next(filter(None, found), None)
    is_right = isinstance(value, (int, float) if shape is float else shape)
    return None if is_right else f"{where}: {value!r} is no {shape}"


async def test_every_route_answers_as_it_is_described(
    brokers: Cluster, seen: tuple[Console, Browser]
) -> None:
    """CONSOLE acceptance 32, too: a group's id is a parameter, and never part of a path."""
    console, browser = seen
    await brokers.create_topic(TOPIC, partitions=2, replicas=2)
    await until(lambda: console.collector.table.leader(TOPIC, 1) >= 0)
    async with Producer(console.link.client) as producer:
        await producer.send(TOPIC, b'{"a": 1}', key=b"k", partition=0, headers=(("h", b"v"),))
    await console.link.api.groups.alter_offsets(GROUP, {TopicPartition(TOPIC, 0): 0})
    await console.group_lags.read_list()
    await console.group_lags.read([GROUP])
    console.pipelines.take("clicks/events", '{"batch": 1, "time_ms": 1, "lag": {"orders": 2}}')
    asked = set()
    for route in ROUTES:
        if route.method != "GET" or route.answer is None or "{id}" in route.path:
            continue
        asked.add(route.path)
        answer = await browser.ask("GET", f"/api/v1{route.path}", **QUERIES.get(route.path, {}))
        if answer.status == 409:  # users and ACLs: this cluster has none
            assert answer.json()["error"] == "SECURITY_DISABLED", route.path
            continue
        assert answer.status == 200, (route.path, answer.body[:300])
        assert fault(answer.json(), route.answer, route.path) is None
    assert QUERIES.keys() <= {route.path for route in ROUTES}
    assert len(asked) > 25
    described = await browser.get("/openapi.json")
    assert described["openapi"] == "3.1.0"
    assert {f"/api/v1{path}" for path in asked} <= described["paths"].keys()
