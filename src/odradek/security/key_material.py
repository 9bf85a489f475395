"""Keys and certificates from Kafka's store settings, as PEM text that OpenSSL reads.

docs/spec/security.md, section 2.1. Three sources: PEM in the setting itself, a PEM file, a PKCS12
file. Java opens PKCS12 content whatever the store's type says, and `keytool` has written nothing
else for years, so the first bytes decide and not the type; real JKS is refused with the command
that converts it.
"""

import re
from dataclasses import dataclass

__all__ = ["InvalidStore", "KeyMaterial", "key_material", "normalize_pem", "trusted_certificates"]

JKS_MAGIC = bytes.fromhex("feedfeed")
DER_SEQUENCE = 0x30
LINE_LENGTH = 64
_BLOCK = re.compile(
    r"-----BEGIN ([A-Z0-9 ]+)-----(?P<body>[^-]*)-----END \1-----",
)
_ENCRYPTION_HEADER = re.compile(r"(?:Proc-Type|DEK-Info):[^\n]*\n")


class InvalidStore(ValueError):
    """A key or trust store cannot be used. The message names the file, never a secret."""


@dataclass(frozen=True, repr=False)
class KeyMaterial:
    """A private key with its certificate chain, as PEM."""

    chain: str
    key: str
    key_password: str | None = None

    def __repr__(self) -> str:
        return "KeyMaterial([hidden])"


def normalize_pem(text: str) -> list[tuple[str, str]]:
    """Each block with its label. White space may be anything: one line is legal in Kafka."""
    blocks = []
    for match in _BLOCK.finditer(text):
        label, body = match[1], match["body"]
        if _ENCRYPTION_HEADER.search(body):
            blocks.append(
                (label, match[0] + "\n")
            )  # an old encrypted key: headers need their lines
            continue
        packed = "".join(body.split())
        lines = [packed[at : at + LINE_LENGTH] for at in range(0, len(packed), LINE_LENGTH)]
        blocks.append(
            (label, "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""]))
        )
    return blocks


def key_material(pem: str, key_password: str | None, where: str) -> KeyMaterial:
    """A certificate chain and exactly one private key out of PEM text."""
    blocks = normalize_pem(pem)
    keys = [text for label, text in blocks if label.endswith("PRIVATE KEY")]
    chain = "".join(text for label, text in blocks if label == "CERTIFICATE")
    if len(keys) != 1:
        raise InvalidStore(f"{where} must contain exactly one private key, and has {len(keys)}")
    if not chain:
        raise InvalidStore(f"{where} contains no certificate")
    return KeyMaterial(chain, keys[0], key_password)


def trusted_certificates(pem: str, where: str) -> str:
    """All certificates of PEM text."""
    found = "".join(text for label, text in normalize_pem(pem) if label == "CERTIFICATE")
    if not found:
        raise InvalidStore(f"{where} contains no certificate")
    return found


def key_store(
    data: bytes, is_pem: bool, password: str | None, key_password: str | None, where: str
) -> KeyMaterial:
    """A key store file's contents."""
    if is_pem:
        return key_material(_text(data, where), key_password, where)
    key, chain = _pkcs12(data, password, where)
    if key is None or not chain:
        raise InvalidStore(f"{where} has no private key with its certificate")
    return KeyMaterial("".join(chain), key)


def trust_store(data: bytes, is_pem: bool, password: str | None, where: str) -> str:
    """A trust store file's contents: the certificates in it."""
    if is_pem:
        return trusted_certificates(_text(data, where), where)
    _, chain = _pkcs12(data, password, where)
    if not chain:
        raise InvalidStore(f"{where} contains no certificate")
    return "".join(chain)


def _pkcs12(data: bytes, password: str | None, where: str) -> tuple[str | None, list[str]]:
    if data.startswith(JKS_MAGIC):
        raise InvalidStore(
            f"{where} is in the old JKS format; convert it: keytool -importkeystore -srckeystore"
            f" {where} -destkeystore {where}.p12 -deststoretype PKCS12"
        )
    if not data or data[0] != DER_SEQUENCE:
        raise InvalidStore(f"{where} is neither PKCS12 nor JKS; is its type PEM?")
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise InvalidStore(
            f'reading {where} (PKCS12) needs pip install "odradek[security]"'
        ) from None
    try:
        store = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except ValueError as error:
        raise InvalidStore(f"{where} cannot be opened: wrong password, or damaged") from error
    pem = serialization.Encoding.PEM
    found = [store.cert, *store.additional_certs]
    chain = [each.certificate.public_bytes(pem).decode() for each in found if each is not None]
    if store.key is None:
        return None, chain
    key = store.key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return key.decode(), chain


def _text(data: bytes, where: str) -> str:
    try:
        return data.decode("ascii")
    except UnicodeDecodeError:
        raise InvalidStore(f"{where} is not PEM; is its type PKCS12?") from None
