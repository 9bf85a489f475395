"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802) as Kafka speaks them, for both sides.

docs/spec/security.md, section 3.4. Kafka knows no SASLprep: a password is its UTF-8 bytes. The
server does no key derivation at login; a client does, some milliseconds of it, so callers run
`salted_password` off the loop and keep what it returns.

An unknown user is led through the whole exchange with a salt that depends on the name and on a
secret of the process, and is rejected where a wrong password would be: nothing tells the two apart.
"""

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from odradek.security.exchange import AUTHORIZATION_ID_DIFFERS, Login, SaslError

__all__ = [
    "ITERATIONS_MAX",
    "ITERATIONS_MIN",
    "MECHANISMS",
    "CredentialShape",
    "ScramClient",
    "ScramCredential",
    "ScramMechanism",
    "ScramServer",
    "salted_password",
]

ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16384
NONCE_BYTES = 24
TOKEN_AUTH = "tokenauth"
TEXT_SALT = b"0123456789abcdefghijklmnopqrstuvwxyz"

_CLIENT_FIRST = re.compile(
    r"n,(?:a=(?P<authzid>[^,]*))?,"
    r"(?P<bare>(?:m=[^,]*,)?n=(?P<user>[^,]*),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    r"(?P<extensions>(?:,[A-Za-z]+=[^,]*)*))"
)
_SERVER_FIRST = re.compile(
    r"(?:m=[^,]*,)?r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<i>[0-9]{1,9})"
    r"(?:,[A-Za-z]+=[^,]*)*"
)
_CLIENT_FINAL = re.compile(
    r"(?P<unproven>c=(?P<channel>[A-Za-z0-9+/=]*),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    r"(?:,[A-Za-z]+=[^,]*)*),p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_SERVER_FINAL = re.compile(r"(?:e=(?P<error>[^,]*)|v=(?P<signature>[A-Za-z0-9+/=]+)).*")
_NAME = re.compile(r"(?:[^=,]|=2C|=3D)+")


@dataclass(frozen=True)
class ScramMechanism:
    """One of the two mechanisms: its name, the hash below it, its code on the wire."""

    name: str
    hash: str
    code: int

    def hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self.hash)

    def digest(self, data: bytes) -> bytes:
        return hashlib.new(self.hash, data).digest()

    @property
    def size(self) -> int:
        return hashlib.new(self.hash).digest_size


MECHANISMS: Mapping[str, ScramMechanism] = {
    each.name: each
    for each in (
        ScramMechanism("SCRAM-SHA-256", "sha256", 1),
        ScramMechanism("SCRAM-SHA-512", "sha512", 2),
    )
}


def salted_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> bytes:
    """The costly step: some milliseconds of PBKDF2."""
    return hashlib.pbkdf2_hmac(mechanism.hash, password.encode(), salt, iterations)


@dataclass(frozen=True, repr=False)
class ScramCredential:
    """What a broker keeps of a password: enough to verify a login, not to repeat one."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    @classmethod
    def from_salted(
        cls, mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
    ) -> "ScramCredential":
        client_key = mechanism.hmac(salted, b"Client Key")
        server_key = mechanism.hmac(salted, b"Server Key")
        return cls(salt, mechanism.digest(client_key), server_key, iterations)

    @classmethod
    def from_password(
        cls, mechanism: ScramMechanism, password: str, salt: bytes, iterations: int = ITERATIONS_MIN
    ) -> "ScramCredential":
        salted = salted_password(mechanism, password, salt, iterations)
        return cls.from_salted(mechanism, salted, salt, iterations)

    @classmethod
    def parse(cls, text: str) -> "ScramCredential":
        """The inverse of `encode`: exactly these four keys. Raises ValueError."""
        pairs = dict(pair.partition("=")[::2] for pair in text.split(","))
        if set(pairs) != {"salt", "stored_key", "server_key", "iterations"}:
            raise ValueError("a SCRAM credential has salt, stored_key, server_key and iterations")
        return cls(
            base64.b64decode(pairs["salt"], validate=True),
            base64.b64decode(pairs["stored_key"], validate=True),
            base64.b64decode(pairs["server_key"], validate=True),
            int(pairs["iterations"]),
        )

    def encode(self) -> str:
        """As stored in the user's node."""
        return (
            f"salt={_b64(self.salt)},stored_key={_b64(self.stored_key)},"
            f"server_key={_b64(self.server_key)},iterations={self.iterations}"
        )

    def __repr__(self) -> str:
        return f"ScramCredential([hidden], iterations={self.iterations})"


