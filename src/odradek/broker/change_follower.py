"""How a broker keeps up with what is written to the store: one loop for every kind of change.

The watch is set before everything is loaded, so that no change falls between; notifications carry a
number, so nothing is missed over a lost session and nothing is done twice. A store that fails is
asked again, from the notification that could not be applied.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from odradek.broker.store_follower import StoreFollower
from odradek.store.api import Store
from odradek.store.change_nodes import ChangeNodes

__all__ = ["ChangeFollower"]


class ChangeFollower(StoreFollower):
    """Follows sequences of notifications, each with what is to be done about one of them.

    `apply` raises StoreError to be called again. `what` names them in the log.
    """

    def __init__(self, session: Store, what: str) -> None:
        super().__init__(session, what)
        self._sequences: list[tuple[ChangeNodes[Any], Callable[[Any], Awaitable[object]]]] = []
        self._seen: dict[ChangeNodes[Any], int] = {}

    async def watch(
        self, nodes: ChangeNodes[Any], apply: Callable[[Any], Awaitable[object]]
    ) -> None:
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
            for change in changes:
                await apply(change.changed)
                self._seen[nodes] = change.sequence
            if changes:
                await nodes.purge()
