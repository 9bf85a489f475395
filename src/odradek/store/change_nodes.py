"""Change notifications: sequential nodes that say what was written, for every broker to read again.

docs/spec/interchange-with-apache-kafka.md section B.1. A writer adds one after it has written, or
in the same transaction; each broker replays those it has not seen, in order, and deletes those that
every broker has had time to read. Settings, ACLs and delegation tokens each have such a sequence.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from odradek.store.api import Create, Watch
from odradek.store.nodes import Nodes, sequence_of
from odradek.store.payloads import InvalidPayload

__all__ = ["ChangeNodes", "ChangeNotification"]

EXPIRATION_MS = 15 * 60 * 1000

logger = logging.getLogger(__name__)

T = TypeVar("T")


class ChangeNotification(NamedTuple, Generic[T]):
    sequence: int
    changed: T


class ChangeNodes(Generic[T]):
    """One sequence of notifications. `decode` raises InvalidPayload."""

    def __init__(
        self,
        nodes: Nodes,
        parent: str,
        prefix: str,
        encode: Callable[[T], bytes],
        decode: Callable[[bytes | None, str], T],
    ) -> None:
        self._nodes = nodes
        self._parent = parent
        self._prefix = prefix
        self._encode = encode
        self._decode = decode

    async def prepare(self) -> None:
        await self._nodes.ensure(self._parent)

    def notification(self, changed: T) -> Create:
        """To be written in one transaction with what has changed."""
        return Create(f"{self._parent}/{self._prefix}", self._encode(changed), sequential=True)

    async def notify(self, changed: T) -> None:
        await self._nodes.session.multi([self.notification(changed)])

    async def after(
        self, sequence: int = -1, watch: Watch | None = None
    ) -> list[ChangeNotification[T]]:
        """The notifications after this one, in order; unreadable ones are skipped."""
        names = await self._nodes.names(self._parent, watch)
        where = [f"{self._parent}/{name}" for name in names if sequence_of(name) > sequence]
        changes = []
        for path, node in zip(where, await self._nodes.session.get_many(where), strict=True):
            if node is None:
                continue
            try:
                changes.append(ChangeNotification(sequence_of(path), self._decode(node[0], path)))
            except InvalidPayload as error:
                logger.warning("skipping a notification: %s", error)
        return sorted(changes, key=lambda change: change.sequence)

    async def purge(self, age_ms: int = EXPIRATION_MS) -> None:
        """Deletes notifications every broker has had time to read."""
        where = [f"{self._parent}/{name}" for name in await self._nodes.names(self._parent)]
        for path, node in zip(where, await self._nodes.session.get_many(where), strict=True):
            if node is not None and node[1].created_ms + age_ms < self._nodes.clock():
                await self._nodes.delete_if_there(path)  # another broker purges too
