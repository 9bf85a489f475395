"""The application: files, the page, the routes below /api/v1, and the gate around all of it."""

import logging
import mimetypes
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route as AsgiRoute
from starlette.types import ASGIApp

from odradek.console.access import Guard, require
from odradek.console.console import Console
from odradek.console.exporter import CONTENT_TYPE, export
from odradek.console.link import FAILURES
from odradek.console.openapi import describe
from odradek.console.routes import Route
from odradek.console.views.table import ROUTES
from odradek.console.web import Problem, answer, problem_of

logger = logging.getLogger(__name__)

API = "/api/v1"
GZIP_BYTES_MIN = 1024
# More would hold up everybody for megabytes of JSON, and saves little.
GZIP_LEVEL = 1
TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".html": "text/html",
    ".svg": "image/svg+xml",
    ".json": "application/json",
    ".woff2": "font/woff2",
    ".png": "image/png",
    ".txt": "text/plain",
}

Endpoint = Callable[[Request], Awaitable[Response]]


def application(console: Console) -> ASGIApp:
    """What an HTTP server serves."""

    @asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        await console.start()
        try:
            yield
        finally:
            await console.close()

    watched = [
        AsgiRoute("/livez", _alive),
        AsgiRoute("/readyz", _ready(console)),
        AsgiRoute("/metrics", _metrics(console)),
    ]
    app = Starlette(
        routes=watched if console.options.metrics_only else [*watched, *_console_routes(console)],
        exception_handlers={404: _no_route, 405: _no_route},
        lifespan=life,
    )
    return Guard(GZipMiddleware(app, GZIP_BYTES_MIN, GZIP_LEVEL), console.gate)


def _console_routes(console: Console) -> list[AsgiRoute]:
    """The page, its files, and what it asks."""
    page = _page(console)
    return [
        *(
            AsgiRoute(API + route.path, _endpoint(console, route), methods=[route.method])
            for route in served(console)
        ),
        AsgiRoute("/static/{path:path}", _static(console)),
        AsgiRoute(f"{API}/openapi.json", _openapi(console)),
        AsgiRoute("/favicon.ico", _no_icon),
        AsgiRoute("/", page),
        AsgiRoute("/login", page),
        AsgiRoute("/c/{rest:path}", page),
    ]


def served(console: Console) -> list[Route]:
    """With --read-only the routes that change something do not exist."""
    return [route for route in ROUTES if not (route.changes and console.options.read_only)]


def _endpoint(console: Console, route: Route) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        try:
            require(request, route.right)
            return await route.handler(console, request)
        except Problem as problem:
            return problem.response()
        except FAILURES as error:
            return problem_of(error).response()
        except Exception:
            logger.exception("console: %s %s failed", route.method, route.path)
            return Problem(500, "the console failed; its log says why").response()

    return endpoint


async def _no_route(request: Request, error: Exception) -> Response:
    return Problem(404, "there is nothing here").response()


def _static(console: Console) -> Endpoint:
    root = console.static.resolve()

    async def serve(request: Request) -> Response:
        try:
            file = (root / request.path_params["path"]).resolve()
            is_ours = file.is_relative_to(root) and file.is_file()
        except (OSError, ValueError):  # a name that no file can have
            is_ours = False
        if not is_ours:
            return Problem(404, "there is no such file").response()
        return _file(request, file)

    return serve


def _page(console: Console) -> Endpoint:
    async def serve(request: Request) -> Response:
        file = console.static / "index.html"
        if not file.is_file():
            return PlainTextResponse("this console was built without its page", 404)
        return _file(request, file)

    return serve


def _file(request: Request, file: Path) -> Response:
    kind = TYPES.get(file.suffix) or mimetypes.guess_type(file.name)[0]
    status = file.stat()
    etag = f'"{status.st_mtime_ns:x}-{status.st_size:x}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return FileResponse(file, media_type=kind, headers=headers)


def _openapi(console: Console) -> Endpoint:
    described = describe(served(console), API)

    async def serve(request: Request) -> Response:
        return answer(request, described)

    return serve


def _metrics(console: Console) -> Endpoint:
    async def serve(request: Request) -> Response:
        text = await export(console)
        return PlainTextResponse(text, headers={"Content-Type": CONTENT_TYPE})

    return serve


def _ready(console: Console) -> Endpoint:
    async def serve(request: Request) -> Response:
        failure = console.collector.failure
        if failure is not None:
            return PlainTextResponse(f"{failure}\n", 503)
        return PlainTextResponse("ok\n")

    return serve


async def _alive(request: Request) -> Response:
    return PlainTextResponse("ok\n")


async def _no_icon(request: Request) -> Response:
    return Response(status_code=204)
