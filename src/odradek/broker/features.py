"""The epoch of the cluster's features, followed in the store (KIP-584).

A cluster on ZooKeeper never has a feature; all that clients see of `/feature` is its version, once
a controller at inter-broker protocol 2.7 or later has enabled it. A broker below does not look.
docs/spec/protocol-ladder.md section 6.3.
"""

import asyncio
import logging

from odradek.store.api import SessionEvent, StoreError, WatchEvent
from odradek.store.cluster import ClusterStore
from odradek.store.controller_nodes import NO_FEATURES

__all__ = ["FeatureFollower"]

logger = logging.getLogger(__name__)

RETRY_S = 1.0


class FeatureFollower:
    """`epoch` is that of the enabled feature node, -1 without one."""

    def __init__(self, store: ClusterStore) -> None:
        self._store = store
        self.epoch = NO_FEATURES
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns when the node was read once."""
        self._store.session.on_session(self._session_changed)
        await self._read()
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

    async def _read(self) -> None:
        self._wake.clear()
        self.epoch = await self._store.controller.features_epoch(self._watched)

    async def _follow(self) -> None:
        while True:
            await self._wake.wait()
            try:
                await self._read()
            except StoreError as error:
                logger.warning("cannot follow the feature node, retrying: %s", error)
                self._wake.set()
                await asyncio.sleep(RETRY_S)
