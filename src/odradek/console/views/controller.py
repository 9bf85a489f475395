"""The controller: its journal, its terms, its state machines, and what was at a moment."""

import contextlib
from datetime import UTC, datetime
from typing import Any, TypedDict

from starlette.requests import Request
from starlette.responses import Response

from odradek.console.console import Console
from odradek.console.journal import EntryRow, entry_row, parse_place
from odradek.console.routes import Parameter, Route
from odradek.console.web import Problem, answer, number_parameter
from odradek.controller.journal import EntryKind
from odradek.controller.partition_states import VALID_PREVIOUS as PARTITION_TRANSITIONS
from odradek.controller.partition_states import PartitionState
from odradek.controller.replica_states import VALID_PREVIOUS as REPLICA_TRANSITIONS
from odradek.controller.replica_states import ReplicaState
from odradek.operations.journal_book import Kept
from odradek.wire.topics import TopicPartition

LIMIT, LIMIT_MAX = 100, 500
INT32_MAX = 2**31 - 1


class Term(TypedDict):
    epoch: int
    broker: int
    since_ms: int
    until_ms: int | None
    end: str | None


class StateMachine(TypedDict):
    counts: dict[str, int]
    edges: list[list[str]]


class ControllerAnswer(TypedDict):
    broker: int | None
    epoch: int | None
    since_ms: int | None
    queue: int | None
    event: str | None
    events: list[dict[str, Any]]
    channels: list[dict[str, Any]]
    terms: list[Term]
    partition_states: StateMachine
    replica_states: StateMachine
    journal: bool


class JournalAnswer(TypedDict):
    items: list[EntryRow]
    total: int
    next: str | None
    first_ms: int | None
    missed: int
    journal: bool


class TimelineAnswer(TypedDict):
    from_ms: int
    to_ms: int
    first_entry_ms: int | None
    marks: list[dict[str, Any]]


def _edges(valid_previous: Any) -> list[list[str]]:
    return [
        [before.name, after.name]
        for after, previous in valid_previous.items()
        for before in sorted(previous)
    ]


PARTITION_EDGES = _edges(PARTITION_TRANSITIONS)
REPLICA_EDGES = _edges(REPLICA_TRANSITIONS)


def _counts(console: Console, machine: str, names: Any) -> dict[str, int]:
    counts = console.collector.states.get(machine, {})
    return {state.name: counts.get(state.name, 0) for state in names}


def state(console: Console) -> dict[str, Any]:
    broker = console.collector.brokers.controller
    statistics: Any = console.collector.statistics.get(broker, {}).get("controller", {})
    terms = console.journal.book.terms()
    current = next((term for term in terms if term["broker"] == broker), None)
    channels = statistics.get("channels", {}).get("brokers", {})
    return {
        "broker": broker if broker >= 0 else None,
        "epoch": statistics.get("epoch"),
        "since_ms": None if current is None else current["since_ms"],
        "queue": statistics.get("queue_length"),
        "event": statistics.get("processing"),
        "events": [
            {
                "kind": kind,
                "count": times["count"],
                "mean_ms": round(times["processing_ms_mean"], 3),
                "max_ms": round(times["processing_ms_max"], 3),
                "queue_mean_ms": round(times["queue_ms_mean"], 3),
            }
            for kind, times in sorted(statistics.get("events", {}).items())
        ],
        "channels": [{"broker": int(id), **figures} for id, figures in sorted(channels.items())],
        "terms": terms[:100],
        "partition_states": {
            "counts": _counts(console, "partitions", PartitionState),
            "edges": PARTITION_EDGES,
        },
        "replica_states": {
            "counts": _counts(console, "replicas", ReplicaState),
            "edges": REPLICA_EDGES,
        },
        "journal": bool(console.link.http()),
    }


async def show_controller(console: Console, request: Request) -> Response:
    with contextlib.suppress(OSError, TimeoutError):
        await console.collector.read_states()
    return answer(request, state(console))


