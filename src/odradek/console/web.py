"""Answers: JSON with an ETag, problems, and files for download."""

import hashlib
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from odradek.wire.errors import KafkaError

PROBLEM = "application/problem+json"
BODY_BYTES_MAX = 2 * 1024 * 1024
NESTING_MAX = 32


class Problem(Exception):
    """An answer that is an error, as RFC 9457 has it."""

    def __init__(self, status: int, detail: str, *, error: str | None = None, **more: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.error = error
        self.more = more

    def response(self) -> Response:
        body = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            "error": self.error,
            **self.more,
        }
        return Response(dumps(body), self.status, media_type=PROBLEM)


NOT_AUTHORIZED = "_AUTHORIZATION_FAILED"


def problem_of(error: Exception) -> Problem:
    """What went wrong with the cluster, as an answer."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, KafkaError):
        name, text = error.error.name, error.message or error.error.name
        if name.endswith(NOT_AUTHORIZED):
            text = f"The user that this console connects as has no permission for this: {text}"
        return Problem(_status_of(name), text, error=name)
    if isinstance(error, TimeoutError):
        return Problem(504, "the cluster did not answer in time", error="REQUEST_TIMED_OUT")
    return Problem(503, f"no broker answers: {error}", error="BROKER_NOT_AVAILABLE")


_STATUS = {
    **dict.fromkeys(
        ("UNKNOWN_TOPIC_OR_PARTITION", "GROUP_ID_NOT_FOUND", "RESOURCE_NOT_FOUND"), 404
    ),
    **dict.fromkeys(
        ("LEADER_NOT_AVAILABLE", "BROKER_NOT_AVAILABLE", "COORDINATOR_NOT_AVAILABLE"), 503
    ),
    "REQUEST_TIMED_OUT": 504,
    "THROTTLING_QUOTA_EXCEEDED": 429,
}


def _status_of(name: str) -> int:
    if name in _STATUS:
        return _STATUS[name]
    if name.endswith(NOT_AUTHORIZED):
        return 403
    if name.startswith("INVALID_") or name == "OFFSET_OUT_OF_RANGE":
        return 422
    return 409


def dumps(value: object) -> bytes:
    """ASCII JSON: what a client has sent, lone surrogates too, survives as an escape."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")


def answer(
    request: Request, value: object, *, headers: Mapping[str, str] | None = None
) -> Response:
    """JSON, or 304 if the client has it already."""
    body = dumps(value)
    etag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    kept = {"ETag": etag, "Cache-Control": "no-cache", **(headers or {})}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=kept)
    return Response(body, headers=kept, media_type="application/json")


def attachment(body: bytes, name: str) -> Response:
    """A download. No browser renders it, whatever is in it."""
    safe = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)
    ascii_name = safe.encode("ascii", "replace").decode().replace("?", "_")[:200]
    return Response(
        body,
        media_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="{ascii_name}"'},
    )


async def body_of(request: Request) -> dict[str, Any]:
    """The JSON object that was sent. Raises Problem."""
    read = bytearray()
    async for chunk in request.stream():
        read += chunk
        if len(read) > BODY_BYTES_MAX:
            raise Problem(413, f"a request has at most {BODY_BYTES_MAX} bytes")
    try:
        value = json.loads(bytes(read) or b"{}", parse_constant=_no_constant)
    except RecursionError:
        raise Problem(400, "the request is nested too deeply") from None
    except ValueError:
        raise Problem(400, "the request is not JSON") from None
    if not isinstance(value, dict):
        raise Problem(400, "the request is not a JSON object")
    if _depth(value) > NESTING_MAX:
        raise Problem(400, "the request is nested too deeply")
    return value


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _depth(value: object) -> int:
    level, depth = [value], 0
    while level:
        depth += 1
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    return depth


# What a request says, checked


def text_of(body: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = body.get(name, default)
    if not isinstance(value, str):
        raise Problem(422, f"{name} must be a text", field=name)
    return value


def optional_text(body: Mapping[str, Any], name: str) -> str | None:
    return None if body.get(name) is None else text_of(body, name)


def int_of(body: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = body.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 2**63:
        raise Problem(422, f"{name} must be a whole number", field=name)
    return value


def texts_of(body: Mapping[str, Any], name: str) -> list[str]:
    value = body.get(name) or []
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise Problem(422, f"{name} must be a list of texts", field=name)
    return value


def ints_of(body: Mapping[str, Any], name: str) -> list[int]:
    value = body.get(name) or []
    if not isinstance(value, list):
        raise Problem(422, f"{name} must be a list of numbers", field=name)
    return [int_of({name: each}, name) for each in value]


def objects_of(body: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    value = body.get(name) or []
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise Problem(422, f"{name} must be a list of objects", field=name)
    return value


def number_parameter(request: Request, name: str, default: int, low: int, high: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 20):
        raise Problem(422, f"{name} must be a whole number", field=name)
    if not low <= int(text) <= high:
        raise Problem(422, f"{name} must be from {low} to {high}", field=name)
    return int(text)


def required_parameter(request: Request, name: str) -> str:
    value = request.query_params.get(name)
    if value is None:
        raise Problem(422, f"{name} is missing", field=name)
    return value
