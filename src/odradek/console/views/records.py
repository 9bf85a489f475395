"""Records: pages, one record, downloads, searches, decoders.

Contents are fetched and opened by a worker; what comes back is text. Nothing is evaluated.
"""

import base64
import binascii
import csv
import io
import json
from typing import Any, TypedDict

from starlette.requests import Request
from starlette.responses import Response

from odradek.console.access import account_of, require_records
from odradek.console.accounts import Right
from odradek.console.console import Console
from odradek.console.decoders import FORMATS, Field, Undecodable, decoder_of
from odradek.console.filters import Filter, InvalidFilter, parse_text
from odradek.console.routes import Parameter, Route
from odradek.console.web import (
    Problem,
    answer,
    attachment,
    body_of,
    int_of,
    ints_of,
    number_parameter,
    required_parameter,
    text_of,
)
from odradek.wire.errors import KafkaError

LIMIT, LIMIT_MAX = 50, 500
OFFSET_MAX = 2**63 - 1
FOUND_MAX = 1_000
SEARCH_BYTES_PER_S = 100_000_000
DECODERS_MAX = 2_000
INT32_MAX = 2**31 - 1
# What a spreadsheet would take for a formula.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


class Header(TypedDict):
    name: str
    value: Field | None


class RecordRow(TypedDict):
    topic: str
    p: int
    offset: int
    timestamp_ms: int
    timestamp_type: str
    leader_epoch: int
    size_bytes: int
    key: Field | None
    value: Field | None
    headers: list[Header]


class LogRange(TypedDict):
    p: int
    start: int
    end: int


class RecordsAnswer(TypedDict):
    items: list[RecordRow]
    before: str | None
    after: str | None
    ranges: list[LogRange]


class RecordAnswer(RecordRow):
    base64: str | None
    key_base64: str | None
    hex: str
    key_hex: str


def partitions_in(request: Request) -> list[int]:
    found = []
    for text in request.query_params.getlist("p"):
        for part in text.split(","):
            if not (part.isdecimal() and len(part) < 10):
                raise Problem(422, "p is a partition", field="p")
            found.append(int(part))
    return found


def decoders_for(console: Console, request: Request, topic: str) -> dict[str, Any]:
    """What was asked for, else what is remembered of the topic."""
    remembered = console.decoders.get(topic, {})
    found: dict[str, Any] = {}
    for name, field in (("decode", "value"), ("key_decode", "key")):
        wanted = request.query_params.get(name)
        known = remembered.get(field)
        if wanted is None:
            found[name] = known or "auto"
        elif wanted not in FORMATS:
            raise Problem(422, f"there is no format {wanted!r}", field=name)
        else:
            # A schema goes with the format that it was remembered for.
            same = isinstance(known, dict) and known.get("format") == wanted
            found[name] = known if same else wanted
            if wanted == "avro" and not same:
                raise Problem(422, f"no Avro schema is known for {topic}", field=name)
    return found


async def _page(console: Console, request: Request) -> dict[str, Any]:
    topic = required_parameter(request, "topic")
    require_records(request, topic)
    start = request.query_params.get("from", "newest")
    at: dict[str, int] = {}
    direction = "back" if start == "newest" else "on"
    if "before" in request.query_params:
        at, direction = _cursor(request.query_params["before"]), "back"
    elif "after" in request.query_params:
        at, direction = _cursor(request.query_params["after"]), "on"
    elif start.startswith("group:"):
        committed = await console.link.api.groups.offsets(start.removeprefix("group:"))
        at = {str(tp.partition): each.offset for tp, each in committed.items() if tp.topic == topic}
        if not at:
            raise Problem(
                404, f"the group has committed nothing in {topic}", error="GROUP_ID_NOT_FOUND"
            )
        start = "oldest"
    elif start not in ("newest", "oldest") and not start.startswith(("offset:", "time:")):
        raise Problem(422, "from is newest, oldest, offset:N, time:T or group:ID", field="from")
    job = {
        "job": "records",
        "topic": topic,
        "partitions": partitions_in(request),
        "from": start,
        "at": at,
        "direction": direction,
        "limit": number_parameter(request, "limit", LIMIT, 1, LIMIT_MAX),
        **decoders_for(console, request, topic),
    }
    result: dict[str, Any] = await console.workers.ask(job)
    return {
        "items": result["items"],
        "before": _cursor_text(result["first"]),
        "after": _cursor_text(result["last"]),
        "ranges": result["ranges"],
    }


def _cursor_text(positions: dict[str, int]) -> str:
    return base64.urlsafe_b64encode(json.dumps(positions).encode()).decode()


