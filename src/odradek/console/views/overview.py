"""What is wrong right now, and is it getting better?"""

from typing import Any, TypedDict

from starlette.requests import Request
from starlette.responses import Response

from odradek.console.console import Console
from odradek.console.lists import total
from odradek.console.past import PastView
from odradek.console.problems import ProblemRow
from odradek.console.routes import AT, Route
from odradek.console.views.brokers import broker_ids, fetch_ms
from odradek.console.views.controller import moment_of
from odradek.console.web import answer

SPARK_SAMPLES = 60


class BrokersSummary(TypedDict):
    alive: list[int]
    down: list[int]
    total: int


class Rates(TypedDict):
    records_in_per_s: float | None
    bytes_in_per_s: float | None
    bytes_out_per_s: float | None
    requests_per_s: float | None
    produce_ms_p99: float | None
    fetch_ms_p99: float | None


class OverviewAnswer(TypedDict):
    at_ms: int | None
    known: bool
    age_s: float | None
    failure: str | None
    cluster_id: str | None
    controller: int | None
    controller_epoch: int | None
    controller_since_ms: int | None
    brokers: BrokersSummary
    topics: int
    partitions: int
    replicas: int
    offline: int
    under_replicated: int
    under_min_isr: int
    groups: int
    moves: int | None
    problems: list[ProblemRow]
    rates: Rates
    spark: dict[str, list[float]]


def state(console: Console) -> dict[str, Any]:
    collector = console.collector
    alive = sorted(collector.brokers.nodes)
    ids = broker_ids(console)
    now_s = console.now_ms() / 1000
    problems = console.problems()
    term = next(iter(console.journal.book.terms()), None)
    return {
        "at_ms": None,
        "known": True,
        "age_s": collector.age_s,
        "failure": collector.failure,
        "cluster_id": collector.brokers.cluster_id,
        "controller": collector.brokers.controller if alive else None,
        "controller_epoch": None if term is None else term["epoch"],
        "controller_since_ms": None if term is None else term["since_ms"],
        "brokers": {
            "alive": alive,
            "down": [id for id in ids if id not in alive],
            "total": len(ids),
        },
        "topics": len(collector.table.names),
        "partitions": len(collector.table),
        "replicas": collector.counts.replicas,
        "offline": collector.counts.offline,
        "under_replicated": collector.counts.under_replicated,
        "under_min_isr": sum(row["count"] for row in problems if row["kind"] == "under-min-isr"),
        "groups": len(console.group_lags.groups),
        "moves": None if collector.is_restricted else len(collector.moves),
        "problems": problems,
        "rates": rates(console),
        "spark": {
            name: console.charts.last(f"cluster.{name}", now_s, SPARK_SAMPLES)
            for name in ("bytes_in", "bytes_out", "requests")
        },
    }


def rates(console: Console) -> Rates:
    found = [each for each in console.collector.activity.brokers.values() if each is not None]
    produce = [each.produce_ms_p99 for each in found if each.produce_ms_p99 is not None]
    fetch = [ms for each in found if (ms := fetch_ms(each)) is not None]
    return {
        "records_in_per_s": total(each.records_in for each in found),
        "bytes_in_per_s": total(each.bytes_in for each in found),
        "bytes_out_per_s": total(each.bytes_out for each in found),
        "requests_per_s": total(each.requests for each in found),
        "produce_ms_p99": max(produce, default=None),
        "fetch_ms_p99": max(fetch, default=None),
    }


def past_state(console: Console, at_ms: int) -> dict[str, Any]:
    """What the journal shows of a moment. What it does not have is not known."""
    past = PastView(console.journal.book, console.collector.table, at_ms)
    alive = past.brokers()
    term = past.controller()
    existed, offline, under = past.counts()
    ids = broker_ids(console)
    return {
        **state(console),
        "at_ms": at_ms,
        "known": past.is_known,
        "controller": None if term is None else term[0],
        "controller_epoch": None if term is None else term[1],
        "controller_since_ms": None,
        "brokers": {
            "alive": alive or [],
            "down": [] if alive is None else [id for id in ids if id not in alive],
            "total": len(ids),
        },
        "partitions": existed,
        "offline": offline,
        "under_replicated": under,
        "problems": [],
        "rates": dict.fromkeys(Rates.__annotations__),
        "spark": {},
    }


async def show(console: Console, request: Request) -> Response:
    at_ms = moment_of(request)
    found = state(console) if at_ms is None else past_state(console, at_ms)
    return answer(request, found)


ROUTES = (
    Route("GET", "/overview", show, "What is wrong", parameters=(AT,), answer=OverviewAnswer),
)
