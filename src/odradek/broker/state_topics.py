"""The topics that coordinators keep their state in, on this broker's replicas."""

from odradek.broker.config import BrokerConfig
from odradek.coordinator.replicated import ReplicatedState
from odradek.coordinator.storage import OFFSETS_TOPIC
from odradek.coordinator.transaction_storage import TRANSACTIONS_TOPIC
from odradek.replica.manager import ReplicaManager
from odradek.store.cluster import ClusterStore

__all__ = ["StateTopics"]

# The setting that a topic's number of partitions comes from when it is created.
PARTITION_COUNTS = {
    OFFSETS_TOPIC: "offsets.topic.num.partitions",
    TRANSACTIONS_TOPIC: "transaction.state.log.num.partitions",
}


class StateTopics:
    """How many partitions a name is hashed over.

    The number that the topic had when this broker started, as in Kafka, or else the number it will
    be created with. Never the number of partitions that the controller has sent so far: hashed over
    a part of them, names would map to other partitions, where nothing is stored for them.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._at_start: dict[str, int] = {}

    async def load(self, store: ClusterStore) -> None:
        for topic in PARTITION_COUNTS:
            if (node := await store.topic(topic)) is not None:
                self._at_start[topic] = len(node.partitions)

    def replicated(self, topic: str, replicas: ReplicaManager) -> ReplicatedState:
        return ReplicatedState(topic, replicas, lambda: self._partition_count(topic))

    def _partition_count(self, topic: str) -> int:
        return self._at_start.get(topic) or self._config.integer(PARTITION_COUNTS[topic])
