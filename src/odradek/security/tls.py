"""TLS contexts from Kafka's `ssl.*` settings, for listeners and for connections we open.

docs/spec/security.md, sections 2.1 and 2.2. Every wrong combination is refused with the name of the
setting, before anything listens. A context is immutable here: new certificates make a new one.
"""

import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple

from odradek.security.key_material import (
    InvalidStore,
    KeyMaterial,
    key_material,
    key_store,
    trust_store,
    trusted_certificates,
)

__all__ = [
    "CertificateNames",
    "ClientAuth",
    "TlsSettings",
    "certificate_names",
    "client_context",
    "handshake_succeeds",
    "server_context",
]

PEM = "PEM"
# X509_V_FLAG_NO_CHECK_TIME, which the standard library has no name for.
IGNORE_TIME = 0x200000
_STORE_TYPES = frozenset({"JKS", "PKCS12", PEM})
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CIPHERS_1_3 = frozenset(
    {
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_AES_128_CCM_SHA256",
        "TLS_AES_128_CCM_8_SHA256",
    }
)


class ClientAuth(Enum):
    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"

    @property
    def verify_mode(self) -> ssl.VerifyMode:
        return {
            ClientAuth.NONE: ssl.CERT_NONE,
            ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
            ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
        }[self]


@dataclass(frozen=True, repr=False)
class TlsSettings:
    """What a listener, or a connection we open, was configured with. Stores are read once."""

    key: KeyMaterial | None
    trusted: str | None  # PEM; None means the system's
    client_auth: ClientAuth = ClientAuth.NONE
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()
    verifies_host: bool = True

    def __repr__(self) -> str:
        return f"TlsSettings(client_auth={self.client_auth.value}, protocols={self.protocols})"

    @classmethod
    def read(
        cls, setting: Callable[[str], str | None], read_file: Callable[[str], bytes]
    ) -> "TlsSettings":
        """From settings by Kafka's names. Raises InvalidStore or ValueError, naming the setting."""
        algorithm = setting("ssl.endpoint.identification.algorithm")
        if (algorithm or "https").lower() not in ("https",) and algorithm != "":
            raise ValueError(f"ssl.endpoint.identification.algorithm: {algorithm!r} is not known")
        protocols = _names(setting("ssl.enabled.protocols")) or ("TLSv1.2", "TLSv1.3")
        if unknown := set(protocols) - set(_VERSIONS):
            raise ValueError(f"ssl.enabled.protocols: {', '.join(sorted(unknown))} not supported")
        text = setting("ssl.client.auth") or "none"
        if text not in {each.value for each in ClientAuth}:
            raise ValueError(f"ssl.client.auth: {text!r} is not none, requested or required")
        return cls(
            _key(setting, read_file),
            _trusted(setting, read_file),
            ClientAuth(text),
            protocols,
            _names(setting("ssl.cipher.suites")),
            algorithm != "",
        )


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    if settings.key is None:
        raise InvalidStore("a TLS listener needs ssl.keystore.location or ssl.keystore.key")
    context = _context(ssl.PROTOCOL_TLS_SERVER, settings)
    context.verify_mode = settings.client_auth.verify_mode
    # Of TLS 1.3: a client that resumes a session is not asked for its certificate again. Those of
    # 1.2 cannot be switched off from Python; they end with this context, when stores are replaced.
    context.num_tickets = 0
    return context


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    context = _context(ssl.PROTOCOL_TLS_CLIENT, settings)
    context.check_hostname = settings.verifies_host
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def handshake_succeeds(
    server: ssl.SSLContext, client: ssl.SSLContext, host: str | None = None
) -> str | None:
    """Tries both contexts against each other in memory; why it fails, or None."""
    try:
        _shake_hands(server, client, host)
    except ssl.SSLError as error:
        return str(error.reason or error)
    return None


def _shake_hands(
    server: ssl.SSLContext, client: ssl.SSLContext, host: str | None = None
) -> ssl.SSLObject:
    """The client's side of a handshake in memory. Raises SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(8):
        pending = []
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pending.append(side)
        if not pending:
            return sides[0]
    raise ssl.SSLError("the handshake does not end")


class CertificateNames(NamedTuple):
    """The subject in Java's form, and the alternative names with their kinds."""

    subject: str
    alternatives: frozenset[tuple[str, str]]


def certificate_names(settings: TlsSettings) -> CertificateNames:
    """Of the key store's certificate, also after it has expired. Raises ValueError."""
    from odradek.security.distinguished_name import subject_text

    if settings.key is None:
        raise InvalidStore("there is no key store")
    # The standard library shows the names of a verified certificate only: so it is trusted here.
    server = server_context(replace(settings, client_auth=ClientAuth.NONE))
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    flags = client.verify_flags | ssl.VERIFY_X509_PARTIAL_CHAIN | IGNORE_TIME
    client.verify_flags = ssl.VerifyFlags(flags)
    client.load_verify_locations(cadata=settings.key.chain)
    try:
        side = _shake_hands(server, client)
    except ssl.SSLError as error:
        raise InvalidStore(f"the certificate cannot be used: {error.reason or error}") from None
    shown, certificate = side.getpeercert() or {}, side.getpeercert(binary_form=True)
    names: Any = shown.get("subjectAltName", ())
    return CertificateNames(subject_text(certificate or b""), frozenset(names))


