"""The security of one broker: its listeners, itself as a client of other brokers, its authorizer.

docs/spec/security.md, sections 1 to 4. Everything that can be wrong with the settings is found when
this is made, before the broker listens, and names the setting. A broker with plaintext listeners
alone pays nothing for what it does not use: the rest is imported for listeners that need it.
"""

import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from odradek.broker.authentication import SaslListener
from odradek.broker.config import BrokerConfig
from odradek.broker.credentials import Credentials
from odradek.broker.listeners import Listener, SecurityProtocol
from odradek.log.offload import Offload
from odradek.security.acls import AclOperation, Authorizer, ResourceType
from odradek.security.principal import ANONYMOUS, Principal
from odradek.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.broker.certificates import Certificates
    from odradek.broker.delegation_tokens import Tokens
    from odradek.broker.key_sets import KeySet
    from odradek.broker.secure_listeners import SecureListeners
    from odradek.security.client import ClientSecurity
    from odradek.security.mapping_rules import PrincipalMapper
    from odradek.security.password_encoder import PasswordEncoder

__all__ = ["BrokerSecurity", "ListenerSecurity"]

LOOPBACK = ("127.0.0.1", "::1", "localhost")
ANY_HOST = "*"
ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"


logger = logging.getLogger(__name__)


@dataclass
class ListenerSecurity:
    """What a connection through one listener must show before it is served.

    Another `tls` counts for connections made from then on.
    """

    listener: Listener
    tls: ssl.SSLContext | None = None
    mapper: "PrincipalMapper | None" = None
    sasl: SaslListener | None = None


class BrokerSecurity:
    """Made once, from the settings the broker starts with. Raises KafkaError(INVALID_CONFIG)."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Callable[[], int],
        rng: Random,
        read_file: Callable[[str], bytes],
        offload: Offload,
    ) -> None:
        self.credentials = Credentials()
        self.authorizer = _authorizer(config)
        self.tokens = _tokens(config, rng)
        listeners = config.listeners()
        self._listeners = {each.name: ListenerSecurity(each) for each in listeners}
        _warn_of_open_listeners(listeners, self.authorizer)
        # How to connect to other brokers; None: in plain text.
        self.inter_broker: ClientSecurity | None = None
        # Whom other brokers take this one for; None: that is not known here.
        self.own_principal: Principal | None = ANONYMOUS
        self.control_plane: ClientSecurity | None = None
        self.certificates: Certificates | None = None
        self.key_sets: list[KeySet] = []
        self.passwords = _password_encoder(config)
        if all(each.protocol is SecurityProtocol.PLAINTEXT for each in listeners):
            return
        from odradek.broker.secure_listeners import SecureListeners

        secure = SecureListeners(
            config,
            self.credentials,
            self.tokens,
            clock=clock,
            rng=rng,
            read_file=read_file,
            offload=offload,
        )
        self.key_sets = secure.key_sets
        self._listeners = {each.name: secure.make(each) for each in listeners}
        self.inter_broker = secure.client_of(self.of(config.inter_broker_listener()))
        self.own_principal = secure.own_principal(
            self.of(config.inter_broker_listener()), self.inter_broker
        )
        control_plane = config.control_plane_listener()
        self.control_plane = (
            self.inter_broker if control_plane is None else secure.client_of(self.of(control_plane))
        )
        self.certificates = self._certificates(config, secure, control_plane)

    def _certificates(
        self, config: BrokerConfig, secure: "SecureListeners", control_plane: str | None
    ) -> "Certificates":
        from odradek.broker.certificates import Certificates

        assert self.inter_broker is not None
        clients = {config.inter_broker_listener(): self.inter_broker}
        if control_plane is not None and self.control_plane is not None:
            clients[control_plane] = self.control_plane
        return Certificates(
            lambda of, using: secure.tls_settings(of.listener, using),
            self._listeners.values(),
            clients,
            config,
        )

    async def start(self) -> None:
        """Fetches what must be there before anyone can log in. Raises KafkaError."""
        for key_set in self.key_sets:
            await key_set.start()

    async def stop(self) -> None:
        for key_set in self.key_sets:
            await key_set.stop()

    def check_own_permission(self) -> None:
        """Warns where other brokers would refuse to let this one replicate, if they have the ACLs
        and super users that it has."""
        principal, authorizer = self.own_principal, self.authorizer
        if authorizer is None or principal is None:
            return
        if not authorizer.allows(
            principal, ANY_HOST, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER
        ):
            logger.warning(
                "this broker is %s to other brokers, which is neither among super.users nor"
                " allowed ClusterAction on the cluster from any host: it could not replicate",
                principal,
            )

    def of(self, listener: str) -> ListenerSecurity:
        return self._listeners[listener]


def _warn_of_open_listeners(listeners: list[Listener], authorizer: Authorizer | None) -> None:
    exposed = [
        each.name
        for each in listeners
        if each.protocol is SecurityProtocol.PLAINTEXT and each.host not in LOOPBACK
    ]
    if exposed and authorizer is None:
        logger.warning(
            "listener %s is open to other machines: any client that reaches it can read,"
            " write and delete everything; see docs/security.md",
            ", ".join(exposed),
        )


def _tokens(config: BrokerConfig, rng: Random) -> "Tokens | None":
    """None without a secret: then there are no delegation tokens."""
    names = ("delegation.token.secret.key", "delegation.token.master.key")
    secret = next((text for name in names if (text := config.text(name))), None)
    if secret is None:
        return None
    from odradek.broker.delegation_tokens import Tokens

    return Tokens(secret, rng.randbytes)


def _password_encoder(config: BrokerConfig) -> "PasswordEncoder | None":
    secret = config.text("password.encoder.secret")
    if not secret:
        return None
    from odradek.security.password_encoder import PasswordEncoder

    return PasswordEncoder(
        secret,
        config.text("password.encoder.old.secret"),
        config.integer("password.encoder.key.length"),
        config.integer("password.encoder.iterations"),
    )


def _authorizer(config: BrokerConfig) -> Authorizer | None:
    name = config.text("authorizer.class.name")
    if not name:
        return None
    if name != ACL_AUTHORIZER:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"authorizer.class.name: only {ACL_AUTHORIZER} is supported"
        )
    written = config.text("super.users") or ""
    try:
        users = {Principal.parse(each.strip()) for each in written.split(";") if each.strip()}
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"super.users: {error}") from None
    return Authorizer(users, allow_if_no_acl=config.flag("allow.everyone.if.no.acl.found"))
