"""JSON Web Keys as public keys that verify signatures: RS, PS, ES and EdDSA, nothing symmetric.

A key accepts only algorithms of its own kind, so that a token cannot choose a weaker check than the
key's owner meant. Needs `cryptography`, which only brokers with signed tokens import.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

__all__ = ["public_key"]

RSA_BITS_MIN = 2048
_HASHES: Mapping[str, type[hashes.HashAlgorithm]] = {
    "256": hashes.SHA256,
    "384": hashes.SHA384,
    "512": hashes.SHA512,
}
_CURVES: Mapping[str, tuple[type[ec.EllipticCurve], str]] = {
    "P-256": (ec.SECP256R1, "ES256"),
    "P-384": (ec.SECP384R1, "ES384"),
    "P-521": (ec.SECP521R1, "ES512"),
}


@dataclass(frozen=True)
class _Rsa:
    key: rsa.RSAPublicKey
    algorithm: str | None

    def verifies(self, algorithm: object, signature: bytes, signed: bytes) -> bool:
        if not isinstance(algorithm, str) or self.algorithm not in (None, algorithm):
            return False
        hash_type = _HASHES.get(algorithm[2:])
        if algorithm[:2] not in ("RS", "PS") or hash_type is None:
            return False
        hashed = hash_type()
        scheme = (
            padding.PKCS1v15()
            if algorithm[:2] == "RS"
            else padding.PSS(padding.MGF1(hashed), hashed.digest_size)
        )
        try:
            self.key.verify(signature, signed, scheme, hashed)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class _Ec:
    key: ec.EllipticCurvePublicKey
    algorithm: str

    def verifies(self, algorithm: object, signature: bytes, signed: bytes) -> bool:
        size = (self.key.key_size + 7) // 8
        if algorithm != self.algorithm or len(signature) != 2 * size:
            return False
        r, s = (int.from_bytes(signature[at : at + size], "big") for at in (0, size))
        hashed = _HASHES[self.algorithm[2:]]()
        try:
            self.key.verify(encode_dss_signature(r, s), signed, ec.ECDSA(hashed))
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class _Edwards:
    key: ed25519.Ed25519PublicKey | ed448.Ed448PublicKey

    def verifies(self, algorithm: object, signature: bytes, signed: bytes) -> bool:
        if algorithm not in ("EdDSA", "Ed25519", "Ed448"):
            return False
        try:
            self.key.verify(signature, signed)
        except InvalidSignature:
            return False
        return True


def public_key(jwk: Mapping[str, Any]) -> "_Rsa | _Ec | _Edwards | None":
    """The key, or None if it is of a kind that is not used for signatures here."""
    if jwk.get("use", "sig") != "sig":
        return None
    try:
        match jwk.get("kty"):
            case "RSA":
                return _rsa(jwk)
            case "EC":
                curve, algorithm = _CURVES[jwk["crv"]]
                numbers = ec.EllipticCurvePublicNumbers(_int(jwk["x"]), _int(jwk["y"]), curve())
                return _Ec(numbers.public_key(), algorithm)
            case "OKP" if jwk["crv"] == "Ed25519":
                return _Edwards(ed25519.Ed25519PublicKey.from_public_bytes(_bytes(jwk["x"])))
            case "OKP" if jwk["crv"] == "Ed448":
                return _Edwards(ed448.Ed448PublicKey.from_public_bytes(_bytes(jwk["x"])))
    except (KeyError, TypeError, ValueError, UnsupportedAlgorithm):
        return None  # one unreadable key does not spoil the set
    return None


def _rsa(jwk: Mapping[str, Any]) -> _Rsa | None:
    key = rsa.RSAPublicNumbers(_int(jwk["e"]), _int(jwk["n"])).public_key()
    algorithm = jwk.get("alg")
    if key.key_size < RSA_BITS_MIN:
        return None
    return _Rsa(key, algorithm if isinstance(algorithm, str) else None)


def _int(text: str) -> int:
    return int.from_bytes(_bytes(text), "big")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
