"""Frames: a size, a header, a message.

docs/spec/controller-and-replication.md section 8,
docs/spec/interchange-with-apache-kafka.md section A.1.

A request header names the API, its version, the number by which the answer is known, and the
client. From the API's first flexible version on it ends with tagged fields, while the client id
stays a classic string. Two exceptions: ControlledShutdown v0 has no client id, and the header of an
answer to ApiVersions has no tagged fields, because its client cannot know yet what we understand.
"""

from __future__ import annotations

from struct import Struct as Packer
from struct import error as UnpackError  # noqa: N812  # an exception, whatever its name
from typing import NamedTuple, TypeVar

from .api import APIS, ApiKey
from .decoder import skip_tagged
from .errors import DecodeError, ErrorCode
from .schema import Buffer, Message

M = TypeVar("M", bound=Message)

FIXED = Packer(">hhi")
SIZED = Packer(">ihhi")
CLIENT_ID_SIZE = Packer(">h")
SIZE_AND_CORRELATION_ID = Packer(">ii")
CORRELATION_ID = Packer(">i")
# How an answer to ApiVersions begins that is in v0, whatever version was asked for.
REFUSED_VERSION = Packer(">h").pack(ErrorCode.UNSUPPORTED_VERSION)


class RequestHeader(NamedTuple):
    """Who asks what. The API may be one that we do not know: look it up in APIS."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def has_client_id(api_key: int, version: int) -> bool:
    return version > 0 or api_key != ApiKey.CONTROLLED_SHUTDOWN


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """The header of a frame (without its size), and where the message begins. Raises DecodeError.

    Of an unknown API, or an unknown version, only the first three fields can be read for certain.
    """
    try:
        api_key, version, correlation_id = FIXED.unpack_from(frame)
        api = APIS.get(api_key)
        if api is None:
            return RequestHeader(api_key, version, correlation_id, None), FIXED.size
        client_id, position = None, FIXED.size
        if has_client_id(api_key, version):
            client_id, position = _client_id(frame, position)
        if version >= api.flexible_from:
            # No client tags a request header, so there is nearly always just this zero.
            position = skip_tagged(frame, position) if frame[position] else position + 1
    except (UnpackError, IndexError, UnicodeDecodeError) as error:
        raise DecodeError(f"request header: {error}") from error
    return RequestHeader(api_key, version, correlation_id, client_id), position


def _client_id(frame: Buffer, position: int) -> tuple[str | None, int]:
    (size,) = CLIENT_ID_SIZE.unpack_from(frame, position)
    position += CLIENT_ID_SIZE.size
    if size < 0:
        return None, position
    end = position + size
    if end > len(frame):
        raise DecodeError("request header: a client id that ends beyond the frame")
    return str(frame[position:end], "utf-8"), end


def encode_request(
    message: Message, version: int, correlation_id: int, client_id: str | None
) -> list[Buffer]:
    """A whole frame, its size first, in pieces to write in turn. Raises EncodeError."""
    api_key = message.API_KEY
    rest = b""
    if has_client_id(api_key, version):
        name = b"" if client_id is None else client_id.encode()
        rest = CLIENT_ID_SIZE.pack(-1 if client_id is None else len(name)) + name
    if version >= message.FLEXIBLE_FROM:
        rest += b"\0"
    parts = message.encode_parts(version)
    size = FIXED.size + len(rest) + sum(map(len, parts))
    return _prepend(SIZED.pack(size, api_key, version, correlation_id) + rest, parts)


def encode_response(message: Message, version: int, correlation_id: int) -> list[Buffer]:
    """A whole frame, its size first, in pieces to write in turn. Raises EncodeError."""
    tagged = b"\0" if has_tagged_response_header(message, version) else b""
    parts = message.encode_parts(version)
    size = CORRELATION_ID.size + len(tagged) + sum(map(len, parts))
    return _prepend(SIZE_AND_CORRELATION_ID.pack(size, correlation_id) + tagged, parts)


def _prepend(header: bytes, parts: list[Buffer]) -> list[Buffer]:
    if len(parts) == 1:
        return [header + parts[0]]
    return [header, *parts]


def decode_response(cls: type[M], version: int, frame: Buffer) -> tuple[int, M]:
    """The correlation id and the message of a frame (without its size). Raises DecodeError."""
    try:
        (correlation_id,) = CORRELATION_ID.unpack_from(frame)
        position = CORRELATION_ID.size
        if has_tagged_response_header(cls, version):
            position = skip_tagged(frame, position) if frame[position] else position + 1
    except (UnpackError, IndexError) as error:
        raise DecodeError(f"response header: {error}") from error
    body = memoryview(frame)[position:]
    if cls.API_KEY == ApiKey.API_VERSIONS and body[: len(REFUSED_VERSION)] == REFUSED_VERSION:
        version = 0
    return correlation_id, cls.decode(body, version)


def has_tagged_response_header(message: Message | type[Message], version: int) -> bool:
    return version >= message.FLEXIBLE_FROM and message.API_KEY != ApiKey.API_VERSIONS
