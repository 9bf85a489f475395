"""How a broker's transaction coordinator is connected to the rest of it."""

from typing import TYPE_CHECKING

from odradek.broker.peers import Peers
from odradek.broker.topics import transactions_topic
from odradek.coordinator.config import TransactionConfig
from odradek.coordinator.markers import MarkerSender
from odradek.coordinator.replicated import follow_leadership
from odradek.coordinator.transaction_coordinator import TransactionCoordinator
from odradek.coordinator.transaction_storage import TRANSACTIONS_TOPIC
from odradek.coordinator.verification import Verification
from odradek.store.api import StoreError
from odradek.store.payloads import NO_LEADER
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    from odradek.broker.server import Broker

__all__ = ["ClusterView", "make_transactions", "make_verification"]


class ClusterView:
    """`markers.Cluster` on a broker's metadata cache and store."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    def leader(self, tp: TopicPartition) -> int | None:
        cache = self._broker.cache
        info = cache.partition(tp.topic, tp.partition)
        if info is None or info.leader == NO_LEADER or not cache.is_alive(info.leader):
            return None
        return info.leader

    async def exists(self, tp: TopicPartition) -> bool:
        """A cache that is not filled yet says nothing: a coordinator that took its word would leave
        every transaction hanging. So the store is asked too."""
        if not self._broker.readiness.is_informed or tp in self._broker.cache:
            return True
        try:
            topic = await self._broker.store.topic(tp.topic)
        except StoreError:
            return True
        return topic is not None and tp.partition in topic.partitions


def _peers(broker: "Broker", purpose: str) -> Peers:
    listener = broker.config.inter_broker_listener()
    return Peers(
        f"broker-{broker.id}-{purpose}",
        lambda id: broker.cache.endpoint(id, listener),
        broker.config.integer("request.timeout.ms") / 1000,
        broker.security.inter_broker,
    )


def make_transactions(broker: "Broker") -> TransactionCoordinator:
    """Coordinates the transactions of the partitions of `__transaction_state` that this broker
    leads."""
    config, peers = broker.config, _peers(broker, "txn-marker-sender")
    transactions = TransactionCoordinator(
        broker.state_topics.replicated(TRANSACTIONS_TOPIC, broker.replicas),
        config.make(TransactionConfig),
        MarkerSender(
            ClusterView(broker),
            peers.connection,
            peers.close,
            config.protocol.write_txn_markers_version,
        ),
        take_producer_id=broker.producer_ids.take,
        clock=broker.clock,
    )
    follow_leadership(transactions, TRANSACTIONS_TOPIC, broker.replicas)
    broker.topics.internal[TRANSACTIONS_TOPIC] = lambda: transactions_topic(config)
    return transactions


def make_verification(broker: "Broker") -> Verification:
    peers = _peers(broker, "txn-verification")
    view = ClusterView(broker)
    storage = broker.transactions.storage

    def coordinator(transactional_id: str) -> int | None:
        partition = storage.partition_for(transactional_id)
        return view.leader(TopicPartition(TRANSACTIONS_TOPIC, partition))

    return Verification(
        lambda: broker.config.flag("transaction.partition.verification.enable"),
        coordinator,
        peers.connection,
        peers.close,
    )
