"""Drills, and what they found."""

from typing import Any, TypedDict

from starlette.requests import Request
from starlette.responses import Response

from odradek.console.console import Console
from odradek.console.routes import Route
from odradek.console.web import Problem, answer


class StepRow(TypedDict):
    at_ms: float
    what: str
    source: str


class DrillAnswer(TypedDict):
    id: str
    action: str
    broker: int
    seconds: float
    state: str
    error: str | None
    started_ms: int
    timeline: list[StepRow]
    writes: dict[str, Any]
    reads: dict[str, Any]


class DrillsAnswer(TypedDict):
    items: list[DrillAnswer]


def state(console: Console, id: str) -> dict[str, Any]:
    drill = None if console.drills is None else console.drills.find(id)
    if drill is None:
        raise Problem(404, f"there is no drill {id!r}")
    return drill.answer()


async def list_drills(console: Console, request: Request) -> Response:
    drills = () if console.drills is None else console.drills.drills
    return answer(request, {"items": [drill.answer() for drill in drills]})


async def show_drill(console: Console, request: Request) -> Response:
    return answer(request, state(console, request.path_params["id"]))


ROUTES = (
    Route("GET", "/drills", list_drills, "Drills, the latest first", answer=DrillsAnswer),
    Route("GET", "/drills/{id}", show_drill, "One drill", answer=DrillAnswer),
)
