"""Brokers: what each leads, holds and does."""

from typing import Any, TypedDict

from starlette.requests import Request
from starlette.responses import Response

from odradek.console.console import Console
from odradek.console.past import PastView
from odradek.console.routes import AT, Parameter, Route
from odradek.console.views.controller import moment_of
from odradek.console.web import Problem, answer, number_parameter
from odradek.operations.activity import BrokerActivity

INT32_MAX = 2**31 - 1


class DirectoryRow(TypedDict):
    path: str
    error: str | None
    total_bytes: int | None
    usable_bytes: int | None
    size_bytes: int
    replicas: int


class BrokerRow(TypedDict):
    id: int
    host: str | None
    port: int | None
    rack: str | None
    state: str
    leads: int
    holds: int
    in_sync: int
    size_bytes: int | None
    bytes_in_per_s: float | None
    bytes_out_per_s: float | None
    records_in_per_s: float | None
    requests_per_s: float | None
    errors_per_s: float | None
    busy: float | None
    produce_ms_p99: float | None
    fetch_ms_p99: float | None
    loop_lag_ms_p99: float | None
    disk_free: float | None
    disk_total_bytes: int | None
    http: bool
    directories: list[DirectoryRow]


class BrokersAnswer(TypedDict):
    items: list[BrokerRow]
    total: int
    matched: int
    next: str | None
    age_s: float | None
    at_ms: int | None


def row(console: Console, id: int) -> BrokerRow:
    collector = console.collector
    node = collector.brokers.nodes.get(id)
    remembered = node or collector.known.get(id)
    counts = collector.counts.of_broker(id)
    state = "down" if node is None else "alive"
    if node is not None and id == collector.brokers.controller:
        state = "controller"
    activity = collector.activity.brokers.get(id) if node is not None else None
    directories: list[DirectoryRow] = [
        {
            "path": each.path,
            "error": each.error,
            "total_bytes": _known(each.total_bytes),
            "usable_bytes": _known(each.usable_bytes),
            "size_bytes": each.size_bytes,
            "replicas": each.replica_count,
        }
        for each in collector.directories.get(id, ())
    ]
    totals = [each["total_bytes"] for each in directories if each["total_bytes"]]
    usable = [each["usable_bytes"] for each in directories if each["usable_bytes"] is not None]
    return {
        "id": id,
        "host": None if remembered is None else remembered.host,
        "port": None if remembered is None else remembered.port,
        "rack": None if remembered is None else remembered.rack,
        "state": state,
        "leads": counts.leads,
        "holds": counts.holds,
        "in_sync": counts.in_sync,
        "size_bytes": sum(each["size_bytes"] for each in directories) if directories else None,
        "bytes_in_per_s": None if activity is None else activity.bytes_in,
        "bytes_out_per_s": None if activity is None else activity.bytes_out,
        "records_in_per_s": None if activity is None else activity.records_in,
        "requests_per_s": None if activity is None else activity.requests,
        "errors_per_s": None if activity is None else activity.errors,
        "busy": collector.busy.get(id) if node is not None else None,
        "produce_ms_p99": None if activity is None else activity.produce_ms_p99,
        "fetch_ms_p99": fetch_ms(activity),
        "loop_lag_ms_p99": None if activity is None else activity.loop_lag_ms_p99,
        "disk_free": min(usable) / max(totals) if totals and usable else None,
        "disk_total_bytes": max(totals) if totals else None,
        "http": id in console.link.http(),
        "directories": directories,
    }


def fetch_ms(activity: BrokerActivity | None) -> float | None:
    """None if no client has got anything: what is measured then is how long they wait for it."""
    if activity is None or not activity.bytes_out:
        return None
    return activity.fetch_ms_p99


def _known(count: int) -> int | None:
    return count if count >= 0 else None


def broker_ids(console: Console) -> list[int]:
    """Those that live, those that lived, and those that hold replicas."""
    collector = console.collector
    return sorted({*collector.known, *collector.counts.brokers})


def state(console: Console) -> dict[str, Any]:
    items = [row(console, id) for id in broker_ids(console)]
    return {
        "items": items,
        "total": len(items),
        "matched": len(items),
        "next": None,
        "age_s": console.collector.age_s,
        "at_ms": None,
    }


async def list_brokers(console: Console, request: Request) -> Response:
    found, at_ms = state(console), moment_of(request)
    if at_ms is not None:
        past = PastView(console.journal.book, console.collector.table, at_ms)
        alive, term = past.brokers(), past.controller()
        for each in found["items"]:
            is_controller = term is not None and term[0] == each["id"]
            each["state"] = "controller" if is_controller else "alive"
            if alive is None:
                each["state"] = "not known"
            elif each["id"] not in alive:
                each["state"] = "down"
        found["at_ms"] = at_ms
    return answer(request, found)


async def show_broker(console: Console, request: Request) -> Response:
    id = number_parameter(request, "id", -1, 0, INT32_MAX)
    if id not in broker_ids(console):
        raise Problem(404, f"there is no broker {id}", error="BROKER_NOT_AVAILABLE")
    return answer(request, row(console, id))


ROUTES = (
    Route("GET", "/brokers", list_brokers, "All brokers", parameters=(AT,), answer=BrokersAnswer),
    Route(
        "GET",
        "/broker",
        show_broker,
        "One broker",
        parameters=(Parameter("id", "its id", True),),
        answer=BrokerRow,
    ),
)
