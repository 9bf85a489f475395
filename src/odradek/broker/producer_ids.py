"""Producer ids, taken from this broker's block, and a new block when it is used up."""

import asyncio
from collections.abc import Iterator

from odradek.store.cluster import ClusterStore

__all__ = ["ProducerIds"]


class ProducerIds:
    """Gives each producer an id that is unique in the cluster."""

    def __init__(self, store: ClusterStore, broker_id: int) -> None:
        self._store = store
        self._broker_id = broker_id
        self._left: Iterator[int] = iter(())
        self._lock = asyncio.Lock()
        self._taken = 0

    async def take(self) -> int:
        async with self._lock:
            producer_id = next(self._left, None)
            if producer_id is None:
                self._left = iter(await self._store.allocate_producer_ids(self._broker_id))
                producer_id = next(self._left)
        self._taken += 1
        return producer_id

    def statistics(self) -> dict[str, int]:
        return {"taken": self._taken}
