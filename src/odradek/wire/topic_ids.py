"""Topic ids (KIP-516): what tells a topic from one of the same name that was deleted before.

docs/spec/protocol-ladder.md section 2.1.
"""

import base64
import re
from random import Random
from uuid import UUID

__all__ = ["NO_TOPIC_ID", "format_topic_id", "new_topic_id", "parse_topic_id"]

NO_TOPIC_ID = UUID(int=0)
# Kafka gives this one a meaning of its own, and to no topic.
_RESERVED = (NO_TOPIC_ID, UUID(int=1))
_TEXT = re.compile(r"[A-Za-z0-9_-]{22}(==)?")


def new_topic_id(rng: Random) -> UUID:
    """A random id. None begins with a dash: on a command line it would look like an option."""
    while True:
        found = UUID(bytes=rng.randbytes(16), version=4)
        if found not in _RESERVED and not format_topic_id(found).startswith("-"):
            return found


def format_topic_id(topic_id: UUID) -> str:
    """As Kafka prints ids: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def parse_topic_id(text: str) -> UUID:
    """Raises ValueError for what Kafka could not read."""
    if not _TEXT.fullmatch(text):
        raise ValueError(f"not an id: {text!r}")
    return UUID(bytes=base64.urlsafe_b64decode(text[:22] + "=="))
