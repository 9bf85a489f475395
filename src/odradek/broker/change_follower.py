"""How a broker keeps up with what is written to the store: one loop for every kind of change.

The watch is set before everything is loaded, so that no change falls between; notifications carry a
number, so nothing is missed over a lost session and nothing is done twice. A store that fails is
asked again, from the notification that could not be applied.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from odradek.store.api import SessionEvent, Store, StoreError, WatchEvent
from odradek.store.change_nodes import ChangeNodes

__all__ = ["ChangeFollower"]

RETRY_S = 1.0

logger = logging.getLogger(__name__)


class ChangeFollower:
    """Follows sequences of notifications, each with what is to be done about one of them.

    `apply` raises StoreError to be called again. `what` names them in the log.
    """

    def __init__(self, session: Store, what: str) -> None:
        self._session = session
        self._what = what
        self._sequences: list[tuple[ChangeNodes[Any], Callable[[Any], Awaitable[object]]]] = []
        self._seen: dict[ChangeNodes[Any], int] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def watch(
        self, nodes: ChangeNodes[Any], apply: Callable[[Any], Awaitable[object]]
    ) -> None:
        """Follow these too. What is there already counts as seen: everything is loaded next."""
        changes = await nodes.after(-1, self._watched)
        self._seen[nodes] = changes[-1].sequence if changes else -1
        self._sequences.append((nodes, apply))

    def start(self) -> None:
        """Once everything has been loaded."""
        self._session.on_session(self._session_changed)
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.CONNECTED:
            self._wake.set()

    def _watched(self, event: WatchEvent) -> None:
        self._wake.set()

    async def _follow(self) -> None:
        while True:
            self._wake.clear()
            try:
                for nodes, apply in self._sequences:
                    await self._catch_up(nodes, apply)
            except StoreError as error:
                logger.warning("cannot follow the %s, retrying: %s", self._what, error)
                await asyncio.sleep(RETRY_S)
                continue
            await self._wake.wait()

    async def _catch_up(
        self, nodes: ChangeNodes[Any], apply: Callable[[Any], Awaitable[object]]
    ) -> None:
        changes = await nodes.after(self._seen[nodes], self._watched)
        for change in changes:
            await apply(change.changed)
            self._seen[nodes] = change.sequence
        if changes:
            await nodes.purge()