def _cursor(text: str) -> dict[str, int]:
    try:
        positions = json.loads(base64.urlsafe_b64decode(text))
        return {str(int(p)): int(offset) for p, offset in positions.items()}
    except (ValueError, TypeError, AttributeError, binascii.Error, RecursionError):
        raise Problem(422, "this cursor is not one of ours") from None


async def list_records(console: Console, request: Request) -> Response:
    return answer(request, await _page(console, request))


def _one(console: Console, request: Request) -> dict[str, Any]:
    topic = required_parameter(request, "topic")
    require_records(request, topic)
    return {
        "topic": topic,
        "p": number_parameter(request, "p", -1, 0, INT32_MAX),
        "offset": number_parameter(request, "offset", -1, 0, OFFSET_MAX),
        **decoders_for(console, request, topic),
    }


async def show_record(console: Console, request: Request) -> Response:
    job = {"job": "record", **_one(console, request)}
    return answer(request, await console.workers.ask(job))


async def download_record(console: Console, request: Request) -> Response:
    part = request.query_params.get("part", "value")
    if part not in ("key", "value"):
        raise Problem(422, "part is key or value", field="part")
    job = {"job": "raw", "part": part, **_one(console, request)}
    result = await console.workers.ask(job)
    data = b"" if result["base64"] is None else base64.b64decode(result["base64"])
    return attachment(data, f"{job['topic']}-{job['p']}-{job['offset']}.{part}")


async def download_records(console: Console, request: Request) -> Response:
    form = request.query_params.get("as", "jsonl")
    if form not in ("jsonl", "csv", "raw"):
        raise Problem(422, "as is jsonl, csv or raw", field="as")
    items = (await _page(console, request))["items"]
    name = f"{required_parameter(request, 'topic')}.{'txt' if form == 'raw' else form}"
    if form == "csv":
        return attachment(to_csv(items).encode("utf-8", "backslashreplace"), name)
    if form == "jsonl":
        lines = "".join(json.dumps(_plain(item)) + "\n" for item in items)
    else:
        lines = "".join(f"{_text(item['value'])}\n" for item in items)
    return attachment(lines.encode("utf-8", "backslashreplace"), name)


def _plain(item: dict[str, Any]) -> dict[str, Any]:
    return {
        **{name: item[name] for name in ("topic", "p", "offset", "timestamp_ms")},
        "key": _text(item["key"]),
        "value": _text(item["value"]),
        "headers": [[each["name"], _text(each["value"])] for each in item["headers"]],
    }


def _text(field: Field | None) -> str | None:
    return None if field is None else field["text"]


def to_csv(items: list[dict[str, Any]]) -> str:
    """With a quote before what a spreadsheet would take for a formula."""
    output = io.StringIO()
    writer = csv.writer(output, quoting=csv.QUOTE_ALL)
    writer.writerow(["partition", "offset", "timestamp_ms", "key", "value", "headers"])
    for item in items:
        headers = "; ".join(f"{each['name']}={_text(each['value'])}" for each in item["headers"])
        cells = [_text(item["key"]) or "", _text(item["value"]) or "", headers]
        writer.writerow(
            [item["p"], item["offset"], item["timestamp_ms"], *map(_without_formula, cells)]
        )
    return output.getvalue()


def _without_formula(cell: str) -> str:
    return f"'{cell}" if cell.startswith(FORMULA) else cell


# Filters and searches


async def parse_filter(console: Console, request: Request) -> Response:
    try:
        return answer(request, {"filter": parse_text(required_parameter(request, "text"))})
    except InvalidFilter as error:
        raise Problem(422, str(error), field="text", position=error.position) from None


async def start_search(console: Console, request: Request) -> Response:
    body = await body_of(request)
    topic = text_of(body, "topic")
    require_records(request, topic)
    given = body.get("filter")
    try:
        tree = parse_text(given) if isinstance(given, str) else given
        Filter(tree)
    except InvalidFilter as error:
        raise Problem(422, str(error), field="filter", position=error.position) from None
    limit = (
        None
        if body.get("limit_bytes_per_s", 0) is None
        else int_of(body, "limit_bytes_per_s", SEARCH_BYTES_PER_S)
    )
    if limit is not None and limit <= 0:
        raise Problem(422, "limit_bytes_per_s is more than 0, or null", field="limit_bytes_per_s")
    remembered = console.decoders.get(topic, {})
    decode = body.get("decode")
    job = {
        "job": "search",
        "topic": topic,
        "partitions": ints_of(body, "partitions"),
        "from": text_of(body, "from", "oldest"),
        "until": text_of(body, "until", "newest"),
        "filter": tree,
        "limit": max(1, min(int_of(body, "limit", FOUND_MAX), FOUND_MAX)),
        "bytes_per_s": limit,
        "every_record": body.get("every_record") is True,
        "positions": body.get("positions") if isinstance(body.get("positions"), dict) else None,
        "decode": decode if decode in FORMATS and decode != "avro" else remembered.get("value"),
        "key_decode": remembered.get("key"),
    }
    search = console.searches.start(account_of(request).name, topic, job, limit)
    return answer(request, search.answer())


