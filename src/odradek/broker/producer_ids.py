"""Producer ids: each broker gives them out from blocks that no other broker has.

docs/spec/protocol-ladder.md section 4. From inter-broker protocol 3.0-IV0 on a block comes from the
controller (AllocateProducerIds, KIP-730), below that from the store. Both take the next block under
a version check, so brokers of either kind share a cluster. The next block is requested before the
present one is used up. What a crash leaves of a block is never given out, nor is a block whose
answer was lost.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from odradek.replica.config import ReplicaConfig
from odradek.replica.controller_channel import ControllerChannel, ControllerUnavailable
from odradek.store.api import StoreError
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
)

if TYPE_CHECKING:
    from odradek.broker.server import Broker

__all__ = ["ProducerIds", "make_producer_ids"]

logger = logging.getLogger(__name__)

# How many ids are left when the next block is requested.
LEFT_MIN = 100
RETRY_S = 0.05
# How long a client waits for a block before it is asked to come again.
WAIT_S = 5.0
ID_MAX = 2**63 - 1


def no_op() -> None:
    pass


NextBlock = Callable[[], Awaitable[range]]


class ProducerIds:
    """Gives each producer an id that is unique in the cluster. One block is requested at a time."""

    def __init__(self, next_block: NextBlock, close_source: Callable[[], None] = no_op) -> None:
        """`next_block` raises StoreError or ControllerUnavailable."""
        self._next_block = next_block
        self._close_source = close_source
        self._last = -1  # the greatest id of any block so far
        self._ids = range(0)
        self._following = range(0)
        self._asking: asyncio.Task[bool] | None = None
        self._taken = 0

    async def take(self) -> int:
        """The next id; COORDINATOR_LOAD_IN_PROGRESS, which clients retry, if none can be had."""
        while not self._ids:
            if self._following:
                self._ids, self._following = self._following, range(0)
            else:
                await self._wait_for_block()
        producer_id, self._ids = self._ids[0], self._ids[1:]
        if len(self._ids) < LEFT_MIN and not self._following:
            self._ask()
        self._taken += 1
        return producer_id

    async def _wait_for_block(self) -> None:
        try:
            async with asyncio.timeout(WAIT_S):
                has_block = await asyncio.shield(self._ask())
        except TimeoutError:
            has_block = False
        if not has_block:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no producer ids yet")

    def _ask(self) -> "asyncio.Task[bool]":
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._fetch_block())
        return self._asking

    async def _fetch_block(self) -> bool:
        """One attempt; one that fails takes a while, so that the next is not made at once."""
        try:
            block = await self._next_block()
        except (StoreError, ControllerUnavailable) as error:
            logger.warning("no block of producer ids, retrying: %s", error)
            await asyncio.sleep(RETRY_S)
            return False
        if not block or block.start <= self._last or block.stop - 1 > ID_MAX:
            logger.error("block of producer ids from %d to %d refused", block.start, block.stop - 1)
            await asyncio.sleep(RETRY_S)
            return False
        self._following, self._last = block, block.stop - 1
        return True

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        self._close_source()

    def statistics(self) -> dict[str, int]:
        return {"taken": self._taken}


def make_producer_ids(broker: "Broker", config: ReplicaConfig) -> ProducerIds:
    """Blocks from where the inter-broker protocol says."""
    if not config.protocol.allocates_producer_ids_through_controller:
        return ProducerIds(lambda: broker.store.allocate_producer_ids(broker.id))
    channel = ControllerChannel(broker.id, broker.cache, config)
    broker.replicas.control_requests.metadata_listeners.append(channel.controller_may_have_moved)

    async def ask_controller() -> range:
        response = await channel.request(
            ApiKey.ALLOCATE_PRODUCER_IDS,
            0,
            lambda _: AllocateProducerIdsRequest(broker_id=broker.id, broker_epoch=broker.epoch),
        )
        if response.error_code != ErrorCode.NONE:
            channel.close()
            raise ControllerUnavailable(f"error {response.error_code} from the controller")
        start = response.producer_id_start
        return range(start, start + response.producer_id_len)

    return ProducerIds(ask_controller, channel.close)
