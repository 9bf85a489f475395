"""Listeners with TLS or SASL, made from the settings; and this broker as a client of such a one.

docs/spec/security.md, sections 1 to 3. Only a broker that has such listeners imports this module.
"""

import base64
import logging
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from odradek.broker.authentication import SaslListener
from odradek.broker.config import BrokerConfig
from odradek.broker.credentials import Credentials
from odradek.broker.key_sets import KeySet, KeySetTimes
from odradek.broker.listeners import Listener
from odradek.broker.security import ListenerSecurity
from odradek.log.offload import Offload
from odradek.security.client import ClientSecurity, InvalidSecurity
from odradek.security.exchange import Login, ServerExchange
from odradek.security.jaas import InvalidJaas, JaasEntry, parse_jaas
from odradek.security.key_set_source import key_set_source
from odradek.security.mapping_rules import InvalidMappingRules, NoMatchingRule, PrincipalMapper
from odradek.security.oauthbearer import (
    OAuthServer,
    SignedTokens,
    TokenValidator,
    UnsecuredTokens,
)
from odradek.security.plain import PlainServer, plain_users
from odradek.security.principal import ANONYMOUS, Principal
from odradek.security.scram import MECHANISMS as SCRAM
from odradek.security.scram import CredentialShape, ScramServer
from odradek.security.tls import (
    ClientAuth,
    TlsSettings,
    certificate_names,
    client_context,
    handshake_succeeds,
    server_context,
)
from odradek.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.delegation_tokens import Tokens

__all__ = ["SecureListeners"]

NONCE_BYTES = 24
SECRET_BYTES = 32
# Kafka's class that checks signatures, and its older name.
SIGNED_TOKENS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
)

logger = logging.getLogger(__name__)


