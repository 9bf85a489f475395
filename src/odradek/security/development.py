"""A certificate authority and certificates for a cluster on one machine: for development.

P-256 keys, since a handshake costs half of what it does with RSA. The authority's key stays in the
directory, so that more certificates can be made; a production cluster has an authority elsewhere.
Needs `cryptography`, from the extra `odradek[security]`.
"""

import datetime
import ipaddress
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.security.jaas import Module, jaas_text

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

__all__ = ["ADMIN", "BROKER", "MECHANISM", "CryptographyMissing", "DevelopmentSecurity"]

ADMIN, BROKER = "admin", "broker"
MECHANISM = "SCRAM-SHA-256"
PROTOCOL = "SASL_SSL"
LIFETIME = datetime.timedelta(days=825)
# Clocks of containers and hosts differ a little.
BACKDATED = datetime.timedelta(days=1)
PASSWORD_BYTES = 24
FILE_MODE, DIRECTORY_MODE = 0o600, 0o700


class CryptographyMissing(Exception):
    """The extra is not installed."""

    def __str__(self) -> str:
        return (
            "certificates need cryptography, which is not installed:"
            ' pip install "odradek[security]"'
        )


@dataclass(frozen=True)
class DevelopmentSecurity:
    """The files in one directory, mode 0700: certificates, keys and the settings that use them."""

    directory: Path

    @property
    def broker_file(self) -> Path:
        """The brokers' settings, for `odradek broker --config`."""
        return self.directory / "broker.properties"

    @property
    def authority_file(self) -> Path:
        return self.directory / "ca.pem"

    @property
    def client_file(self) -> Path:
        """The administrator's settings by Java's names, for Java, our command line and Spark."""
        return self.directory / f"{ADMIN}.properties"

    @property
    def librdkafka_file(self) -> Path:
        """The same by librdkafka's names, for `kcat -F`."""
        return self.directory / f"{ADMIN}.librdkafka.properties"

    @property
    def exists(self) -> bool:
        return self.broker_file.exists()

    def create_in(self, directory: Path, hosts: Sequence[str]) -> dict[str, str]:
        """Makes everything, in a directory that is to become this one.

        The passwords of the users that the cluster must know, by name. Raises CryptographyMissing,
        or FileExistsError.
        """
        try:
            import cryptography  # noqa: F401
        except ModuleNotFoundError:
            raise CryptographyMissing from None
        directory.mkdir(mode=DIRECTORY_MODE, parents=True)
        passwords = {user: secrets.token_urlsafe(PASSWORD_BYTES) for user in (ADMIN, BROKER)}
        authority = _Authority()
        admin = self.librdkafka(ADMIN, passwords[ADMIN])
        written = {
            "ca.key": authority.key_pem,
            self.authority_file.name: authority.pem,
            "broker.pem": authority.issue(BROKER, hosts),
            "client.pem": authority.issue("client", ()),
            self.client_file.name: _properties(self._java(ADMIN, passwords[ADMIN])),
            self.librdkafka_file.name: "".join(f"{k}={v}\n" for k, v in admin.items()),
            self.broker_file.name: _properties(self._broker_settings(passwords[BROKER])),
        }
        for name, text in written.items():
            _write(directory / name, text)
        return passwords

    def _java(self, user: str, password: str) -> dict[str, str]:
        return {
            "security.protocol": PROTOCOL,
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": jaas_text(Module.SCRAM, username=user, password=password),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority_file),
        }

    def librdkafka(self, user: str, password: str) -> dict[str, str]:
        return {
            "security.protocol": PROTOCOL,
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": password,
            "ssl.ca.location": str(self.authority_file),
        }

    def administrator(self) -> dict[str, str]:
        """The administrator's settings, by librdkafka's names."""
        lines = self.librdkafka_file.read_text().splitlines()
        return dict(line.partition("=")[::2] for line in lines)

    def _broker_settings(self, password: str) -> dict[str, str]:
        return {
            "security.inter.broker.protocol": PROTOCOL,
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            f"listener.name.{PROTOCOL.lower()}.{MECHANISM.lower()}.sasl.jaas.config": jaas_text(
                Module.SCRAM, username=BROKER, password=password
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.directory / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority_file),
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": f"User:{ADMIN};User:{BROKER}",
        }


class _Authority:
    def __init__(self) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec

        self._key = ec.generate_private_key(ec.SECP256R1())
        name = _name("Odradek development CA")
        usage = _usage(key_cert_sign=True, crl_sign=True)
        self._certificate = (
            _builder(name, name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(self._identifier(), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def pem(self) -> str:
        return _pem(self._certificate)

    @property
    def key_pem(self) -> str:
        return _key_pem(self._key)

    def _identifier(self) -> "x509.SubjectKeyIdentifier":
        from cryptography import x509

        return x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())

    def issue(self, name: str, hosts: Sequence[str]) -> str:
        """Chain and key of a new certificate. A broker is server and client at once."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID

        key = ec.generate_private_key(ec.SECP256R1())
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if hosts:
            purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._identifier())
        made = (
            _builder(_name(name), self._certificate.subject, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(issuer, critical=False)
        )
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            made = made.add_extension(names, critical=False)
        return _pem(made.sign(self._key, hashes.SHA256())) + self.pem + _key_pem(key)


def _builder(
    subject: "x509.Name", issuer: "x509.Name", key: "EllipticCurvePrivateKey"
) -> "x509.CertificateBuilder":
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + LIFETIME)
    )


def _name(common_name: str) -> "x509.Name":
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(host: str) -> "x509.GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> "x509.KeyUsage":
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: "x509.Certificate") -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode()


def _key_pem(key: "EllipticCurvePrivateKey") -> str:
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def _write(path: Path, text: str) -> None:
    """A file that only its owner can read, from its first byte on."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "w") as file:
        file.write(text)


def _properties(settings: Mapping[str, str]) -> str:
    """Java's properties: a backslash escapes, so it stands twice."""
    escaped = ((name, value.replace("\\", "\\\\")) for name, value in settings.items())
    return "".join(f"{name}={value}\n" for name, value in escaped)
