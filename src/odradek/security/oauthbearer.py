"""SASL/OAUTHBEARER (RFC 7628): a bearer token instead of a password, on the broker's side.

docs/spec/security.md, section 3.5. A rejected token is answered with a challenge that says why, as
JSON and without an error; the client confirms with one byte, and only then the login fails. Two
validators: `UnsecuredTokens` accepts anything that is well formed (development only), and
`SignedTokens` checks signatures against a set of public keys. Keys are handed in; fetching them is
the caller's job, off the loop.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from odradek.security.exchange import AUTHORIZATION_ID_DIFFERS, Login, SaslError

__all__ = [
    "InvalidToken",
    "OAuthServer",
    "SignedTokens",
    "UnsecuredTokens",
    "oauth_token",
    "parse_jwks",
]

TOKEN_BYTES_MAX = 64 * 1024
KEY_ID_LENGTH_MAX = 1000
CONFIRMATION = b"\x01"
_FIRST = re.compile(
    rb"n,(?:a=(?P<authzid>[^,\x01]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[^\x01]*\x01)*)\x01", re.DOTALL
)
_BEARER = re.compile(r"bearer +(?P<token>[-A-Za-z0-9._~+/]+=*)\s*", re.IGNORECASE)


class InvalidToken(Exception):
    """Why a token is rejected; the status and scope go to the client."""

    def __init__(self, reason: str, status: str = "invalid_token", scope: str = "") -> None:
        super().__init__(reason)
        self.status = status
        self.scope = scope


@dataclass(frozen=True)
class BearerToken:
    principal: str
    expires_at_ms: int


class TokenValidator(Protocol):
    def validate(self, token: str) -> BearerToken:
        """Raises InvalidToken."""
        ...


def oauth_token(token: str, extensions: Mapping[str, str] | None = None) -> bytes:
    """What a client sends first."""
    pairs = {"auth": f"Bearer {token}", **(extensions or {})}
    return b"n,,\x01" + b"".join(f"{k}={v}\x01".encode() for k, v in pairs.items()) + b"\x01"


class OAuthServer:
    """One login."""

    def __init__(self, validator: TokenValidator) -> None:
        self._validator = validator
        self._challenge = ""
        self._token: BearerToken | None = None
        self.is_complete = False

    def respond(self, token: bytes) -> bytes:
        if self._challenge and token == CONFIRMATION:
            raise SaslError("the client's token was rejected", public=self._challenge)
        if len(token) > TOKEN_BYTES_MAX:
            raise SaslError("the token is larger than 64 KB")
        match = _FIRST.fullmatch(token)
        if match is None:
            raise SaslError("the client's first message is malformed")
        try:
            pairs = dict(
                pair.partition("=")[::2] for pair in match["pairs"].decode().split("\x01") if pair
            )
            authzid = (match["authzid"] or b"").decode()
        except UnicodeDecodeError:
            raise SaslError("the client's first message is not UTF-8") from None
        bearer = _BEARER.fullmatch(pairs.get("auth", ""))
        if bearer is None:
            raise SaslError("the client's first message has no bearer token")
        try:
            valid = self._validator.validate(bearer["token"])
        except InvalidToken as error:
            answer = {"status": error.status}
            if error.scope:
                answer["scope"] = error.scope
            self._challenge = json.dumps(answer, separators=(",", ":"))
            return self._challenge.encode()
        if authzid and authzid != valid.principal:
            raise SaslError(f"authorization id {authzid!r}", public=AUTHORIZATION_ID_DIFFERS)
        self._token = valid
        self.is_complete = True
        return b""

    @property
    def login(self) -> Login:
        assert self._token is not None
        return Login(self._token.principal, expires_at_ms=self._token.expires_at_ms)


@dataclass(frozen=True)
class UnsecuredTokens:
    """Tokens without a signature: for development."""

    now_ms: Callable[[], int]
    principal_claim: str = "sub"
    required_scope: Collection[str] = ()
    skew_ms: int = 0

    def validate(self, token: str) -> BearerToken:
        header, claims, signature, _ = _split(token)
        if header.get("alg") != "none" or signature:
            raise InvalidToken("an unsecured token has alg none and no signature")
        now = self.now_ms()
        expires = _number(claims, "exp")
        if now - self.skew_ms >= expires * 1000:
            raise InvalidToken("the token has expired")
        if "iat" in claims:
            issued = _number(claims, "iat")
            if issued * 1000 > now + self.skew_ms or issued >= expires:
                raise InvalidToken("the token's time of issue is in the future or after its end")
        missing = set(self.required_scope) - set(_scopes(claims))
        if missing:
            scope = f"[{', '.join(sorted(self.required_scope))}]"
            raise InvalidToken("a required scope is missing", "insufficient_scope", scope)
        return BearerToken(_principal(claims, self.principal_claim), int(expires * 1000))


@dataclass
class SignedTokens:
    """Tokens signed with one of a set of public keys (JWKS).

    `unknown_key(kid)` is called when no key has this id, so that the set can be fetched again; the
    client's next attempt may then succeed.
    """

    now_ms: Callable[[], int]
    unknown_key: Callable[[str], None]
    principal_claim: str = "sub"
    audience: Collection[str] = ()
    issuer: str | None = None
    skew_ms: int = 30_000
    keys: Mapping[str, "PublicKey"] = field(default_factory=dict)

    def validate(self, token: str) -> BearerToken:
        header, claims, signature, signed = _split(token)
        kid = header.get("kid")
        if not isinstance(kid, str) or len(kid) > KEY_ID_LENGTH_MAX:
            raise InvalidToken("the token names no key")
        key = self.keys.get(kid)
        if key is None:
            self.unknown_key(kid)
            raise InvalidToken(f"unknown key {kid!r}")
        if not key.verifies(header.get("alg"), signature, signed):
            raise InvalidToken("the signature is wrong")
        self._check_claims(claims)
        return BearerToken(
            _principal(claims, self.principal_claim), int(_number(claims, "exp") * 1000)
        )

    def _check_claims(self, claims: Mapping[str, Any]) -> None:
        now = self.now_ms()
        if now - self.skew_ms >= _number(claims, "exp") * 1000:
            raise InvalidToken("the token has expired")
        _number(claims, "iat")
        if "nbf" in claims and _number(claims, "nbf") * 1000 > now + self.skew_ms:
            raise InvalidToken("the token is not valid yet")
        if self.issuer is not None and claims.get("iss") != self.issuer:
            raise InvalidToken("the token's issuer is not the expected one")
        named = _audience(claims)
        # A token with an audience is not for us unless our audience is configured and in it.
        if (named or self.audience) and not named & set(self.audience):
            raise InvalidToken("the token is meant for another audience")


class PublicKey(Protocol):
    def verifies(self, algorithm: object, signature: bytes, signed: bytes) -> bool: ...


def parse_jwks(text: str | bytes) -> dict[str, PublicKey]:
    """The usable keys of a JSON Web Key Set, by id. Raises ValueError."""
    from odradek.security.jwk import public_key

    try:
        document = json.loads(text)
    except RecursionError:
        raise ValueError("a key set that is nested too deeply") from None
    if not isinstance(document, dict) or not isinstance(document.get("keys"), list):
        raise ValueError("a key set is an object with a list of keys")
    keys: dict[str, PublicKey] = {}
    for each in document["keys"]:
        if isinstance(each, dict) and isinstance(each.get("kid"), str):
            key = public_key(each)
            if key is not None:
                keys[each["kid"]] = key
    return keys


def _split(token: str) -> tuple[Mapping[str, Any], Mapping[str, Any], bytes, bytes]:
    parts = token.split(".")
    if len(parts) != 3:
        raise InvalidToken("a JWT has three parts")
    return (
        _json(parts[0]),
        _json(parts[1]),
        _b64url(parts[2]),
        f"{parts[0]}.{parts[1]}".encode(),
    )


def _json(part: str) -> Mapping[str, Any]:
    try:
        value = json.loads(_b64url(part))
    except (ValueError, RecursionError):
        raise InvalidToken("a part of the token is not JSON") from None
    if not isinstance(value, dict):
        raise InvalidToken("a part of the token is not an object")
    return value


def _b64url(part: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except (binascii.Error, ValueError):
        raise InvalidToken("a part of the token is not base64url") from None


def _number(claims: Mapping[str, Any], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e14:
        raise InvalidToken(f"the claim {name} is missing or not a time")
    return value


def _principal(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not value.strip():
        raise InvalidToken(f"the claim {name} is missing or blank")
    return value


def _audience(claims: Mapping[str, Any]) -> set[str]:
    value = claims.get("aud")
    if isinstance(value, str):
        return {value}
    if value is None or (isinstance(value, list) and all(isinstance(each, str) for each in value)):
        return set(value or ())
    raise InvalidToken("the claim aud is neither a name nor a list of names")


def _scopes(claims: Mapping[str, Any]) -> list[str]:
    value = claims.get("scope", [])
    if isinstance(value, str):
        return value.split()
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
