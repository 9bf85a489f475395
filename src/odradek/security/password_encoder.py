"""Passwords among dynamic settings, encrypted as Kafka keeps them in the metadata store (KIP-226).

docs/spec/security.md, section 2.5. The stored text names everything that is needed to open it but
the secret, so that brokers of either kind read each other's. Needs `cryptography`.
"""

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["PasswordEncoder", "UnreadablePassword"]

HASHES = {
    "PBKDF2WithHmacSHA512": "sha512",
    "PBKDF2WithHmacSHA256": "sha256",
    "PBKDF2WithHmacSHA1": "sha1",
}
KEY_FACTORY = "PBKDF2WithHmacSHA512"
CBC, GCM = "AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"
KEY_BITS = 128
ITERATIONS = 4096
ITERATIONS_MAX = 1_000_000
SALT_BYTES = 256
BLOCK_BYTES = 16


class UnreadablePassword(ValueError):
    """Another secret, or not what an encoder has written. The message holds no secret."""


@dataclass(frozen=True, repr=False)
class PasswordEncoder:
    """With `password.encoder.secret`; `old_secret` opens what was written before it changed."""

    secret: str
    old_secret: str | None = None
    key_bits: int = KEY_BITS
    iterations: int = ITERATIONS

    def __repr__(self) -> str:
        return "PasswordEncoder([hidden])"

    def encode(self, password: str, randbytes: Callable[[int], bytes]) -> str:
        plain = password.encode()
        salt, vector = randbytes(SALT_BYTES), randbytes(BLOCK_BYTES)
        key = _key(self.secret, KEY_FACTORY, salt, self.iterations, self.key_bits)
        padding = BLOCK_BYTES - len(plain) % BLOCK_BYTES
        encrypted = _cipher(key, CBC, vector, plain + bytes([padding]) * padding, encrypt=True)
        fields = {
            "keyFactoryAlgorithm": KEY_FACTORY,
            "cipherAlgorithm": CBC,
            "keyLength": self.key_bits,
            "salt": _base64(salt),
            "iterations": self.iterations,
            "initializationVector": _base64(vector),
            "encryptedPassword": _base64(encrypted),
            "passwordLength": len(plain),
        }
        return ",".join(f"{name}:{value}" for name, value in fields.items())

    def decode(self, text: str) -> str:
        """Raises UnreadablePassword."""
        for secret in (self.secret, self.old_secret):
            if secret is None:
                continue
            try:
                return _decoded(text, secret)
            except UnreadablePassword:
                pass  # perhaps with the other
        raise UnreadablePassword("a stored password cannot be opened with password.encoder.secret")


def _decoded(text: str, secret: str) -> str:
    fields = dict(pair.partition(":")[::2] for pair in text.split(","))
    try:
        iterations, key_bits = int(fields["iterations"]), int(fields["keyLength"])
        if not 0 < iterations <= ITERATIONS_MAX or key_bits not in (128, 192, 256):
            raise UnreadablePassword("no such key")
        salt = base64.b64decode(fields["salt"])
        key = _key(secret, fields["keyFactoryAlgorithm"], salt, iterations, key_bits)
        vector = base64.b64decode(fields["initializationVector"])
        encrypted = base64.b64decode(fields["encryptedPassword"])
        plain = _cipher(key, fields["cipherAlgorithm"], vector, encrypted, encrypt=False)
        if fields["cipherAlgorithm"] == CBC:
            plain = _without_padding(plain)
        if len(plain) != int(fields["passwordLength"]):
            raise UnreadablePassword("another length")
        return plain.decode()
    except UnreadablePassword:
        raise
    except (KeyError, ValueError):
        raise UnreadablePassword("not an encoded password") from None


def _key(secret: str, factory: str, salt: bytes, iterations: int, bits: int) -> bytes:
    return hashlib.pbkdf2_hmac(HASHES[factory], secret.encode(), salt, iterations, bits // 8)


def _cipher(key: bytes, algorithm: str, vector: bytes, data: bytes, *, encrypt: bool) -> bytes:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if algorithm == GCM:
        try:
            return AESGCM(key).decrypt(vector, data, None)
        except InvalidTag:
            raise UnreadablePassword("another secret") from None
    if algorithm != CBC:
        raise UnreadablePassword("no such cipher")
    cipher = Cipher(algorithms.AES(key), modes.CBC(vector))
    step = cipher.encryptor() if encrypt else cipher.decryptor()
    return step.update(data) + step.finalize()


def _without_padding(padded: bytes) -> bytes:
    count = padded[-1] if padded else 0
    if not 0 < count <= BLOCK_BYTES or padded[-count:] != bytes([count]) * count:
        raise UnreadablePassword("another secret")
    return padded[:-count]


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
