"""How a broker's group coordinator is connected to the rest of it."""

from typing import TYPE_CHECKING

from odradek.broker.topics import offsets_topic
from odradek.coordinator.config import GroupConfig
from odradek.coordinator.coordinator import GroupCoordinator
from odradek.coordinator.replicated import follow_leadership
from odradek.coordinator.storage import OFFSETS_TOPIC

if TYPE_CHECKING:
    from odradek.broker.server import Broker

__all__ = ["make_groups"]


def make_groups(broker: "Broker") -> GroupCoordinator:
    """Coordinates the groups of the partitions of `__consumer_offsets` that this broker leads."""
    config, replicas = broker.config, broker.replicas
    groups = GroupCoordinator(
        broker.state_topics.replicated(OFFSETS_TOPIC, replicas),
        config.make(GroupConfig),
        clock=broker.clock,
        rng=broker.rng,
    )
    follow_leadership(groups, OFFSETS_TOPIC, replicas)
    replicas.control_requests.deletion_listeners.append(groups.offsets.forget_topic_partitions)
    broker.topics.internal[OFFSETS_TOPIC] = lambda: offsets_topic(config)
    return groups
