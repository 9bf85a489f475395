"""Our own side of a secured connection: what to verify a broker with, and what to log in with.

The same settings, by Java's names, serve the client, the command line, Spark and the connections
between brokers. docs/spec/security.md, section 8. The login: ApiVersions v0, SaslHandshake v1,
SaslAuthenticate; a broker that limits a session is logged in to again before it ends.
"""

import asyncio
import base64
import logging
import secrets
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol, TypeAlias, TypeVar

from odradek.security.bearer_tokens import token_source
from odradek.security.client_settings import InvalidSecurity, java_settings
from odradek.security.exchange import SaslError
from odradek.security.jaas import InvalidJaas, JaasEntry, parse_jaas
from odradek.security.oauthbearer import oauth_token
from odradek.security.plain import plain_token
from odradek.security.scram import MECHANISMS, ScramClient, salted_password
from odradek.security.tls import TlsSettings, client_context
from odradek.wire.connection import Connection
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from odradek.wire.schema import Message, Request

__all__ = ["ClientSecurity", "InvalidSecurity", "Login", "SaslLogin"]

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
AUTHENTICATE_VERSION_MAX = 2
# A session is renewed when between these shares of it have passed, at random, as Java does.
RENEWAL = (0.85, 0.95)
NONCE_BYTES = 24

logger = logging.getLogger(__name__)

R = TypeVar("R", bound=Message)

Offload: TypeAlias = Callable[[Callable[[], Any]], Awaitable[Any]]
# Logs a connection in that has just been made.
Login: TypeAlias = Callable[[Connection], Awaitable[None]]


class Send(Protocol):
    """Sends a request of the login, and waits for its response."""

    async def __call__(self, message: Request[R], version: int) -> R: ...


async def _in_place(work: Callable[[], Any]) -> Any:
    return work()


def _no_token() -> str:
    raise SaslError("OAUTHBEARER needs a token, and none is configured")


@dataclass(frozen=True, repr=False)
class SaslLogin:
    """How to log in. Key derivation is done once for each salt, off the loop."""

    mechanism: str
    jaas: JaasEntry
    offload: Offload = _in_place
    rng: Random = field(default_factory=secrets.SystemRandom)
    bearer_token: Callable[[], str] = _no_token
    _salted: dict[tuple[bytes, int], bytes] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"SaslLogin({self.mechanism}, {self.jaas!r})"

    async def __call__(self, connection: Connection) -> None:
        """Logs in, and keeps the session alive for as long as the connection lives."""
        versions = await connection.request(ApiVersionsRequest(), 0)
        served = {each.api_key: each.max_version for each in versions.api_keys}
        version = min(served.get(SaslAuthenticateRequest.API_KEY, 0), AUTHENTICATE_VERSION_MAX)
        lifetime_ms = await self._log_in(connection.request, version)
        if lifetime_ms:
            self._renew_later(connection, version, lifetime_ms)

    def _renew_later(self, connection: Connection, version: int, lifetime_ms: int) -> None:
        delay_s = lifetime_ms / 1000 * self.rng.uniform(*RENEWAL)
        renewal = asyncio.get_running_loop().create_task(
            self._renew(connection, version, delay_s), name="SASL re-authentication"
        )
        previous = connection.on_lost

        def lost() -> None:
            renewal.cancel()
            previous()

        connection.on_lost = lost

    async def _renew(self, connection: Connection, version: int, delay_s: float) -> None:
        while True:
            await asyncio.sleep(delay_s)
            try:
                async with connection.held():
                    lifetime_ms = await self._log_in(connection.request_now, version)
            except (KafkaError, ConnectionError, TimeoutError) as error:
                logger.warning("%s: re-authentication failed: %s", connection.peer, error)
                connection.close()
                return
            delay_s = lifetime_ms / 1000 * self.rng.uniform(*RENEWAL)
            if not lifetime_ms:
                return

    async def _log_in(self, send: Send, version: int) -> int:
        """The exchange; the session's lifetime in milliseconds, 0 without an end."""
        answer = await send(SaslHandshakeRequest(mechanism=self.mechanism), 1)
        if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_SASL_MECHANISM,
                f"sasl.mechanism {self.mechanism} is not enabled; the broker has"
                f" {', '.join(answer.mechanisms) or 'none'}",
            )
        if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise KafkaError(
                ErrorCode.ILLEGAL_SASL_STATE,
                "security.protocol: this listener of the broker takes no login",
            )
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code), "the broker refuses to authenticate")

        lifetime_ms = 0

        async def exchange(token: bytes) -> bytes:
            nonlocal lifetime_ms
            reply = await send(SaslAuthenticateRequest(auth_bytes=token), version)
            if reply.error_code:
                reason = reply.error_message or "the broker rejects the login"
                raise KafkaError(ErrorCode(reply.error_code), f"{reason}; check sasl.jaas.config")
            lifetime_ms = reply.session_lifetime_ms if version >= 1 else 0
            return bytes(reply.auth_bytes)

        try:
            await self._exchange(exchange)
        except SaslError as error:
            raise KafkaError(
                ErrorCode.SASL_AUTHENTICATION_FAILED, f"{error}; check sasl.jaas.config"
            ) from None
        return lifetime_ms

    async def _exchange(self, send: Callable[[bytes], Awaitable[bytes]]) -> None:
        options = self.jaas.options
        if self.mechanism == "PLAIN":
            await send(plain_token(options["username"], options["password"]))
        elif self.mechanism == "OAUTHBEARER":
            challenge = await send(oauth_token(await self.offload(self.bearer_token)))
            if challenge:
                await send(b"\x01")  # raises: the broker rejects with its reason
        else:
            await self._scram(send)

    async def _scram(self, send: Callable[[bytes], Awaitable[bytes]]) -> None:
        mechanism, options = MECHANISMS[self.mechanism], self.jaas.options
        nonce = base64.b64encode(self.rng.randbytes(NONCE_BYTES)).decode()
        extensions = {"tokenauth": "true"} if options.get("tokenauth") == "true" else {}
        client = ScramClient(mechanism, options["username"], nonce=nonce, extensions=extensions)
        client.challenge(await send(client.first()))
        key = client.salt, client.iterations
        if key not in self._salted:
            password = options["password"]
            self._salted[key] = await self.offload(
                lambda: salted_password(mechanism, password, *key)
            )
        client.verify(await send(client.prove(self._salted[key])))


