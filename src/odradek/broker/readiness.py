"""When a starting broker may serve clients: once the controller has sent the cluster's metadata."""

import asyncio
import logging

from odradek.broker.metadata_cache import MetadataCache

logger = logging.getLogger(__name__)

# How long a starting broker holds its clients back.
METADATA_WAIT_S = 10.0


class Readiness:
    """Whether the controller has sent the cluster's metadata. `expects_topics` says that there are
    topics: a new controller sends the brokers first, and clients would take every topic for
    deleted."""

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache
        self._informed = asyncio.Event()
        self.expects_topics = False

    @property
    def is_informed(self) -> bool:
        return self._informed.is_set()

    def metadata_updated(self, broker_id: int) -> None:
        """The controller has sent something to this broker."""
        if self._cache.is_alive(broker_id) and (self._cache.topics() or not self.expects_topics):
            self._informed.set()

    async def wait(self, broker_id: int) -> None:
        try:
            async with asyncio.timeout(METADATA_WAIT_S):
                await self._informed.wait()
        except TimeoutError:
            logger.warning(
                "broker %d has no metadata from a controller after %.0f s; serving clients anyway",
                broker_id,
                METADATA_WAIT_S,
            )