async def list_journal(console: Console, request: Request) -> Response:
    """Newest first. `before` and `after` are ids of entries."""
    book = console.journal.book
    wanted = _wanted(request)
    limit = number_parameter(request, "limit", LIMIT, 1, LIMIT_MAX)
    start, end = 0, len(book)
    for name in ("before", "after"):
        text = request.query_params.get(name)
        if text is None:
            continue
        place = parse_place(text)
        if place is None:
            raise Problem(422, f"{name} is the id of an entry", field=name)
        if name == "before":
            end = book.at_or_after(place)
        else:
            start = book.at_or_after(place._replace(source=place.source + 1))
    found: list[Kept] = []
    more = False
    for kept in reversed(book.slice(start, end)):
        if wanted(kept):
            if len(found) == limit:
                more = True
                break
            found.append(kept)
    items = [entry_row(kept) for kept in found]
    return answer(
        request,
        {
            "items": items,
            "total": len(book),
            "next": items[-1]["id"] if more and items else None,
            "first_ms": book.first_ms,
            "missed": console.journal.missed,
            "journal": bool(console.link.http()),
        },
    )


def _wanted(request: Request) -> Any:
    kinds = {kind for text in request.query_params.getlist("kind") for kind in text.split(",")}
    if unknown := kinds - {kind.value for kind in EntryKind}:
        raise Problem(422, f"there is no kind {min(unknown)!r}", field="kind")
    broker = number_parameter(request, "broker", -1, 0, INT32_MAX)
    topic = request.query_params.get("topic")
    p = number_parameter(request, "p", -1, 0, INT32_MAX)
    cause = request.query_params.get("q", "").lower()
    from_ms, to_ms = moment_of(request, "from"), moment_of(request, "to")

    def concerns(kept: Kept) -> bool:
        entry = kept.entry
        if kinds and entry.kind.value not in kinds:
            return False
        if broker >= 0 and broker not in (entry.broker, kept.place.source):
            return False
        if topic is not None:
            if p >= 0 and not entry.concerns(TopicPartition(topic, p)):
                return False
            named = {tp.topic for tp in entry.partitions} | {entry.topic}
            if entry.partition is not None:
                named.add(entry.partition.topic)
            if topic not in named:
                return False
        if cause and cause not in f"{entry.why} {entry.before} {entry.after}".lower():
            return False
        if from_ms is not None and entry.time_ms < from_ms:
            return False
        return to_ms is None or entry.time_ms <= to_ms

    return concerns


def moment_of(request: Request, name: str = "at") -> int | None:
    """A time that was asked for, in ms. Raises Problem."""
    text = request.query_params.get(name)
    if not text:
        return None
    if text.isdecimal() and len(text) < 16:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
        zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return int(zoned.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise Problem(422, f"{name} is a time, ISO 8601 or ms", field=name) from None


async def show_timeline(console: Console, request: Request) -> Response:
    book = console.journal.book
    to_ms = moment_of(request, "to") or console.now_ms()
    first = book.first_ms
    from_ms = moment_of(request, "from") or first or to_ms - 3_600_000
    return answer(
        request,
        {
            "from_ms": from_ms,
            "to_ms": to_ms,
            "first_entry_ms": first,
            "marks": book.marks(from_ms, to_ms),
        },
    )


ROUTES = (
    Route("GET", "/controller", show_controller, "The controller", answer=ControllerAnswer),
    Route(
        "GET",
        "/journal",
        list_journal,
        "The controllers' journal",
        answer=JournalAnswer,
        parameters=tuple(
            Parameter(name, about)
            for name, about in (
                ("kind", "kinds, repeatable"),
                ("broker", "a broker"),
                ("topic", "a topic"),
                ("p", "a partition"),
                ("q", "in its cause"),
                ("limit", "1 to 500"),
                ("before", "older than this id"),
                ("after", "newer than this id"),
                ("from", "a time"),
                ("to", "a time"),
            )
        ),
    ),
    Route(
        "GET",
        "/timeline",
        show_timeline,
        "Where something happened",
        answer=TimelineAnswer,
        parameters=(Parameter("from", "a time"), Parameter("to", "a time")),
    ),
)