class CredentialShape(NamedTuple):
    """What a client sees of a credential before it has proved anything."""

    salt_bytes: int = NONCE_BYTES
    iterations: int = ITERATIONS_MIN
    # Kafka's tools make salts of letters and digits.
    is_text: bool = False

    @classmethod
    def of(cls, credential: ScramCredential) -> "CredentialShape":
        is_text = not credential.salt.translate(None, TEXT_SALT)
        return cls(len(credential.salt), credential.iterations, is_text)


class ScramServer:
    """One login as the broker sees it: two messages in, two out.

    `look_up` answers the credential of a name, given whether it is that of a delegation token, or
    None. `secret` is the process's own, for the salts of users that do not exist; `shape` is what
    theirs look like, which should be what those of the others do.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        look_up: Callable[[str, bool], ScramCredential | None],
        *,
        nonce: str,
        secret: bytes,
        shape: CredentialShape = CredentialShape(),
    ) -> None:
        self._mechanism = mechanism
        self._look_up = look_up
        self._shape = shape
        self._own_nonce = nonce
        self._secret = secret
        self._credential: ScramCredential | None = None
        self._auth_message = ""
        self._nonce = ""
        self.user = ""
        self.extensions: dict[str, str] = {}
        self.is_complete = False

    @property
    def is_token(self) -> bool:
        return self.extensions.get(TOKEN_AUTH, "").lower() == "true"

    @property
    def login(self) -> Login:
        return Login(self.user, token_id=self.user if self.is_token else None)

    def respond(self, token: bytes) -> bytes:
        """The answer to the client's next message. Raises SaslError."""
        text = _text(token)
        if self.is_complete:
            raise SaslError("a message after the exchange is complete")
        if not self._nonce:
            return self._first(text).encode()
        return self._final(text).encode()

    def _first(self, text: str) -> str:
        match = _CLIENT_FIRST.fullmatch(text)
        if match is None:
            raise SaslError("the client's first message is malformed")
        self.user = _decode_name(match["user"])
        authzid = _decode_name(match["authzid"]) if match["authzid"] else ""
        if authzid and authzid != self.user:
            raise SaslError(f"authorization id {authzid!r}", public=AUTHORIZATION_ID_DIFFERS)
        for pair in filter(None, match["extensions"].split(",")):
            name, _, value = pair.partition("=")
            self.extensions[name] = value
        self._credential = self._look_up(self.user, self.is_token)
        shown = self._credential or self._decoy()
        if shown.iterations < ITERATIONS_MIN:
            raise SaslError(f"the credential of {self.user!r} has fewer than 4096 iterations")
        self._nonce = match["nonce"] + self._own_nonce
        answer = f"r={self._nonce},s={_b64(shown.salt)},i={shown.iterations}"
        self._auth_message = f"{match['bare']},{answer},"
        return answer

    def _final(self, text: str) -> str:
        match = _CLIENT_FINAL.fullmatch(text)
        if match is None:
            raise SaslError("the client's final message is malformed")
        if not hmac.compare_digest(match["nonce"], self._nonce):
            raise SaslError("the nonce is not the one of this exchange")
        mechanism = self._mechanism
        credential = self._credential or self._decoy()
        message = (self._auth_message + match["unproven"]).encode()
        signature = mechanism.hmac(credential.stored_key, message)
        proof = _bytes(match["proof"])
        if len(proof) != len(signature):
            raise SaslError("the proof has the wrong length")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        is_right = hmac.compare_digest(mechanism.digest(client_key), credential.stored_key)
        if not is_right or self._credential is None:
            raise SaslError(self._reason())
        self.is_complete = True
        return f"v={_b64(mechanism.hmac(credential.server_key, message))}"

    def _reason(self) -> str:
        if self.is_token and self._credential is not None:
            return (
                f"wrong secret of the delegation token {self.user!r}: has every broker the same"
                " delegation.token.secret.key?"
            )
        return f"unknown user or wrong password: {self.user!r}"

    def _decoy(self) -> ScramCredential:
        mechanism, shape = self._mechanism, self._shape
        salt = mechanism.hmac(self._secret, b"salt " + self.user.encode())[: shape.salt_bytes]
        if shape.is_text:
            salt = bytes(TEXT_SALT[byte % len(TEXT_SALT)] for byte in salt)
        key = mechanism.hmac(self._secret, b"key " + self.user.encode())
        return ScramCredential(salt, key, key, shape.iterations)


