"""New certificates for the listeners of a running broker (KIP-226).

docs/spec/security.md, section 2.5. Stores are read again when their settings change, when this
broker's settings are altered at all (so an operator who has replaced a file alters one to the value
that it has), and on SIGHUP. What is read counts for connections made from then on. A store that
cannot be accepted leaves the one before in place.
"""

import logging
from collections.abc import Callable, Iterable

from odradek.broker.config import BrokerConfig
from odradek.broker.security import ListenerSecurity
from odradek.security.client import ClientSecurity
from odradek.security.tls import (
    TlsSettings,
    certificate_names,
    client_context,
    handshake_succeeds,
    server_context,
)
from odradek.wire.errors import ErrorCode, KafkaError

__all__ = ["Certificates"]

logger = logging.getLogger(__name__)


class Certificates:
    """Of all TLS listeners of one broker.

    `read` finds a listener's settings and stores; it raises KafkaError. `clients` are what this
    broker connects to other brokers with, by the name of the listener they go to.
    """

    def __init__(
        self,
        read: Callable[[ListenerSecurity, BrokerConfig], TlsSettings],
        listeners: Iterable[ListenerSecurity],
        clients: dict[str, ClientSecurity],
        config: BrokerConfig,
    ) -> None:
        self._read = read
        self._config = config
        self._clients = clients
        self._listeners = [each for each in listeners if each.tls is not None]
        self._current = {each.listener.name: read(each, config) for each in self._listeners}
        config.on_change(self._settings_changed)

    def check(self, config: BrokerConfig) -> None:
        """Raises KafkaError(INVALID_REQUEST) if these settings, or the files now, are no good."""
        for security in self._listeners:
            try:
                self._accepted(security, config)
            except KafkaError as error:
                raise KafkaError(ErrorCode.INVALID_REQUEST, error.message) from None

    def reload(self) -> None:
        """Take what is new; what cannot be taken is logged."""
        for security in self._listeners:
            name = security.listener.name
            try:
                accepted = self._accepted(security, self._config)
            except KafkaError as error:
                logger.error("listener %s keeps its certificate: %s", name, error.message)
                continue
            if accepted is None:
                continue
            self._current[name] = accepted
            security.tls = server_context(accepted)
            if name in self._clients:
                self._clients[name].tls = client_context(accepted)
            logger.info("listener %s has a new certificate or trust store", name)

    def _settings_changed(self, changed: frozenset[str]) -> None:
        if any(".ssl." in name for name in changed):
            self.reload()

    def _accepted(self, security: ListenerSecurity, config: BrokerConfig) -> TlsSettings | None:
        """What a listener would have, None if nothing is new. Raises KafkaError."""
        name = security.listener.name
        before, after = self._current[name], self._read(security, config)
        if after == before:
            return None
        try:
            self._check(security, before, after, config)
        except ValueError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"listener {name}: {error}") from None
        return after

    def _check(
        self,
        security: ListenerSecurity,
        before: TlsSettings,
        after: TlsSettings,
        config: BrokerConfig,
    ) -> None:
        """Raises ValueError."""
        name = security.listener.name
        server = server_context(after)
        if before.trusted is None and after.trusted is not None:
            raise ValueError("a trust store cannot be added to a listener that runs")
        assert security.tls is not None
        old, new = certificate_names(before), certificate_names(after)
        may = {
            setting: config.listener_value(name, setting) == "true"
            for setting in ("ssl.allow.dn.changes", "ssl.allow.san.changes")
        }
        if old.subject.lower() != new.subject.lower() and not may["ssl.allow.dn.changes"]:
            raise ValueError(
                f"the certificate's subject is {new.subject} instead of {old.subject}:"
                " ssl.allow.dn.changes is false"
            )
        lost = old.alternatives - new.alternatives
        if lost and not may["ssl.allow.san.changes"]:
            names = ", ".join(f"{kind} {value}" for kind, value in sorted(lost))
            raise ValueError(f"the certificate lacks {names}: ssl.allow.san.changes is false")
        if name not in self._clients:
            return
        # Brokers change one after the other: meanwhile each must accept the other's.
        for a_server, client, what in (
            (security.tls, after, "the old certificate is not accepted with the new settings"),
            (server, before, "the new certificate is not accepted with the old settings"),
        ):
            lenient = client_context(client)
            lenient.check_hostname = False
            if reason := handshake_succeeds(a_server, lenient):
                raise ValueError(f"{what}: {reason}")
