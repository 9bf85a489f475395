"""SCRAM credentials of the cluster's users, as this broker knows them.

docs/spec/security.md, section 3.4. They are followed with the other settings of users
(`broker/dynamic_config.py`). One that cannot be read leaves the one before it in place.
"""

import logging
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.security.scram import CredentialShape, ScramCredential

__all__ = ["Credentials"]

SCRAM_NAMES = ("SCRAM-SHA-256", "SCRAM-SHA-512")

logger = logging.getLogger(__name__)


class Credentials:
    """By user and mechanism."""

    def __init__(self) -> None:
        self._by_user: dict[str, dict[str, ScramCredential]] = {}
        self._shapes: dict[str, Counter[CredentialShape]] = {
            name: Counter() for name in SCRAM_NAMES
        }

    def update(self, user: str, settings: Mapping[str, str]) -> None:
        """A user's settings are now these; quotas among them are not ours."""
        before = self._by_user.get(user, {})
        written = {name: settings[name] for name in SCRAM_NAMES if name in settings}
        now: dict[str, ScramCredential] = {}
        for mechanism, text in written.items():
            try:
                now[mechanism] = _parsed(text)
            except ValueError:
                logger.error("user %s: the %s credential cannot be read", user, mechanism)
                if mechanism in before:
                    now[mechanism] = before[mechanism]
        for mechanism in SCRAM_NAMES:
            self._count(mechanism, before.get(mechanism), -1)
            self._count(mechanism, now.get(mechanism), 1)
        if now:
            self._by_user[user] = now
        else:
            self._by_user.pop(user, None)

    def _count(self, mechanism: str, credential: "ScramCredential | None", by: int) -> None:
        if credential is not None:
            from odradek.security.scram import CredentialShape

            shape = CredentialShape.of(credential)
            self._shapes[mechanism][shape] += by
            if not self._shapes[mechanism][shape]:
                del self._shapes[mechanism][shape]

    def common_shape(self, mechanism: str) -> "CredentialShape | None":
        """What the credentials of most users look like to a client that has proved nothing."""
        found = self._shapes[mechanism].most_common(1)
        return found[0][0] if found else None

    def find(self, user: str, mechanism: str) -> "ScramCredential | None":
        return self._by_user.get(user, {}).get(mechanism)

    def of(self, user: str) -> Mapping[str, "ScramCredential"]:
        return self._by_user.get(user, {})

    @property
    def users(self) -> list[str]:
        return sorted(self._by_user)


def _parsed(text: str) -> "ScramCredential":
    from odradek.security.scram import ScramCredential  # most clusters have no such users

    return ScramCredential.parse(text)