class SecureListeners:
    """Makes the security of one listener after the other."""

    def __init__(
        self,
        config: BrokerConfig,
        credentials: Credentials,
        tokens: "Tokens | None",
        *,
        clock: Callable[[], int],
        rng: Random,
        read_file: Callable[[str], bytes],
        offload: Offload,
    ) -> None:
        # Of the listeners that take signed tokens.
        self.key_sets: list[KeySet] = []
        self._offload = offload
        self._config = config
        self._credentials = credentials
        self._tokens = tokens
        self._clock = clock
        self._rng = rng
        self._read_file = read_file
        self._secret = rng.randbytes(SECRET_BYTES)

    # Listeners

    def make(self, listener: Listener) -> ListenerSecurity:
        """Raises KafkaError(INVALID_CONFIG), naming listener and setting."""
        tls = mapper = sasl = None
        if listener.protocol.has_tls:
            settings = self.tls_settings(listener, self._config)
            tls = _named(listener, lambda: server_context(settings))
            rules = self._config.listener_value(listener.name, "ssl.principal.mapping.rules")
            mapper = _named(listener, lambda: PrincipalMapper(rules or "DEFAULT"))
        if listener.protocol.has_sasl:
            sasl = self._sasl(listener)
        return ListenerSecurity(listener, tls, mapper, sasl)

    def tls_settings(self, listener: Listener, config: BrokerConfig) -> TlsSettings:
        """What a listener has by these settings, with its stores as they are now. Raises
        KafkaError(INVALID_CONFIG)."""

        def setting(name: str) -> str | None:
            # Without the prefix a client's certificate is asked for on SSL listeners only.
            if name == "ssl.client.auth" and listener.protocol.has_sasl:
                prefixed = f"listener.name.{listener.name.lower()}.{name}"
                if not config.is_written(prefixed):
                    return None
            return config.listener_value(listener.name, name)

        settings: TlsSettings = _named(listener, lambda: TlsSettings.read(setting, self._read_file))
        return settings

    def _sasl(self, listener: Listener) -> SaslListener:
        written = self._config.listener_value(listener.name, "sasl.enabled.mechanisms") or ""
        enabled = [each.strip() for each in written.split(",") if each.strip()]
        name = "sasl.jaas.config"
        for ignored in (name, f"listener.name.{listener.name.lower()}.{name}"):
            if self._config.is_written(ignored):
                logger.warning(
                    "listener %s: %s is ignored: it needs listener and mechanism in front",
                    *(listener.name, ignored),
                )
        makers = {mechanism: self._mechanism(listener, mechanism) for mechanism in enabled}
        if not makers:
            raise _invalid(listener, "sasl.enabled.mechanisms is empty")
        sessions = {
            mechanism: int(
                self._config.listener_value(listener.name, "connections.max.reauth.ms", mechanism)
                or 0
            )
            for mechanism in makers
        }
        frame_bytes_max = self._config.listener_value(listener.name, "sasl.server.max.receive.size")
        return SaslListener(
            makers,
            self._principal_of,
            sessions,
            self._clock,
            self._expires_ms_of,
            int(frame_bytes_max or 0),
        )

    def _principal_of(self, login: Login) -> Principal | None:
        if not login.token_id:
            return Principal(login.user)
        return None if self._tokens is None else self._tokens.owner_of(login)

    def _expires_ms_of(self, login: Login) -> int | None:
        if self._tokens is None or not login.token_id:
            return login.expires_at_ms
        return self._tokens.expires_ms_of(login)

    def _mechanism(self, listener: Listener, mechanism: str) -> Callable[[], ServerExchange]:
        if mechanism in SCRAM:
            return lambda: self._scram(mechanism)
        if mechanism not in ("PLAIN", "OAUTHBEARER"):
            raise _invalid(
                listener,
                f"sasl.enabled.mechanisms: {mechanism} is not supported; there are PLAIN,"
                f" {', '.join(SCRAM)} and OAUTHBEARER",
            )
        jaas = self._jaas(listener, mechanism)
        if mechanism == "PLAIN":
            users = plain_users(jaas.options)
            return lambda: PlainServer(users)
        validator = self._token_validator(listener, jaas)
        return lambda: OAuthServer(validator)

    def _scram(self, mechanism: str) -> ScramServer:
        def look_up(name: str, is_token: bool) -> Any:
            if not is_token:
                return self._credentials.find(name, mechanism)
            return None if self._tokens is None else self._tokens.credential(name, mechanism)

        nonce = base64.b64encode(self._rng.randbytes(NONCE_BYTES)).decode()
        return ScramServer(
            SCRAM[mechanism],
            look_up,
            nonce=nonce,
            secret=self._secret,
            shape=self._credentials.common_shape(mechanism) or CredentialShape(),
        )

    def _token_validator(self, listener: Listener, jaas: JaasEntry) -> TokenValidator:
        handler = self._oauth(listener, "sasl.server.callback.handler.class")
        if handler in SIGNED_TOKENS:
            return self._signed_tokens(listener)
        if handler:
            raise _invalid(
                listener,
                f"sasl.server.callback.handler.class: only {SIGNED_TOKENS[0]} is supported",
            )
        logger.warning(
            "listener %s accepts OAUTHBEARER tokens without a signature: for development only",
            listener.name,
        )
        options = jaas.options
        return UnsecuredTokens(
            self._clock,
            options.get("unsecuredValidatorPrincipalClaimName", "sub"),
            options.get("unsecuredValidatorRequiredScope", "").split(),
            int(options.get("unsecuredValidatorAllowableClockSkewMs", 0)),
        )

    def _signed_tokens(self, listener: Listener) -> TokenValidator:
        url = self._oauth(listener, "sasl.oauthbearer.jwks.endpoint.url")
        if not url:
            raise _invalid(listener, "signed tokens need sasl.oauthbearer.jwks.endpoint.url")
        source = _named(listener, lambda: key_set_source(url, self._read_file))
        audience = self._oauth(listener, "sasl.oauthbearer.expected.audience") or ""
        tokens = SignedTokens(
            self._clock,
            lambda kid: None,
            self._oauth(listener, "sasl.oauthbearer.sub.claim.name") or "sub",
            tuple(each.strip() for each in audience.split(",") if each.strip()),
            self._oauth(listener, "sasl.oauthbearer.expected.issuer") or None,
            1000 * int(self._oauth(listener, "sasl.oauthbearer.clock.skew.seconds") or 0),
        )
        endpoint = "sasl.oauthbearer.jwks.endpoint."
        times = KeySetTimes(
            *(
                int(self._oauth(listener, endpoint + name) or 0) / 1000
                for name in ("refresh.ms", "retry.backoff.ms", "retry.backoff.max.ms")
            )
        )
        self.key_sets.append(KeySet(listener.name, tokens, source, self._offload, times))
        return tokens

    def _oauth(self, listener: Listener, name: str) -> str | None:
        return self._config.listener_value(listener.name, name, "OAUTHBEARER")

    def _jaas(self, listener: Listener, mechanism: str) -> JaasEntry:
        name, text = _jaas_name(listener, mechanism), self._jaas_text(listener, mechanism)
        if text is None:
            raise _invalid(listener, f"{mechanism} needs {name}")
        try:
            return parse_jaas(text).require_mechanism(mechanism)
        except InvalidJaas as error:
            raise _invalid(listener, f"{name}: {error}") from None

    def _jaas_text(self, listener: Listener, mechanism: str) -> str | None:
        """With listener and mechanism in front, or not at all, as in Kafka."""
        if not self._config.is_written(_jaas_name(listener, mechanism)):
            return None
        return self._config.listener_value(listener.name, "sasl.jaas.config", mechanism)

    # This broker as a client of others

    def client_of(self, own: ListenerSecurity) -> ClientSecurity:
        """How to connect to the same listener of other brokers."""
        listener, name = own.listener, own.listener.name
        settings: dict[str, str] = {"security.protocol": listener.protocol.name}
        if listener.protocol.has_tls:
            for key in _TLS_NAMES:
                if (value := self._config.listener_value(name, key)) is not None:
                    settings[key] = value
        if own.sasl is not None:
            mechanism = self._config.text("sasl.mechanism.inter.broker.protocol") or ""
            if mechanism not in own.sasl.mechanisms:
                raise _invalid(
                    listener,
                    f"sasl.mechanism.inter.broker.protocol: {mechanism} is not among its"
                    " sasl.enabled.mechanisms",
                )
            settings["sasl.mechanism"] = mechanism
            if (jaas := self._jaas_text(listener, mechanism)) is not None:
                settings["sasl.jaas.config"] = jaas
        try:
            made = ClientSecurity.read(settings, read_file=self._read_file, now_ms=self._clock)
        except InvalidSecurity as error:
            raise _invalid(listener, str(error)) from None
        self._check_own_certificate(own)
        return made

    def own_principal(self, listener: ListenerSecurity, client: ClientSecurity) -> Principal | None:
        """Whom a listener with these settings takes this broker for; None if that is not known."""
        if client.login is not None:
            options = client.login.jaas.options
            if client.login.mechanism == "OAUTHBEARER" or options.get("tokenauth") == "true":
                return None
            return Principal(options["username"])
        if listener.tls is None or listener.mapper is None:
            return ANONYMOUS
        settings = self.tls_settings(listener.listener, self._config)
        if settings.client_auth is ClientAuth.NONE:
            return ANONYMOUS
        try:
            return Principal(listener.mapper.user(certificate_names(settings).subject))
        except NoMatchingRule as error:
            raise _invalid(listener.listener, f"{error}, this broker's own") from None

    def _check_own_certificate(self, own: ListenerSecurity) -> None:
        """Ours must be one that the other brokers, with settings like ours, accept."""
        if own.tls is None:
            return
        lenient = client_context(self.tls_settings(own.listener, self._config))
        lenient.check_hostname = False
        reason = handshake_succeeds(own.tls, lenient)
        if reason is not None:
            raise _invalid(
                own.listener,
                f"its key store cannot be verified with its own trust store: {reason}",
            )


_TLS_NAMES = (
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.key.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
    "ssl.enabled.protocols",
    "ssl.cipher.suites",
    "ssl.endpoint.identification.algorithm",
)


def _jaas_name(listener: Listener, mechanism: str) -> str:
    return f"listener.name.{listener.name.lower()}.{mechanism.lower()}.sasl.jaas.config"


def _named(listener: Listener, make: Callable[[], Any]) -> Any:
    """Adds the listener's name to whatever is wrong with its settings."""
    try:
        return make()
    except (ValueError, InvalidMappingRules) as error:
        raise _invalid(listener, str(error)) from None


def _invalid(listener: Listener, message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, f"listener {listener.name}: {message}")
