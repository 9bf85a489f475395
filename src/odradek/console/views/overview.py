"""What is wrong right now, and is it getting better?"""

from typing import Any, TypedDict

from starlette.requests import Request
from starlette.responses import Response

from odradek.console.console import Console
from odradek.console.lists import total
from odradek.console.problems import ProblemRow, problems_of
from odradek.console.routes import AT, Route
from odradek.console.views.brokers import broker_ids
from odradek.console.web import answer


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
    brokers: BrokersSummary
    topics: int
    partitions: int
    replicas: int
    offline: int
    under_replicated: int
    moves: int
    problems: list[ProblemRow]
    rates: Rates


def state(console: Console) -> dict[str, Any]:
    collector = console.collector
    alive = sorted(collector.brokers.nodes)
    ids = broker_ids(console)
    return {
        "at_ms": None,
        "known": True,
        "age_s": collector.age_s,
        "failure": collector.failure,
        "cluster_id": collector.brokers.cluster_id,
        "controller": collector.brokers.controller if alive else None,
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
        "moves": len(collector.moves),
        "problems": problems_of(console.collector),
        "rates": rates(console),
    }


def rates(console: Console) -> Rates:
    found = [each for each in console.collector.activity.brokers.values() if each is not None]
    produce = [each.produce_ms_p99 for each in found if each.produce_ms_p99 is not None]
    fetch = [each.fetch_ms_p99 for each in found if each.fetch_ms_p99 is not None]
    return {
        "records_in_per_s": total(each.records_in for each in found),
        "bytes_in_per_s": total(each.bytes_in for each in found),
        "bytes_out_per_s": total(each.bytes_out for each in found),
        "requests_per_s": total(each.requests for each in found),
        "produce_ms_p99": max(produce, default=None),
        "fetch_ms_p99": max(fetch, default=None),
    }


async def show(console: Console, request: Request) -> Response:
    return answer(request, state(console))


ROUTES = (
    Route("GET", "/overview", show, "What is wrong", parameters=(AT,), answer=OverviewAnswer),
)