@dataclass(repr=False)
class ClientSecurity:
    """How to connect, for one set of settings: what `Connection.open` takes as its security.

    Another `tls` counts for connections made from then on.
    """

    tls: ssl.SSLContext | None = None
    login: SaslLogin | None = None

    def __repr__(self) -> str:
        return f"ClientSecurity(tls={self.tls is not None}, login={self.login!r})"

    @classmethod
    def read(
        cls,
        settings: Mapping[str, str],
        *,
        read_file: Callable[[str], bytes],
        now_ms: Callable[[], int],
        offload: Offload = _in_place,
    ) -> "ClientSecurity":
        """From settings by Java's names, or librdkafka's. Raises InvalidSecurity."""
        settings = java_settings(settings, read_file)
        protocol = settings.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in PROTOCOLS:
            raise InvalidSecurity(
                f"security.protocol: {protocol} is not one of {', '.join(PROTOCOLS)}"
            )
        tls = None
        if protocol.endswith("SSL"):
            try:
                tls = client_context(TlsSettings.read(settings.get, read_file))
            except ValueError as error:
                raise InvalidSecurity(str(error)) from None
        if not protocol.startswith("SASL"):
            return cls(tls)
        mechanism, jaas = _credentials(settings)
        if mechanism != "OAUTHBEARER":
            return cls(tls, SaslLogin(mechanism, jaas, offload))
        try:
            source = token_source(settings, jaas, read_file, now_ms)
        except ValueError as error:
            raise InvalidSecurity(str(error)) from None
        return cls(tls, SaslLogin(mechanism, jaas, offload, bearer_token=source))


def _credentials(settings: Mapping[str, str]) -> tuple[str, JaasEntry]:
    mechanism = settings.get("sasl.mechanism", "")
    if mechanism not in ("PLAIN", "OAUTHBEARER", *MECHANISMS):
        raise InvalidSecurity(
            f"sasl.mechanism: {mechanism or 'unset'} is not PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"
            " or OAUTHBEARER"
        )
    text = settings.get("sasl.jaas.config")
    if not text:
        raise InvalidSecurity(f"sasl.jaas.config must be set for {mechanism}")
    try:
        jaas = parse_jaas(text).require_mechanism(mechanism)
    except InvalidJaas as error:
        raise InvalidSecurity(f"sasl.jaas.config: {error}") from None
    if mechanism != "OAUTHBEARER" and not {"username", "password"} <= set(jaas.options):
        raise InvalidSecurity("sasl.jaas.config needs username and password")
    return mechanism, jaas