class ScramClient:
    """One login as the client sees it.

    `salt_password(salt, iterations)` answers the salted password; the caller decides where the
    milliseconds are spent, by calling `challenge` first and `prove` with the result.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        user: str,
        *,
        nonce: str,
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        self._mechanism = mechanism
        self._nonce = nonce
        name = user.replace("=", "=3D").replace(",", "=2C")
        more = "".join(f",{key}={value}" for key, value in (extensions or {}).items())
        self._bare = f"n={name},r={nonce}{more}"
        self._server_first = ""
        self._server_nonce = ""
        self._salted = b""
        self._auth_message = b""
        self.salt = b""
        self.iterations = 0

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def challenge(self, message: bytes) -> None:
        """Take the server's first message: `salt` and `iterations` are known then."""
        text = _text(message)
        match = _SERVER_FIRST.fullmatch(text)
        if match is None:
            raise SaslError("the server's first message is malformed")
        if not match["nonce"].startswith(self._nonce) or match["nonce"] == self._nonce:
            raise SaslError("the server's nonce does not extend ours")
        self.salt, self.iterations = _bytes(match["salt"]), int(match["i"])
        if self.iterations < ITERATIONS_MIN:
            raise SaslError(f"the server asks for {self.iterations} iterations, fewer than 4096")
        self._server_first, self._server_nonce = text, match["nonce"]

    def prove(self, salted: bytes) -> bytes:
        mechanism = self._mechanism
        self._salted = salted
        unproven = f"c=biws,r={self._server_nonce}"
        self._auth_message = f"{self._bare},{self._server_first},{unproven}".encode()
        client_key = mechanism.hmac(salted, b"Client Key")
        signature = mechanism.hmac(mechanism.digest(client_key), self._auth_message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{unproven},p={_b64(proof)}".encode()

    def verify(self, message: bytes) -> None:
        """Check that the server knows the password too. Raises SaslError."""
        match = _SERVER_FINAL.fullmatch(_text(message))
        if match is None:
            raise SaslError("the server's final message is malformed")
        if match["error"] is not None:
            raise SaslError(f"the server rejected the login: {match['error']}")
        server_key = self._mechanism.hmac(self._salted, b"Server Key")
        expected = self._mechanism.hmac(server_key, self._auth_message)
        if not hmac.compare_digest(expected, _bytes(match["signature"])):
            raise SaslError("the server's signature is wrong: it does not know the password")


def _decode_name(text: str) -> str:
    if not text.isascii() or not _NAME.fullmatch(text):
        raise SaslError("the user name is malformed")
    return text.replace("=2C", ",").replace("=3D", "=")


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise SaslError("a message is not UTF-8") from None


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise SaslError("a value is not base64") from None


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()
