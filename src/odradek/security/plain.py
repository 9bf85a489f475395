"""SASL/PLAIN: user and password in the clear, so for TLS only.

docs/spec/security.md, section 3.3.
"""

import hmac
from collections.abc import Mapping

from odradek.security.exchange import AUTHORIZATION_ID_DIFFERS, Login, SaslError

__all__ = ["PlainServer", "plain_token", "plain_users"]

USER_OPTION = "user_"
INVALID = "Authentication failed: Invalid username or password"


def plain_users(options: Mapping[str, str]) -> dict[str, str]:
    """The users a listener lets in: options `user_<name>="<password>"` of its JAAS entry."""
    return {
        name.removeprefix(USER_OPTION): password
        for name, password in options.items()
        if name.startswith(USER_OPTION)
    }


def plain_token(user: str, password: str) -> bytes:
    """What a client sends."""
    return f"\0{user}\0{password}".encode()


class PlainServer:
    """One login: a single token."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users
        self._user = ""
        self.is_complete = False

    def respond(self, token: bytes) -> bytes:
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            parts = []
        if len(parts) != 3:
            raise _rejected(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authzid, user, password = parts
        if not user:
            raise _rejected("Authentication failed: username not specified")
        if not password:
            raise _rejected("Authentication failed: password not specified")
        # Compared also for an unknown user, so that the time taken tells nothing.
        expected = self._users.get(user)
        is_right = hmac.compare_digest((expected or "\0").encode(), password.encode())
        if expected is None or not is_right:
            raise SaslError(f"unknown user or wrong password: {user!r}", public=INVALID)
        if authzid and authzid != user:
            raise SaslError(f"authorization id {authzid!r}", public=AUTHORIZATION_ID_DIFFERS)
        self._user = user
        self.is_complete = True
        return b""

    @property
    def login(self) -> Login:
        return Login(self._user)


def _rejected(public: str) -> SaslError:
    return SaslError(public, public=public)
