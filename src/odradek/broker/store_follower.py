"""Following nodes of the store: read again after each watch, each new session and each failure."""

import asyncio
import logging
from abc import ABC, abstractmethod

from odradek.store.api import SessionEvent, Store, StoreError, WatchEvent

__all__ = ["StoreFollower"]

RETRY_S = 1.0

logger = logging.getLogger(__name__)


class StoreFollower(ABC):
    """Calls `read`, which leaves `watched` as a watch, whenever something may have changed.

    `what` names the nodes in the log.
    """

    def __init__(self, session: Store, what: str) -> None:
        self._session = session
        self._what = what
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def read(self) -> None:
        """Read and apply what is in the store. Raises StoreError to be called again."""

    def begin(self, *, with_read: bool) -> None:
        """Follow, with a `read` to begin with or after the next change."""
        if with_read:
            self._wake.set()
        self._session.on_session(self._session_changed)
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def watched(self, event: WatchEvent) -> None:
        self._wake.set()

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.CONNECTED:
            self._wake.set()

    async def _follow(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.read()
            except StoreError as error:
                logger.warning("cannot follow the %s, retrying: %s", self._what, error)
                await asyncio.sleep(RETRY_S)
                self._wake.set()
