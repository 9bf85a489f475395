"""How a broker keeps up with what is written to the store: one loop for every kind of change.

The watch is set before everything is loaded, so that no change falls between; notifications carry a
number, so nothing is missed over a lost session and nothing is done twice. A store that fails is
asked again, for all that could not be applied.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import Any, TypeAlias, TypeVar

from odradek.broker.store_follower import StoreFollower
from odradek.store.api import Store
from odradek.store.change_nodes import ChangeNodes

__all__ = ["ChangeFollower"]

PURGE_INTERVAL_S = 60.0

T = TypeVar("T")
Apply: TypeAlias = Callable[[Sequence[T]], Awaitable[object]]


class ChangeFollower(StoreFollower):
    """Follows sequences of notifications, each with what is to be done about some of them.

    `apply` gets what has changed, in order and each once. It raises StoreError to be called again
    with all of it. `what` names the notifications in the log.
    """

    def __init__(self, session: Store, what: str) -> None:
        super().__init__(session, what)
        self._sequences: list[tuple[ChangeNodes[Any], Apply[Any]]] = []
        self._seen: dict[ChangeNodes[Any], int] = {}
        self._purged_s: dict[ChangeNodes[Any], float] = {}

    async def watch(self, nodes: ChangeNodes[T], apply: Apply[T]) -> None:
        """Follow these too. What is there already counts as seen: everything is loaded next."""
        changes = await nodes.after(-1, self.watched)
        self._seen[nodes] = changes[-1].sequence if changes else -1
        self._sequences.append((nodes, apply))

    def start(self) -> None:
        """Once everything has been loaded."""
        self.begin(with_read=True)

    async def read(self) -> None:
        for nodes, apply in self._sequences:
            changes = await nodes.after(self._seen[nodes], self.watched)
            if changes:
                await apply(list(dict.fromkeys(change.changed for change in changes)))
                self._seen[nodes] = changes[-1].sequence
                await self._purge(nodes)

    async def _purge(self, nodes: ChangeNodes[Any]) -> None:
        """At most once in so long: it reads all notifications, and there may be thousands."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._purged_s.get(nodes, -inf) + PURGE_INTERVAL_S:
            self._purged_s[nodes] = now_s
            await nodes.purge()
