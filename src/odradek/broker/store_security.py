"""How this broker connects to ZooKeeper: TLS, the login, and the ACLs of the nodes it makes.

docs/spec/security.md, section 6. Everything that can be wrong with the settings names the setting.
A creator's ACL names the identity that made the node, so that all brokers of a cluster log in to
ZooKeeper as the same user, or with certificates of the same subject.
"""

import ssl
from collections.abc import Callable
from importlib.util import find_spec
from typing import NamedTuple

from odradek.broker.config import BrokerConfig
from odradek.store.api import StoreLogin
from odradek.wire.errors import ErrorCode, KafkaError

__all__ = ["NO_STORE_SECURITY", "StoreSecurity", "store_security"]

JAAS = "odradek.zookeeper.sasl.jaas.config"
SET_ACL = "zookeeper.set.acl"
LOGIN_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
REVOCATION = ("zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable")

# Which setting of the connection with ZooKeeper is which of any other.
_SOURCES = {
    "ssl.keystore.location": "zookeeper.ssl.keystore.location",
    "ssl.keystore.type": "zookeeper.ssl.keystore.type",
    "ssl.keystore.password": "zookeeper.ssl.keystore.password",
    "ssl.truststore.location": "zookeeper.ssl.truststore.location",
    "ssl.truststore.type": "zookeeper.ssl.truststore.type",
    "ssl.truststore.password": "zookeeper.ssl.truststore.password",
    "ssl.cipher.suites": "zookeeper.ssl.cipher.suites",
    "ssl.endpoint.identification.algorithm": "zookeeper.ssl.endpoint.identification.algorithm",
}


class StoreSecurity(NamedTuple):
    """What `open_store` takes beside the address."""

    authentication: tuple[StoreLogin, ...] = ()
    tls: ssl.SSLContext | None = None
    set_acl: bool = False


NO_STORE_SECURITY = StoreSecurity()


def store_security(config: BrokerConfig, read_file: Callable[[str], bytes]) -> StoreSecurity:
    """Raises KafkaError(INVALID_CONFIG)."""
    login = _login(config)
    tls = _tls(config, read_file) if config.flag("zookeeper.ssl.client.enable") else None
    set_acl = config.flag(SET_ACL)
    has_certificate = tls is not None and config.is_written("zookeeper.ssl.keystore.location")
    if set_acl and login is None and not has_certificate:
        raise _invalid(
            f"{SET_ACL}=true needs an identity to name in the ACLs: {JAAS}, or"
            " zookeeper.ssl.client.enable with zookeeper.ssl.keystore.location"
        )
    return StoreSecurity(() if login is None else (login,), tls, set_acl)


def _login(config: BrokerConfig) -> StoreLogin | None:
    text = config.text(JAAS)
    if not text:
        return None
    from odradek.security.jaas import InvalidJaas, parse_jaas

    try:
        jaas = parse_jaas(text)
    except InvalidJaas as error:
        raise _invalid(f"{JAAS}: {error}") from None
    if jaas.module != LOGIN_MODULE:
        raise _invalid(f"{JAAS}: ZooKeeper needs the module {LOGIN_MODULE}, not {jaas.module}")
    user, password = jaas.options.get("username"), jaas.options.get("password")
    if not user or not password or ":" in user:
        raise _invalid(f"{JAAS} needs username, without a colon, and password")
    if find_spec("puresasl") is None:
        raise _invalid(f'{JAAS}: a login with ZooKeeper needs pip install "odradek[security]"')
    return StoreLogin("sasl", f"{user}:{password}")


def _tls(config: BrokerConfig, read_file: Callable[[str], bytes]) -> ssl.SSLContext:
    from odradek.security.tls import TlsSettings, client_context

    for name in REVOCATION:
        if config.flag(name):
            raise _invalid(f"{name}: certificates cannot be checked for revocation")
    values = {name: config.text(source) for name, source in _SOURCES.items()}
    for store in ("ssl.keystore", "ssl.truststore"):
        if values[f"{store}.type"] is None:
            values[f"{store}.type"] = _type_of(values[f"{store}.location"])
    if (values["ssl.keystore.type"] or "").upper() == "PEM":
        # ZooKeeper has one password for the store and the key in it.
        values["ssl.key.password"] = values.pop("ssl.keystore.password")
    # Kafka speaks 1.2 alone by default, and ZooKeeper since 3.9 speaks 1.3 alone: both.
    for name in ("zookeeper.ssl.protocol", "zookeeper.ssl.enabled.protocols"):
        if config.is_written(name):
            values["ssl.enabled.protocols"] = config.text(name)
    try:
        return client_context(TlsSettings.read(values.get, read_file))
    except ValueError as error:
        raise _invalid(str(error).replace("ssl.", "zookeeper.ssl.")) from None


def _type_of(location: str | None) -> str:
    """By the file's name, as ZooKeeper does."""
    return "PEM" if (location or "").lower().endswith(".pem") else "PKCS12"


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
