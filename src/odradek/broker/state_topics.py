"""The topics that coordinators keep their state in, on this broker's replicas."""

import asyncio

from odradek.broker.config import BrokerConfig
from odradek.coordinator.replicated import ReplicatedState
from odradek.coordinator.storage import OFFSETS_TOPIC
from odradek.coordinator.transaction_storage import TRANSACTIONS_TOPIC
from odradek.replica.manager import ReplicaManager
from odradek.store.api import StoreError
from odradek.store.cluster import ClusterStore
from odradek.wire.errors import ErrorCode, KafkaError

__all__ = ["StateTopics"]

# The setting that a topic's number of partitions comes from when it is created.
PARTITION_COUNTS = {
    OFFSETS_TOPIC: "offsets.topic.num.partitions",
    TRANSACTIONS_TOPIC: "transaction.state.log.num.partitions",
}

STORE_WAIT_S = 2.0


class StateTopics:
    """How many partitions a name is hashed over.

    The number that the topic had when this broker started, as in Kafka, or else the number it will
    be created with. Never the number of partitions that the controller has sent so far: hashed over
    a part of them, names would map to other partitions, where nothing is stored for them.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._at_start: dict[str, int] = {}
        self._store: ClusterStore | None = None

    async def load(self, store: ClusterStore) -> None:
        self._store = store
        for topic in PARTITION_COUNTS:
            if (node := await store.topic(topic)) is not None:
                self._at_start[topic] = len(node.partitions)

    def replicated(self, topic: str, replicas: ReplicaManager) -> ReplicatedState:
        return ReplicatedState(
            topic,
            replicas,
            lambda: self._partition_count(topic),
            lambda: self._check_partition_count(topic),
        )

    async def _check_partition_count(self, topic: str) -> None:
        """Two brokers that hash transactional ids over different numbers would both coordinate one,
        and neither fence the producer of the other. Groups go on, as in Kafka."""
        if topic != TRANSACTIONS_TOPIC or self._store is None:
            return
        try:
            async with asyncio.timeout(STORE_WAIT_S):
                node = await self._store.topic(topic)
        except (StoreError, TimeoutError):
            return  # a store that is away must not keep ids from being loaded
        expected = self._partition_count(topic)
        if node is not None and len(node.partitions) != expected:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                f"{topic} has {len(node.partitions)} partitions and this broker counts on"
                f" {expected}: restart it, and all brokers that started before the topic changed",
            )

    def _partition_count(self, topic: str) -> int:
        return self._at_start.get(topic) or self._config.integer(PARTITION_COUNTS[topic])
