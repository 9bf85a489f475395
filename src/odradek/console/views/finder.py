"""Searching everything by name, and figures over time."""

from typing import TypedDict

from starlette.requests import Request
from starlette.responses import Response

from odradek.console.charts import SAMPLES, SPANS
from odradek.console.console import Console
from odradek.console.routes import Parameter, Route
from odradek.console.views.brokers import broker_ids
from odradek.console.web import Problem, answer, required_parameter
from odradek.wire.settings import TOPIC_SETTINGS

FOUND_MAX = 20
SERIES_MAX = 40


class FindAnswer(TypedDict):
    topics: list[str]
    groups: list[str]
    brokers: list[int]
    settings: list[str]
    pipelines: list[str]


class ChartAnswer(TypedDict):
    step_s: int
    from_ms: int
    series: dict[str, list[float | None]]


def _first(names: list[str], query: str) -> list[str]:
    """Those that begin with it, then those that have it."""
    having = [name for name in names if query in name.lower()]
    having.sort(key=lambda name: (not name.lower().startswith(query), len(name), name))
    return having[:FOUND_MAX]


async def find(console: Console, request: Request) -> Response:
    query = required_parameter(request, "q").lower()
    collector = console.collector
    pipelines = [f"{each.pipeline}/{each.name}" for each in console.pipelines.queries.values()]
    number = query.removeprefix("broker").strip()
    return answer(
        request,
        {
            "topics": _first(collector.table.names, query),
            "groups": _first(list(console.group_lags.groups), query),
            "brokers": [id for id in broker_ids(console) if number and str(id) == number],
            "settings": _first(list(TOPIC_SETTINGS), query),
            "pipelines": _first(pipelines, query),
        },
    )


async def chart(console: Console, request: Request) -> Response:
    span = request.query_params.get("span", "2h")
    if span not in SPANS:
        raise Problem(422, "span is 2h or 24h", field="span")
    names = request.query_params.getlist("series")
    if not 0 < len(names) <= SERIES_MAX:
        raise Problem(422, f"1 to {SERIES_MAX} series", field="series")
    step_s, now_ms = SPANS[span], console.now_ms()
    return answer(
        request,
        {
            "step_s": step_s,
            "from_ms": now_ms - step_s * 1000 * SAMPLES,
            "series": {name: console.charts.until(name, now_ms / 1000, step_s) for name in names},
        },
    )


ROUTES = (
    Route(
        "GET",
        "/find",
        find,
        "Search everything by name",
        answer=FindAnswer,
        parameters=(Parameter("q", "a part of a name", True),),
    ),
    Route(
        "GET",
        "/chart",
        chart,
        "Figures over time",
        answer=ChartAnswer,
        parameters=(Parameter("series", "repeatable", True), Parameter("span", "2h or 24h")),
    ),
)
