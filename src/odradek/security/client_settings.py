"""A client's security settings: which names there are, and librdkafka's beside Java's.

docs/spec/security.md, section 8. Settings that would change what is verified or how a login is made
and that we cannot carry out are refused with the reason; a name that does not exist is a typing
error, and ignoring it could leave a connection unprotected.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches

from odradek.security.jaas import Module, jaas_text

__all__ = ["SECRET_SETTINGS", "InvalidSecurity", "is_security_setting", "java_settings"]

PREFIXES = ("security.", "ssl.", "sasl.")
SECURED_LOGIN_HANDLERS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
)

_HEEDED = [
    "security.protocol",
    "sasl.mechanism",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.header.urlencode",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "ssl.enabled.protocols",
    "ssl.cipher.suites",
]
_LIBRDKAFKA = [
    "sasl.mechanisms",
    "sasl.username",
    "sasl.password",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
]
# Java's, accepted so that its files can be used as they are: they change nothing here.
_NO_EFFECT = [
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.service.name",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.login.retry.backoff.max.ms",
    "sasl.login.retry.backoff.ms",
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.sub.claim.name",
    "ssl.keymanager.algorithm",
    "ssl.protocol",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
]
_REFUSED = {
    "ssl.engine.factory.class": "Java classes cannot be loaded",
    "sasl.client.callback.handler.class": "Java classes cannot be loaded",
    "sasl.login.class": "Java classes cannot be loaded",
    "security.providers": "Java classes cannot be loaded",
}
SECRET_SETTINGS = frozenset(
    {
        "sasl.jaas.config",
        "sasl.password",
        "ssl.key.password",
        "ssl.keystore.password",
        "ssl.truststore.password",
        "ssl.keystore.key",
    }
)


class InvalidSecurity(ValueError):
    """Settings that cannot be used; the message names the setting, never a secret."""


def is_security_setting(name: str) -> bool:
    return name.startswith(PREFIXES)


def java_settings(given: Mapping[str, str], read_file: Callable[[str], bytes]) -> dict[str, str]:
    """The security settings among these, under Java's names. Raises InvalidSecurity."""
    settings = {name: value for name, value in given.items() if is_security_setting(name)}
    for name in settings:
        _check_name(name)
    handler = settings.get("sasl.login.callback.handler.class")
    if handler and handler not in SECURED_LOGIN_HANDLERS:
        raise InvalidSecurity(
            "sasl.login.callback.handler.class: only Kafka's own OAuthBearerLoginCallbackHandler"
            " is known; other Java classes cannot be loaded"
        )
    _rename(settings, "sasl.mechanisms", "sasl.mechanism")
    _rename(settings, "ssl.ca.location", "ssl.truststore.location")
    if "ssl.ca.location" in given:
        settings["ssl.truststore.type"] = "PEM"
    _take_user(settings)
    _take_key_files(settings, read_file)
    return settings


def _check_name(name: str) -> None:
    if name in _REFUSED:
        raise InvalidSecurity(f"{name} is not supported: {_REFUSED[name]}")
    known = (*_HEEDED, *_LIBRDKAFKA, *_NO_EFFECT)
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InvalidSecurity(f"there is no setting {name}{hint}")


def _rename(settings: dict[str, str], alias: str, name: str) -> None:
    if alias in settings:
        _refuse_both(settings, alias, name)
        settings[name] = settings.pop(alias)


def _take_user(settings: dict[str, str]) -> None:
    user, password = settings.pop("sasl.username", None), settings.pop("sasl.password", None)
    if user is None and password is None:
        return
    if user is None or password is None:
        raise InvalidSecurity("sasl.username and sasl.password go together")
    if "sasl.jaas.config" in settings:
        raise InvalidSecurity("sasl.username and sasl.jaas.config exclude each other")
    module = Module.BY_MECHANISM.get(settings.get("sasl.mechanism", ""))
    if module is not None:  # without one, the mechanism is what is wrong
        settings["sasl.jaas.config"] = jaas_text(module, username=user, password=password)


def _take_key_files(settings: dict[str, str], read_file: Callable[[str], bytes]) -> None:
    names = ("ssl.certificate.location", "ssl.key.location")
    paths = [settings.pop(name, None) for name in names]
    if not any(paths):
        return
    if not all(paths):
        raise InvalidSecurity(f"{names[0]} and {names[1]} go together")
    _refuse_both(settings, names[0], "ssl.keystore.location")
    texts = []
    for name, path in zip(names, paths, strict=True):
        try:
            texts.append(read_file(path or "").decode("ascii"))
        except OSError as error:
            raise InvalidSecurity(f"{name}: cannot read {path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise InvalidSecurity(f"{name}: {path} is not PEM") from None
    settings |= {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": texts[0],
        "ssl.keystore.key": texts[1],
    }


def _refuse_both(settings: Mapping[str, str], alias: str, name: str) -> None:
    if name in settings:
        raise InvalidSecurity(f"{alias} and {name} exclude each other")