def _search(console: Console, request: Request) -> Any:
    return console.searches.get(request.path_params["id"], account_of(request).name)


async def list_searches(console: Console, request: Request) -> Response:
    found = console.searches.of(account_of(request).name)
    items = [{**each.answer(), "records": []} for each in found]
    return answer(request, {"items": items, "total": len(items)})


async def show_search(console: Console, request: Request) -> Response:
    after = number_parameter(request, "after", 0, 0, FOUND_MAX)
    return answer(request, _search(console, request).answer(after))


async def pause_search(console: Console, request: Request) -> Response:
    search = _search(console, request)
    await console.searches.pause(search)
    return answer(request, search.answer())


async def resume_search(console: Console, request: Request) -> Response:
    search = _search(console, request)
    await console.searches.resume(search)
    return answer(request, search.answer())


async def cancel_search(console: Console, request: Request) -> Response:
    search = _search(console, request)
    await console.searches.cancel(search)
    return answer(request, search.answer())


# Decoders


async def show_decoders(console: Console, request: Request) -> Response:
    topic = required_parameter(request, "topic")
    remembered = console.decoders.get(topic, {})
    return answer(request, {"formats": list(FORMATS), "topic": topic, "remembered": remembered})


async def keep_decoder(console: Console, request: Request) -> Response:
    """What a topic's records are decoded with from now on, for all users of this console."""
    body = await body_of(request)
    topic = text_of(body, "topic")
    require_records(request, topic)
    kept = {}
    for field in ("value", "key"):
        settings = body.get(field)
        if settings is None:
            continue
        if not isinstance(settings, dict):
            raise Problem(422, f"{field} is an object with a format", field=field)
        try:
            decoder_of(settings)
        except Undecodable as error:
            raise Problem(422, str(error), field=field) from None
        except (KafkaError, TypeError, ValueError, KeyError, AttributeError, RecursionError):
            raise Problem(422, "this schema cannot be used", field=field) from None
        kept[field] = settings
    if len(console.decoders) >= DECODERS_MAX and topic not in console.decoders:
        raise Problem(429, f"decoders of {DECODERS_MAX} topics are remembered already")
    console.decoders[topic] = kept
    return answer(request, {"topic": topic, "remembered": kept})


TOPIC = Parameter("topic", "the topic", True)
P = Parameter("p", "a partition; repeatable")
DECODE = (
    Parameter("decode", "format of values"),
    Parameter("key_decode", "format of keys"),
)
PAGE = (
    TOPIC,
    P,
    *DECODE,
    Parameter("from", "newest, oldest, offset:N, time:T or group:ID"),
    Parameter("limit", "1 to 500"),
    Parameter("before", "a cursor"),
    Parameter("after", "a cursor"),
)
ONE = (TOPIC, Parameter("p", "partition", True), Parameter("offset", "offset", True), *DECODE)
ROUTES = (
    Route(
        "GET",
        "/records",
        list_records,
        "A page of records",
        Right.RECORDS,
        PAGE,
        answer=RecordsAnswer,
    ),
    Route("GET", "/record", show_record, "One record", Right.RECORDS, ONE, answer=RecordAnswer),
    Route(
        "GET",
        "/record/download",
        download_record,
        "A key or value",
        Right.RECORDS,
        (*ONE, Parameter("part", "key or value")),
    ),
    Route(
        "GET",
        "/records/download",
        download_records,
        "A page of records as a file",
        Right.RECORDS,
        (*PAGE, Parameter("as", "jsonl, csv or raw")),
    ),
    Route(
        "GET",
        "/filter",
        parse_filter,
        "A filter from its text",
        Right.READ,
        (Parameter("text", "the filter", True),),
    ),
    Route("POST", "/searches", start_search, "Search records", Right.RECORDS),
    Route("GET", "/searches", list_searches, "Your searches", Right.RECORDS),
    Route(
        "GET",
        "/searches/{id}",
        show_search,
        "One search",
        Right.RECORDS,
        (Parameter("after", "leave out so many"),),
    ),
    Route("POST", "/searches/{id}/pause", pause_search, "Pause a search", Right.RECORDS),
    Route("POST", "/searches/{id}/resume", resume_search, "Go on", Right.RECORDS),
    Route("DELETE", "/searches/{id}", cancel_search, "Cancel a search", Right.RECORDS),
    Route("GET", "/decoders", show_decoders, "How a topic is decoded", Right.READ, (TOPIC,)),
    Route("POST", "/decoders", keep_decoder, "Remember how a topic is decoded", Right.RECORDS),
)