def _context(protocol: int, settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    versions = [_VERSIONS[each] for each in settings.protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    # In Java every certificate of a trust store is an anchor, not only the self-signed ones.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _choose_ciphers(context, settings.cipher_suites)
    if settings.key is not None:
        _load_key(context, settings.key)
    if settings.trusted is None:
        context.load_default_certs()
    else:
        context.load_verify_locations(cadata=settings.trusted)
    return context


def _choose_ciphers(context: ssl.SSLContext, suites: tuple[str, ...]) -> None:
    """TLS 1.3 suites cannot be chosen from Python: a list without any caps the version at 1.2."""
    if not suites:
        return
    older = [openssl_cipher(each) for each in suites if each not in _CIPHERS_1_3]
    if len(older) == len(suites):
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if older:
        try:
            context.set_ciphers(":".join(older))
        except ssl.SSLError:
            raise ValueError(f"ssl.cipher.suites: none of {', '.join(suites)} is known") from None
    elif context.minimum_version != ssl.TLSVersion.TLSv1_3:
        context.minimum_version = ssl.TLSVersion.TLSv1_3


def openssl_cipher(name: str) -> str:
    """OpenSSL's name of a TLS 1.2 suite, given IANA's."""
    exchange, found, cipher = name.removeprefix("TLS_").partition("_WITH_")
    if not found or not name.startswith("TLS_"):
        raise ValueError(f"ssl.cipher.suites: {name!r} is not a TLS cipher suite")
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256")
    cipher = cipher.replace("_CBC_", "_").replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    prefix = "" if exchange == "RSA" else exchange.replace("_", "-") + "-"
    return prefix + cipher.replace("_", "-")


def _load_key(context: ssl.SSLContext, material: KeyMaterial) -> None:
    def no_prompt() -> str:
        raise InvalidStore("the private key is encrypted, and ssl.key.password is not set")

    with _as_file(material.chain + material.key) as path:
        try:
            context.load_cert_chain(path, password=material.key_password or no_prompt)
        except (ssl.SSLError, ValueError, OSError) as error:
            reason = getattr(error, "reason", None) or error
            raise InvalidStore(f"key and certificate cannot be used: {reason}") from None


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """OpenSSL takes a key by its path only: an anonymous file, not one on disk, where there are."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("key", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, text.encode())
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile() as file:  # mode 0600
            file.write(text.encode())
            file.flush()
            yield file.name


def _key(
    setting: Callable[[str], str | None], read_file: Callable[[str], bytes]
) -> KeyMaterial | None:
    location, password = setting("ssl.keystore.location"), setting("ssl.keystore.password")
    key, chain = setting("ssl.keystore.key"), setting("ssl.keystore.certificate.chain")
    key_password = setting("ssl.key.password")
    is_pem = _store_type(setting, "ssl.keystore.type") == PEM
    if bool(key) != bool(chain):
        raise InvalidStore("ssl.keystore.key and ssl.keystore.certificate.chain go together")
    if key and chain:
        if not is_pem:
            raise InvalidStore("ssl.keystore.key needs ssl.keystore.type=PEM")
        if location:
            raise InvalidStore("ssl.keystore.key and ssl.keystore.location exclude each other")
        return key_material(chain + "\n" + key, key_password, "ssl.keystore.key")
    if not location:
        if password:
            raise InvalidStore("ssl.keystore.password is set without ssl.keystore.location")
        return None
    if is_pem and password:
        raise InvalidStore("ssl.keystore.password has no use with PEM: set ssl.key.password")
    if not is_pem and not password:
        raise InvalidStore(f"{location} needs ssl.keystore.password")
    data = _contents(read_file, location, "ssl.keystore.location")
    return key_store(data, is_pem, password, key_password, location)


def _trusted(setting: Callable[[str], str | None], read_file: Callable[[str], bytes]) -> str | None:
    location, password = setting("ssl.truststore.location"), setting("ssl.truststore.password")
    certificates = setting("ssl.truststore.certificates")
    is_pem = _store_type(setting, "ssl.truststore.type") == PEM
    if certificates:
        if not is_pem:
            raise InvalidStore("ssl.truststore.certificates needs ssl.truststore.type=PEM")
        if location:
            raise InvalidStore(
                "ssl.truststore.certificates and ssl.truststore.location exclude each other"
            )
        return trusted_certificates(certificates, "ssl.truststore.certificates")
    if not location:
        if password:
            raise InvalidStore("ssl.truststore.password is set without ssl.truststore.location")
        return None
    if is_pem and password:
        raise InvalidStore("ssl.truststore.password has no use with PEM")
    data = _contents(read_file, location, "ssl.truststore.location")
    return trust_store(data, is_pem, password, location)


def _store_type(setting: Callable[[str], str | None], name: str) -> str:
    kind = (setting(name) or "JKS").upper()
    if kind not in _STORE_TYPES:
        raise InvalidStore(f"{name}: {kind} is not PEM, PKCS12 or JKS")
    return kind


def _contents(read_file: Callable[[str], bytes], path: str, name: str) -> bytes:
    try:
        return read_file(path)
    except OSError as error:
        raise InvalidStore(f"{name}: cannot read {path}: {error.strerror}") from None


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(each.strip() for each in (text or "").split(",") if each.strip())
