"""Spark pipelines, and the records they could not use."""

from typing import Any, TypedDict

from starlette.requests import Request
from starlette.responses import Response

from odradek.console.access import account_of
from odradek.console.console import Console
from odradek.console.routes import Parameter, Route
from odradek.console.web import Problem, answer, required_parameter

DEAD_LETTERS_SHOWN = 50


class PipelinesAnswer(TypedDict):
    items: list[dict[str, Any]]
    topic_exists: bool


class PipelineAnswer(TypedDict):
    pipeline: str
    query: str
    state: str
    batch: int
    batches: list[dict[str, int]]
    dead_letter_records: list[dict[str, Any]]


def state(console: Console) -> dict[str, Any]:
    now = console.now_ms()
    queries = sorted(
        console.pipelines.queries.values(), key=lambda each: (each.pipeline, each.name)
    )
    return {
        "items": [query.row(now) for query in queries],
        "topic_exists": console.pipelines.topic_exists,
    }


async def list_pipelines(console: Console, request: Request) -> Response:
    return answer(request, state(console))


async def show_pipeline(console: Console, request: Request) -> Response:
    place = (required_parameter(request, "name"), required_parameter(request, "query"))
    query = console.pipelines.queries.get(place)
    if query is None:
        raise Problem(404, f"there is no query {place[1]!r} of a pipeline {place[0]!r}")
    found = query.answer(console.now_ms())
    return answer(
        request, {**found, "dead_letter_records": await _letters(console, request, found)}
    )


async def _letters(
    console: Console, request: Request, found: dict[str, Any]
) -> list[dict[str, Any]]:
    topic = found["dead_letter_topic"]
    if topic is None or console.collector.table.find(topic) is None:
        return []
    if not account_of(request).may_read(topic):
        return []
    job = {
        "job": "records",
        "topic": topic,
        "partitions": [],
        "from": "newest",
        "at": {},
        "direction": "back",
        "limit": DEAD_LETTERS_SHOWN,
    }
    records: list[dict[str, Any]] = (await console.workers.ask(job))["items"]
    return records


ROUTES = (
    Route("GET", "/pipelines", list_pipelines, "Pipelines", answer=PipelinesAnswer),
    Route(
        "GET",
        "/pipeline",
        show_pipeline,
        "One query of a pipeline",
        answer=PipelineAnswer,
        parameters=(Parameter("name", "the pipeline", True), Parameter("query", "it", True)),
    ),
)
