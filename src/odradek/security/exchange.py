"""What every SASL mechanism is to the connection that carries it: tokens in, tokens out, a login.

docs/spec/security.md, section 3.2.
"""

from dataclasses import dataclass
from typing import Protocol

__all__ = ["AUTHORIZATION_ID_DIFFERS", "Login", "SaslError", "ServerExchange"]

AUTHORIZATION_ID_DIFFERS = (
    "Authentication failed: Client requested an authorization id that is different from username"
)


class SaslError(Exception):
    """A login that is rejected, or a peer that breaks the protocol.

    The message is for our log. `public` is what the peer may read; without it the peer gets one
    sentence that names only the mechanism, so that it cannot learn which part was wrong.
    """

    def __init__(self, message: str, *, public: str | None = None) -> None:
        super().__init__(message)
        self.public = public


@dataclass(frozen=True)
class Login:
    """Who has logged in, and until when.

    For a delegation token `user` is the token's id: the caller puts its owner in place.
    """

    user: str
    expires_at_ms: int | None = None
    token_id: str | None = None


class ServerExchange(Protocol):
    """One login as a broker sees it."""

    is_complete: bool

    def respond(self, token: bytes) -> bytes:
        """The answer to the client's next token. Raises SaslError."""
        ...

    @property
    def login(self) -> Login:
        """To be asked once the exchange is complete."""
        ...
