"""Changes: plan, then start. Moves that are under way, and who did what."""

from typing import Any, TypedDict

from starlette.requests import Request
from starlette.responses import Response

from odradek.console.access import account_of, address_of
from odradek.console.accounts import Right
from odradek.console.console import Console
from odradek.console.lists import page
from odradek.console.routes import LIST_PARAMETERS, Route
from odradek.console.web import answer, body_of, problem_of
from odradek.wire.errors import ErrorCode, KafkaError


class ChangeRow(TypedDict):
    subject: str
    before: str
    after: str
    note: str


class OutcomeAnswer(TypedDict):
    subject: str
    error: str | None
    message: str


class PlanAnswer(TypedDict):
    id: str
    kind: str
    title: str
    fingerprint: str
    made_ms: int
    expires_ms: int
    state: str
    changes: list[ChangeRow]
    changes_total: int
    warnings: list[str]
    blockers: list[str]
    confirm: str | None
    details: dict[str, Any]
    outcomes: list[OutcomeAnswer]


class MovesAnswer(TypedDict):
    items: list[dict[str, Any]]
    total: int
    done_bytes: int
    total_bytes: int
    percent: float
    bytes_per_s: float | None
    left_s: float | None
    throttle_bytes_per_s: int | None
    brokers: list[dict[str, Any]]


class AuditRow(TypedDict):
    time_ms: int
    user: str
    address: str
    action: str
    subject: str
    before: str
    after: str
    outcome: str


class AuditAnswer(TypedDict):
    items: list[AuditRow]
    total: int
    matched: int
    next: str | None


async def make(console: Console, request: Request) -> Response:
    plan = await console.plans.make(await body_of(request), account_of(request))
    return answer(request, plan.answer())


async def show(console: Console, request: Request) -> Response:
    plan = console.plans.get(request.path_params["id"], account_of(request))
    return answer(request, plan.answer())


async def start(console: Console, request: Request) -> Response:
    account = account_of(request)
    body = await body_of(request)
    plan = console.plans.get(request.path_params["id"], account)
    await console.plans.start(plan, body, account, address_of(request))
    return answer(request, plan.answer())


async def list_moves(console: Console, request: Request) -> Response:
    if console.collector.is_restricted:
        raise problem_of(KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "moves under way"))
    return answer(request, console.moves.answer())


async def list_audit(console: Console, request: Request) -> Response:
    lines = list(console.audit.lines)[::-1]
    shown, rest = page(
        request,
        lines,
        text=lambda line: f"{line.user} {line.action} {line.subject}",
        columns={"time_ms": lambda line: line.time_ms},
        default="time_ms",
    )
    items = [{name: getattr(line, name) for name in AuditRow.__annotations__} for line in shown]
    return answer(request, {"items": items, **rest})


ROUTES = (
    Route(
        "POST",
        "/plans",
        make,
        "Check and preview a change",
        Right.OPERATE,
        changes=True,
        answer=PlanAnswer,
    ),
    Route("GET", "/plans/{id}", show, "A plan", Right.OPERATE, changes=True, answer=PlanAnswer),
    Route(
        "POST",
        "/plans/{id}/start",
        start,
        "Carry a plan out",
        Right.OPERATE,
        changes=True,
        answer=PlanAnswer,
    ),
    Route("GET", "/moves", list_moves, "Partitions on the move", answer=MovesAnswer),
    Route(
        "GET",
        "/audit",
        list_audit,
        "Who did what",
        Right.OPERATE,
        LIST_PARAMETERS,
        answer=AuditAnswer,
    ),
)
