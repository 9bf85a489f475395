"""A login frame by frame, as the table in broker/authentication.py has it."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.authentication import Authentication, Close, SaslListener, Verdict
from odradek.security.exchange import Login, ServerExchange
from odradek.security.oauthbearer import BearerToken, OAuthServer, oauth_token
from odradek.security.plain import PlainServer, plain_token
from odradek.security.principal import Principal
from odradek.wire.errors import ErrorCode
from odradek.wire.header import decode_response, encode_request
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from odradek.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from odradek.wire.schema import Message

NOW_MS = 1_000_000


class Clock:
    def __init__(self) -> None:
        self.now_ms = NOW_MS

    def __call__(self) -> int:
        return self.now_ms


class TokenFor:
    """Accepts every token until the time it is given."""

    def __init__(self, expires_at_ms: int) -> None:
        self.expires_at_ms = expires_at_ms

    def validate(self, token: str) -> BearerToken:
        return BearerToken(token, self.expires_at_ms)


def listener(clock: Clock | None = None, session_ms: int = 0) -> SaslListener:
    mechanisms: dict[str, Callable[[], ServerExchange]] = {
        "PLAIN": lambda: PlainServer({"alice": "secret", "bob": "x", "gone": "x"}),
        "OAUTHBEARER": lambda: OAuthServer(TokenFor(NOW_MS + 5000)),
    }

    def principal_of(login: Login) -> Principal | None:
        return None if login.user == "gone" else Principal(login.user)

    return SaslListener(
        mechanisms, principal_of, dict.fromkeys(mechanisms, session_ms), clock or Clock()
    )


def started(clock: Clock | None = None, session_ms: int = 0) -> Authentication:
    return Authentication(listener(clock, session_ms), "peer")


def frame(message: Message, version: int) -> bytearray:
    return bytearray(b"".join(encode_request(message, version, 7, None))[4:])


def answer(verdict: Verdict, kind: type[Message], version: int) -> Message:
    data = b"".join(verdict.parts)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    correlation_id, message = decode_response(kind, version, data[4:])
    assert correlation_id == 7
    return message


def shake_hands(
    login: Authentication, mechanism: str = "PLAIN", version: int = 1
) -> SaslHandshakeResponse:
    verdict = login.receive(frame(SaslHandshakeRequest(mechanism=mechanism), version))
    assert verdict.close is Close.NEVER
    response = answer(verdict, SaslHandshakeResponse, version)
    assert isinstance(response, SaslHandshakeResponse)
    return response


def send_token(
    login: Authentication, token: bytes, version: int = 2
) -> tuple[SaslAuthenticateResponse, Close]:
    verdict = login.receive(frame(SaslAuthenticateRequest(auth_bytes=token), version))
    response = answer(verdict, SaslAuthenticateResponse, version)
    assert isinstance(response, SaslAuthenticateResponse)
    return response, verdict.close


def test_the_usual_login() -> None:
    login = started()
    verdict = login.receive(frame(ApiVersionsRequest(), 0))
    versions = answer(verdict, ApiVersionsResponse, 0)
    assert isinstance(versions, ApiVersionsResponse)
    assert {each.api_key for each in versions.api_keys} >= {0, 1, 17, 36}
    assert shake_hands(login).mechanisms == ["OAUTHBEARER", "PLAIN"]
    was_complete = login.is_complete
    response, close = send_token(login, plain_token("alice", "secret"))
    assert (response.error_code, response.auth_bytes, close) == (0, b"", Close.NEVER)
    assert (was_complete, login.is_complete) == (False, True)
    assert login.principal == Principal("alice")
    assert not login.is_expired


def test_an_unknown_version_is_answered_and_tried_again() -> None:
    login = started()
    wrong = login.receive(b"\0\x12\0\x63\0\0\0\x07\xff\xff")
    assert answer(wrong, ApiVersionsResponse, 0).error_code == ErrorCode.UNSUPPORTED_VERSION  # type: ignore[attr-defined]
    request = ApiVersionsRequest(client_software_name="", client_software_version="!")
    invalid = login.receive(frame(request, 3))
    assert answer(invalid, ApiVersionsResponse, 3).error_code == ErrorCode.INVALID_REQUEST  # type: ignore[attr-defined]
    login.receive(frame(ApiVersionsRequest(), 0))
    shake_hands(login)


def test_api_versions_twice_closes_at_once() -> None:
    login = started()
    login.receive(frame(ApiVersionsRequest(), 0))
    assert login.receive(frame(ApiVersionsRequest(), 0)) == Verdict([], Close.NOW)


def test_any_other_request_before_the_login_is_not_answered_and_closes_late() -> None:
    login = started()
    assert login.receive(frame(MetadataRequest(), 1)) == Verdict([], Close.LATE)
    assert login.receive(frame(ApiVersionsRequest(), 0)) == Verdict(), "ignored from now on"


def test_a_mechanism_that_is_not_enabled_is_refused_late_with_the_list() -> None:
    verdict = started().receive(frame(SaslHandshakeRequest(mechanism="GSSAPI"), 1))
    response = answer(verdict, SaslHandshakeResponse, 1)
    assert isinstance(response, SaslHandshakeResponse)
    assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert response.mechanisms == ["OAUTHBEARER", "PLAIN"]
    assert verdict.close is Close.LATE


def test_a_rejected_token_says_what_the_mechanism_says() -> None:
    texts = set()
    for token in (plain_token("alice", "wrong"), plain_token("ghost", "wrong")):
        login = started()
        shake_hands(login)
        response, close = send_token(login, token)
        assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert close is Close.LATE
        assert not login.is_complete
        texts.add(response.error_message)
    assert texts == {"Authentication failed: Invalid username or password"}


def test_a_login_that_is_no_longer_valid_gets_one_sentence() -> None:
    login = started()
    shake_hands(login)
    response, close = send_token(login, plain_token("gone", "x"))
    assert response.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL"
        " mechanism PLAIN"
    )
    assert close is Close.LATE


def test_another_api_during_the_login_gets_its_own_error() -> None:
    login = started()
    shake_hands(login)
    verdict = login.receive(frame(SaslHandshakeRequest(mechanism="PLAIN"), 1))
    response = answer(verdict, SaslHandshakeResponse, 1)
    assert isinstance(response, SaslHandshakeResponse)
    assert response.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert verdict.close is Close.LATE


def test_a_large_request_during_the_login_is_not_decoded() -> None:
    """Half a megabyte of it would be a quarter of a million objects, made before any login."""
    login = started()
    shake_hands(login)
    names = [MetadataRequestTopic(name="t") for _ in range(100_000)]
    verdict = login.receive(frame(MetadataRequest(topics=names), 9))
    assert verdict == Verdict([], Close.LATE)


def test_bare_tokens_after_a_handshake_of_version_0() -> None:
    login = started()
    shake_hands(login, version=0)
    assert login.receive(plain_token("alice", "secret")) == Verdict([b"\0\0\0\0"])
    assert login.is_complete
    wrong = started()
    shake_hands(wrong, version=0)
    assert wrong.receive(plain_token("alice", "no")) == Verdict([], Close.LATE)


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"\0\x11", b"\0\x11\0\x01\0\0\0\x07\0\xff", b"GET / HTTP/1.1"]
)
def test_what_cannot_be_read_ends_the_connection(data: bytes) -> None:
    verdict = started().receive(data)
    assert verdict.parts == []
    assert verdict.close is not Close.NEVER


@given(st.lists(st.binary(max_size=60), max_size=4), st.booleans())
def test_no_frame_breaks_a_login_or_completes_it(frames: list[bytes], shaken: bool) -> None:
    login = started()
    if shaken:
        shake_hands(login)
    for each in frames:
        login.receive(each)
    assert not login.is_complete


# Sessions that end


def test_the_session_ends_with_the_setting_or_the_token_whichever_is_earlier() -> None:
    for mechanism, token, session_ms, lifetime_ms in (
        ("PLAIN", plain_token("alice", "secret"), 0, 0),
        ("PLAIN", plain_token("alice", "secret"), 2000, 2000),
        ("OAUTHBEARER", oauth_token("alice"), 0, 5000),
        ("OAUTHBEARER", oauth_token("alice"), 2000, 2000),
        ("OAUTHBEARER", oauth_token("alice"), 60_000, 5000),
    ):
        clock = Clock()
        login = started(clock, session_ms)
        shake_hands(login, mechanism)
        response, _ = send_token(login, token)
        assert response.session_lifetime_ms == lifetime_ms
        assert not login.is_expired
        clock.now_ms += lifetime_ms
        assert login.is_expired is (lifetime_ms > 0)


def logged_in(clock: Clock) -> Authentication:
    login = started(clock, session_ms=2000)
    shake_hands(login)
    send_token(login, plain_token("alice", "secret"))
    return login


HANDSHAKE = frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)


def test_a_session_is_prolonged_by_a_second_login() -> None:
    clock = Clock()
    login = logged_in(clock)
    clock.now_ms += 1800
    assert not login.begins_reauthentication(frame(MetadataRequest(), 1))
    assert login.begins_reauthentication(HANDSHAKE)
    was_complete = login.is_complete
    shake_hands(login)
    response, _ = send_token(login, plain_token("alice", "secret"))
    assert response.session_lifetime_ms == 2000
    clock.now_ms += 1000
    assert (was_complete, login.is_complete) == (False, True)
    assert not login.is_expired
    assert login.begins_reauthentication(HANDSHAKE), "a second has passed"
    assert not login.begins_reauthentication(HANDSHAKE), "not twice within a second"


def test_a_second_login_as_another_user_fails() -> None:
    login = logged_in(Clock())
    assert login.begins_reauthentication(HANDSHAKE)
    shake_hands(login)
    response, close = send_token(login, plain_token("bob", "x"))
    assert response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "re-authentication" in (response.error_message or "")
    assert close is Close.LATE


def test_a_second_login_by_another_mechanism_closes_one_frame_later() -> None:
    login = logged_in(Clock())
    assert login.begins_reauthentication(HANDSHAKE)
    shake_hands(login, "OAUTHBEARER")
    verdict = login.receive(frame(SaslAuthenticateRequest(auth_bytes=oauth_token("alice")), 2))
    assert verdict == Verdict([], Close.LATE)


def test_without_an_end_a_handshake_is_an_ordinary_request() -> None:
    login = started()
    shake_hands(login)
    send_token(login, plain_token("alice", "secret"))
    assert not login.begins_reauthentication(HANDSHAKE)


def test_metadata_answers_can_be_refused() -> None:
    """Metadata has no error code of its own: the connection is closed without an answer."""
    login = started()
    shake_hands(login)
    verdict = login.receive(frame(MetadataRequest(topics=None), 1))
    assert verdict.close is Close.LATE
    assert verdict.parts == [] or answer(verdict, MetadataResponse, 1)
