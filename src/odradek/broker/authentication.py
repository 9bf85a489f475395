"""The login of one connection on a SASL listener, frame by frame: frames in, verdicts out.

docs/spec/security.md, sections 3.2 and 3.8. Nothing but the login is decoded before the login: the
request header, ApiVersions, SaslHandshake and SaslAuthenticate.

| state | frame | verdict | next |
|---|---|---|---|
| VERSIONS | ApiVersions | the table of APIs; an error leaves the state as it is | HANDSHAKE |
| VERSIONS, HANDSHAKE | SaslHandshake of an enabled mechanism | the mechanisms | TOKENS |
| | SaslHandshake of another | UNSUPPORTED_SASL_MECHANISM, late | FAILED |
| | any other API | nothing; closed late | FAILED |
| HANDSHAKE | ApiVersions | closed at once | FAILED |
| TOKENS | SaslAuthenticate, or a bare token after handshake v0 | its answer | TOKENS, COMPLETE |
| | a token that is rejected | SASL_AUTHENTICATION_FAILED, late | FAILED |
| | another API | its own ILLEGAL_SASL_STATE, late | FAILED |
| any | a version we do not serve, or what cannot be read | closed at once | FAILED |
| COMPLETE | SaslHandshake, if the session ends some day | begins a re-authentication | TOKENS |

"Late" is `connection.failed.authentication.delay.ms`: guessing passwords is slow. The peer learns
only what a mechanism says in its own words; every other refusal is one sentence.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeVar

from odradek.broker.handlers import served_versions
from odradek.broker.served_apis import unsupported_version, versions_response
from odradek.security.exchange import Login, SaslError, ServerExchange
from odradek.security.principal import Principal
from odradek.wire.api import APIS, ApiKey
from odradek.wire.errors import DecodeError, ErrorCode, KafkaError
from odradek.wire.frames import Buffer
from odradek.wire.header import FIXED, RequestHeader, decode_request_header, encode_response
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from odradek.wire.refusal import refusal
from odradek.wire.schema import Message

__all__ = ["Authentication", "Close", "SaslListener", "Verdict"]

# Another re-authentication is not begun before this.
REAUTHENTICATION_PAUSE_MS = 1000
# Requests of other APIs that are answered during a login; a larger one is not worth decoding.
OUT_OF_TURN_BYTES_MAX = 1024

logger = logging.getLogger(__name__)


class Close(Enum):
    """What becomes of the connection once the answer has left."""

    NEVER = auto()
    NOW = auto()
    LATE = auto()


@dataclass(frozen=True)
class Verdict:
    """The answer to a frame, with its size, and whether the connection ends."""

    parts: list[Buffer] = field(default_factory=list)
    close: Close = Close.NEVER


def _own_expiry(login: Login) -> int | None:
    return login.expires_at_ms


@dataclass(frozen=True)
class SaslListener:
    """What a listener lets in: its mechanisms, and who a login is."""

    mechanisms: Mapping[str, Callable[[], ServerExchange]]
    # A delegation token stands for its owner. None: the login is no longer valid.
    principal_of: Callable[[Login], Principal | None]
    session_ms_max: Mapping[str, int]
    now_ms: Callable[[], int]
    # When the session of a login must end, whatever the listener says.
    expires_ms_of: Callable[[Login], int | None] = _own_expiry
    # Until the login is complete.
    frame_bytes_max: int = 524288


class _State(Enum):
    VERSIONS = auto()
    HANDSHAKE = auto()
    TOKENS = auto()
    COMPLETE = auto()
    FAILED = auto()


class Authentication:
    """Of one connection, for as long as it lives."""

    def __init__(self, listener: SaslListener, peer: str) -> None:
        self._listener = listener
        self._peer = peer
        self._state = _State.VERSIONS
        self._mechanism = ""
        self._exchange: ServerExchange | None = None
        self._is_framed = True
        self._is_other_mechanism = False
        self._begun_ms: int | None = None
        self.principal: Principal | None = None
        self.session_ends_ms: int | None = None

    @property
    def is_complete(self) -> bool:
        return self._state is _State.COMPLETE

    @property
    def is_expired(self) -> bool:
        """Whether the session has ended: a request that arrives now closes the connection."""
        ends = self.session_ends_ms
        return ends is not None and self._listener.now_ms() >= ends

    def begins_reauthentication(self, frame: Buffer) -> bool:
        """Whether this frame on a connection that is logged in starts a new exchange."""
        if self.session_ends_ms is None or frame[:2] != _HANDSHAKE_KEY:
            return False
        begun, now = self._begun_ms, self._listener.now_ms()
        if begun is not None and now - begun < REAUTHENTICATION_PAUSE_MS:
            return False
        self._begun_ms = now
        self._state = _State.HANDSHAKE
        return True

    def receive(self, frame: Buffer) -> Verdict:
        """To be asked about every frame until the login is complete."""
        if self._state is _State.FAILED:
            return Verdict()  # ignored while the delay runs
        if self._state is _State.TOKENS and not self._is_framed:
            return self._bare_token(bytes(frame))
        if frame[:2] == _VERSIONS_KEY and len(frame) >= FIXED.size:
            # The header of a version we do not know is unknown too, beyond these fields.
            key, version, correlation_id = FIXED.unpack_from(frame)
            header = RequestHeader(key, version, correlation_id, None)
            if header.api_version not in served_versions(ApiKey.API_VERSIONS):
                return self._unknown_version(header)
        try:
            header, body = decode_request_header(frame)
        except DecodeError as error:
            return self._fail(f"not a Kafka request: {error}", Close.LATE)
        data = memoryview(frame)[body:]
        try:
            if self._state is _State.TOKENS:
                return self._token(header, data)
            if header.api_key == ApiKey.SASL_HANDSHAKE:
                return self._handshake(header, data)
            if header.api_key == ApiKey.API_VERSIONS:
                return self._versions(header, data)
        except DecodeError as error:
            return self._fail(f"cannot read {APIS[header.api_key].name}: {error}", Close.NOW)
        return self._fail(f"API {header.api_key} before the login", Close.LATE)

    # One method for each kind of frame

    def _versions(self, header: RequestHeader, data: Buffer) -> Verdict:
        if self._state is not _State.VERSIONS:
            return self._fail("ApiVersions twice", Close.NOW)
        request = ApiVersionsRequest.decode(data, header.api_version)
        response = versions_response(request, header.api_version)
        if response.error_code == ErrorCode.NONE:
            self._state = _State.HANDSHAKE
        return _answer(response, header)

    def _unknown_version(self, header: RequestHeader) -> Verdict:
        if self._state is not _State.VERSIONS:
            return self._fail("ApiVersions out of turn", Close.NOW)
        return _answer(unsupported_version(), header, version=0)

    def _handshake(self, header: RequestHeader, data: Buffer) -> Verdict:
        request = _decode(SaslHandshakeRequest, header, data)
        enabled = sorted(self._listener.mechanisms)
        make = self._listener.mechanisms.get(request.mechanism)
        if make is None:
            response = SaslHandshakeResponse(
                error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=enabled
            )
            reason = f"mechanism {request.mechanism!r} is not enabled"
            return self._fail(reason, Close.LATE, _answer(response, header).parts)
        # A second login must use the first one's mechanism; that it does not shows one frame later.
        self._is_other_mechanism = bool(self._mechanism) and request.mechanism != self._mechanism
        if not self._mechanism:
            self._mechanism = request.mechanism
        self._exchange = make()
        self._is_framed = header.api_version > 0
        self._state = _State.TOKENS
        return _answer(SaslHandshakeResponse(mechanisms=enabled), header)

    def _token(self, header: RequestHeader, data: Buffer) -> Verdict:
        if self._is_other_mechanism:
            return self._fail("re-authentication with another mechanism", Close.LATE)
        if header.api_key != ApiKey.SASL_AUTHENTICATE:
            return self._out_of_turn(header, data)
        request = _decode(SaslAuthenticateRequest, header, data)
        try:
            token = self._respond(request.auth_bytes)
        except SaslError as error:
            message = error.public or self._sentence()
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=message
            )
            return self._fail(str(error), Close.LATE, _answer(response, header).parts)
        lifetime_ms = 0
        if self.is_complete and self.session_ends_ms is not None:
            lifetime_ms = max(0, self.session_ends_ms - self._listener.now_ms())
        response = SaslAuthenticateResponse(auth_bytes=token)
        if header.api_version >= 1:
            response.session_lifetime_ms = lifetime_ms
        return _answer(response, header)

    def _bare_token(self, token: bytes) -> Verdict:
        """After a handshake in v0 a frame is a token, and so is its answer."""
        try:
            answer = self._respond(token)
        except SaslError as error:
            return self._fail(str(error), Close.LATE if error.public else Close.NOW)
        return Verdict([len(answer).to_bytes(4, "big") + answer])

    def _out_of_turn(self, header: RequestHeader, data: Buffer) -> Verdict:
        api = APIS.get(header.api_key)
        parts: list[Buffer] = []
        if (
            api is not None
            and header.api_version in served_versions(header.api_key)
            and len(data) <= OUT_OF_TURN_BYTES_MAX
        ):
            request = api.request.decode(data, header.api_version)
            error = KafkaError(ErrorCode.ILLEGAL_SASL_STATE)
            response = refusal(request, api.response, header.api_version, error)
            if response is not None:
                parts = _answer(response, header).parts
        return self._fail(f"API {header.api_key} during the login", Close.LATE, parts)

    # The exchange

    def _respond(self, token: bytes) -> bytes:
        assert self._exchange is not None
        answer = self._exchange.respond(token)
        if self._exchange.is_complete:
            self._complete(self._exchange.login)
        return answer

    def _complete(self, login: Login) -> None:
        principal = self._listener.principal_of(login)
        if principal is None:
            raise SaslError(f"{login.user!r} may not log in any more")
        if self.principal is not None and principal != self.principal:
            raise SaslError(f"re-authentication as {principal} instead of {self.principal}")
        now_ms = self._listener.now_ms()
        ends = []
        if limit_ms := self._listener.session_ms_max.get(self._mechanism, 0):
            ends.append(now_ms + limit_ms)
        expires_ms = self._listener.expires_ms_of(login)
        if expires_ms is not None:
            ends.append(max(now_ms, expires_ms))
        self.session_ends_ms = min(ends, default=None)
        self.principal = principal
        self._exchange = None
        self._state = _State.COMPLETE

    def _sentence(self) -> str:
        kind = "authentication" if self.principal is None else "re-authentication"
        return (
            f"Authentication failed during {kind} due to invalid credentials with SASL mechanism"
            f" {self._mechanism}"
        )

    def _fail(self, reason: str, close: Close, parts: list[Buffer] | None = None) -> Verdict:
        logger.info("%s: login failed: %s", self._peer, reason)
        self._state = _State.FAILED
        return Verdict(parts or [], close)


_VERSIONS_KEY = int(ApiKey.API_VERSIONS).to_bytes(2, "big")
_HANDSHAKE_KEY = int(ApiKey.SASL_HANDSHAKE).to_bytes(2, "big")


M = TypeVar("M", bound=Message)


def _decode(message: type[M], header: RequestHeader, data: Buffer) -> M:
    if header.api_version not in served_versions(header.api_key):
        raise DecodeError(f"version {header.api_version} is not served")
    return message.decode(data, header.api_version)


def _answer(message: Message, header: RequestHeader, version: int | None = None) -> Verdict:
    version = header.api_version if version is None else version
    return Verdict(encode_response(message, version, header.correlation_id))
