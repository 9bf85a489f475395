"""The users a broker knows, and what their credentials look like from outside."""

from odradek.broker.credentials import Credentials
from odradek.security.scram import MECHANISMS, CredentialShape, ScramCredential

SHA_256 = MECHANISMS["SCRAM-SHA-256"]


def credential(salt: bytes, iterations: int) -> dict[str, str]:
    made = ScramCredential.from_password(SHA_256, "x", salt, iterations)
    return {"SCRAM-SHA-256": made.encode()}


def test_the_common_shape_follows_the_users() -> None:
    known = Credentials()
    assert known.common_shape("SCRAM-SHA-256") is None
    known.update("a", credential(bytes(24), 4096))
    known.update("b", credential(b"abc", 8192))
    known.update("c", credential(b"def", 8192))
    assert known.common_shape("SCRAM-SHA-256") == CredentialShape(3, 8192, is_text=True)
    known.update("b", {})
    known.update("c", credential(bytes(24), 4096))
    assert known.common_shape("SCRAM-SHA-256") == CredentialShape(24, 4096)
    known.update("a", {})
    known.update("c", {})
    assert known.common_shape("SCRAM-SHA-256") is None
    assert known.common_shape("SCRAM-SHA-512") is None
