"""Logging in and out, and what the user of this session may do."""

from typing import TypedDict

from starlette.requests import Request
from starlette.responses import Response

from odradek import __version__
from odradek.console.access import Session, address_of
from odradek.console.accounts import Right
from odradek.console.console import Console
from odradek.console.routes import Route
from odradek.console.web import Problem, answer, body_of


class ClusterName(TypedDict):
    name: str
    id: str | None
    bootstrap: str


class Features(TypedDict):
    journal: bool
    drills: bool
    metrics: bool
    security: bool


class SessionAnswer(TypedDict):
    user: str
    role: str
    login: str
    read_only: bool
    can: list[str]
    cluster: ClusterName
    features: Features
    version: str


def describe(console: Console, session: Session) -> SessionAnswer:
    has_http = bool(console.link.http())
    return {
        "user": session.account.name,
        "role": session.account.role,
        "login": session.login,
        "read_only": console.options.read_only,
        "can": session.account.rights(),
        "cluster": {
            "name": console.options.cluster_name,
            "id": console.collector.brokers.cluster_id,
            "bootstrap": console.options.bootstrap,
        },
        "features": {
            "journal": has_http,
            "drills": console.drills is not None,
            "metrics": has_http,
            "security": console.collector.has_security,
        },
        "version": __version__,
    }


async def log_in(console: Console, request: Request) -> Response:
    body = await body_of(request)
    gate = console.gate
    try:
        cookie, session = await gate.logins.log_in(body)
    except Problem as problem:
        named = body.get("user")
        user = named if isinstance(named, str) else ""
        console.audit.record(user, address_of(request), "login", user, outcome=problem.detail)
        raise
    response = answer(request, describe(console, session))
    response.set_cookie(
        gate.cookie,
        cookie,
        httponly=True,
        samesite="strict",
        secure=console.options.has_tls or console.options.proxy is not None,
        path="/",
    )
    return response


async def log_out(console: Console, request: Request) -> Response:
    cookie = request.cookies.get(console.gate.cookie)
    if cookie is not None:
        console.gate.logins.log_out(cookie)
    response = Response(status_code=204)
    response.delete_cookie(console.gate.cookie, path="/", httponly=True, samesite="strict")
    return response


async def show_session(console: Console, request: Request) -> Response:
    session: Session | None = request.scope.get("odradek.session")
    if session is None:
        raise Problem(401, "log in first", login=console.gate.logins.methods)
    return answer(request, describe(console, session))


ROUTES = (
    Route("POST", "/login", log_in, "Exchange a token or password for a session", Right.NONE),
    Route("POST", "/logout", log_out, "End this session"),
    Route(
        "GET",
        "/session",
        show_session,
        "Who is logged in, and may do what",
        Right.NONE,
        answer=SessionAnswer,
    ),
)
