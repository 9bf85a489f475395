"""Replication throttles, set and cleared as kafka-reassign-partitions does.

The throttled replicas are a setting of the topics, the rate one of the brokers. A client
that dies before it clears them leaves them set; `reassign verify` clears them when nothing moves.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from odradek.client.admin import Admin
from odradek.client.values import ConfigChange, ConfigOperation, Resource, ResourceType, check
from odradek.placement import Move, throttles
from odradek.wire.topics import TopicPartition

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
DIRECTORY_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
RETRY_S = 0.1


async def set_throttles(
    admin: Admin, moves: Mapping[TopicPartition, Move], bytes_per_second: int
) -> None:
    """Throttle these moves: the replicas first, then the rate, and wait until it is in force."""
    wanted = throttles(moves)
    topics = {
        Resource(ResourceType.TOPIC, topic): [
            ConfigChange(LEADER_REPLICAS, wanted.leaders[topic]),
            ConfigChange(FOLLOWER_REPLICAS, wanted.followers[topic]),
        ]
        for topic in wanted.leaders
    }
    check(await admin.alter_configs(topics))
    await _set_rates(admin, wanted.brokers, bytes_per_second)


async def _set_rates(admin: Admin, brokers: Iterable[int], bytes_per_second: int) -> None:
    rate = str(bytes_per_second)
    changes = [ConfigChange(LEADER_RATE, rate), ConfigChange(FOLLOWER_RATE, rate)]
    owners = {_broker(broker): changes for broker in sorted(brokers)}
    check(await admin.alter_configs(owners))
    await _until_in_force(admin, list(owners), rate)


async def _until_in_force(admin: Admin, brokers: Sequence[Resource], rate: str) -> None:
    """Wait until each broker reports the rate: it learns of a setting a moment after it is written,
    and much could be copied by then. Settings arrive in order, so a broker that has the rate knows
    the throttled replicas, too."""
    budget = admin.client.retry_budget()
    while True:
        described = await admin.describe_configs(brokers)
        rates = {
            entry.value
            for entries in described.values()
            if isinstance(entries, list)
            for entry in entries
            if entry.name == FOLLOWER_RATE
        }
        if rates == {rate} or budget.remaining_s < RETRY_S:
            return
        await asyncio.sleep(RETRY_S)


async def clear_throttles(admin: Admin, topics: Iterable[str]) -> None:
    """Delete the throttle settings of these topics and of every live broker."""
    topics = set(topics)
    metadata = await admin.client.refresh(topics)

    def deleted(*names: str) -> list[ConfigChange]:
        return [ConfigChange(name, None, ConfigOperation.DELETE) for name in names]

    changes = {
        _broker(node): deleted(LEADER_RATE, FOLLOWER_RATE, DIRECTORY_RATE)
        for node in metadata.nodes
    }
    for topic in sorted(topics & set(metadata.topics)):
        owner = Resource(ResourceType.TOPIC, topic)
        changes[owner] = deleted(LEADER_REPLICAS, FOLLOWER_REPLICAS)
    check(await admin.alter_configs(changes))


def _broker(broker: int) -> Resource:
    return Resource(ResourceType.BROKER, str(broker))
