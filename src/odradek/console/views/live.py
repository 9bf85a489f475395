"""The stream of what changes, and live tails of topics."""

from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from odradek.console.access import account_of, require_records
from odradek.console.accounts import Right
from odradek.console.console import Console
from odradek.console.filters import InvalidFilter, parse_text
from odradek.console.routes import Parameter, Route
from odradek.console.views.records import decoders_for, partitions_in
from odradek.console.web import Problem, dumps, required_parameter
from odradek.console.workers import WorkerEnded

EVENTS = "text/event-stream"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


async def follow(console: Console, request: Request) -> Response:
    watches = [
        watch
        for given in request.query_params.getlist("watch")
        for watch in ([given] if ":" in given else given.split(","))
        if watch
    ]
    console.hub.check(watches)
    account = account_of(request)
    for watch in watches:
        kind, _, id = watch.partition(":")
        if kind == "search":
            console.searches.get(id, account.name)
        elif kind == "group":
            console.group_lags.look_at([id])
    last_id = request.headers.get("last-event-id", "")
    stream = console.hub.stream(watches, last_id)
    return StreamingResponse(stream, media_type=EVENTS, headers=HEADERS)


async def tail(console: Console, request: Request) -> Response:
    topic = required_parameter(request, "topic")
    require_records(request, topic)
    job: dict[str, Any] = {
        "id": 1,
        "job": "tail",
        "topic": topic,
        "partitions": partitions_in(request),
        **decoders_for(console, request, topic),
    }
    text = request.query_params.get("filter", "")
    if text:
        try:
            job["filter"] = parse_text(text)
        except InvalidFilter as error:
            raise Problem(422, str(error), field="filter", position=error.position) from None
    return StreamingResponse(_tail(console, job), media_type=EVENTS, headers=HEADERS)


async def _tail(console: Console, job: dict[str, Any]) -> AsyncIterator[bytes]:
    try:
        async with console.workers.own("tail") as worker:
            await worker.send(job)
            while True:
                message = await worker.read()
                if "tail" in message:
                    yield b"event: records\ndata: %s\n\n" % dumps(message["tail"])
                elif "started" in message:
                    yield b"event: started\ndata: {}\n\n"
                elif "failed" in message:
                    yield b"event: failed\ndata: %s\n\n" % dumps({"detail": message["failed"]})
                    return
    except WorkerEnded:
        if console.hub.closing.is_set():
            return
        yield b'event: failed\ndata: {"detail": "the tail took more memory than is allowed"}\n\n'
    except Problem as problem:
        yield b"event: failed\ndata: %s\n\n" % dumps({"detail": problem.detail})


ROUTES = (
    Route(
        "GET",
        "/events",
        follow,
        "What changes, as server-sent events",
        parameters=(Parameter("watch", "what to watch; repeatable"),),
    ),
    Route(
        "GET",
        "/records/tail",
        tail,
        "New records, as server-sent events",
        Right.RECORDS,
        parameters=(
            Parameter("topic", "the topic", True),
            Parameter("p", "partition"),
            Parameter("decode", "format of values"),
            Parameter("filter", "a filter"),
        ),
    ),
)
