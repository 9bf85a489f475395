"""Who is at the other end of a connection: an anonymous client, a certificate's subject, a login.

docs/spec/security.md, sections 2.2, 3.2 and 4.1. Until a login is complete every frame belongs to
it; a session that has ended takes no further request.
"""

import logging
import ssl
from typing import TYPE_CHECKING

from odradek.broker.authentication import Authentication, Close, Verdict
from odradek.broker.authorization import Permissions
from odradek.broker.security import ListenerSecurity
from odradek.security.acls import Authorizer
from odradek.security.principal import ANONYMOUS, Principal, host_text
from odradek.wire.frames import Buffer

if TYPE_CHECKING:
    from odradek.security.mapping_rules import PrincipalMapper

__all__ = ["Identity", "NotIdentified"]

logger = logging.getLogger(__name__)


class NotIdentified(Exception):
    """A certificate that no rule gives a name: the connection is closed."""


class Identity:
    """Of one connection."""

    def __init__(
        self,
        security: ListenerSecurity,
        authorizer: Authorizer | None,
        peer: str,
        host: str,
        tls: ssl.SSLObject | None,
    ) -> None:
        """Raises NotIdentified."""
        self._peer = peer
        self._login = None if security.sasl is None else Authentication(security.sasl, peer)
        principal = ANONYMOUS
        if self._login is None and tls is not None and security.mapper is not None:
            certificate = tls.getpeercert(binary_form=True)
            if certificate is not None:
                principal = _subject(certificate, security.mapper)
        self.permissions = Permissions(authorizer, principal, host_text(host))

    @property
    def is_known(self) -> bool:
        """Whether no login is to come, or it is complete."""
        return self._login is None or self._login.is_complete

    def receive(self, frame: Buffer) -> Verdict | None:
        """What becomes of a frame that is part of a login; None for one that is to be served."""
        login = self._login
        if login is None:
            return None
        if not login.is_complete or login.begins_reauthentication(frame):
            verdict = login.receive(frame)
            if login.is_complete and login.principal is not None:
                self.permissions = self.permissions._replace(principal=login.principal)
            return verdict
        if login.is_expired:
            logger.info("%s: closing, the session of %s has expired", self._peer, login.principal)
            return Verdict([], Close.NOW)
        return None


def _subject(certificate: bytes, mapper: "PrincipalMapper") -> Principal:
    """Raises NotIdentified."""
    from odradek.security.distinguished_name import InvalidCertificate, subject_text
    from odradek.security.mapping_rules import NoMatchingRule

    try:
        return Principal(mapper.user(subject_text(certificate)))
    except (NoMatchingRule, InvalidCertificate) as error:
        raise NotIdentified(str(error)) from None
