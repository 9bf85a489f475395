"""Replication throttles, set and cleared as kafka-reassign-partitions does, or held and restored.

The throttled replicas are a setting of the topics, the rate one of the brokers. A client
that dies before it clears them leaves them set; `reassign verify` clears them when nothing moves.

A plan by load holds its throttles: what each setting was before is written down first
(`held_settings`), then they are set (`set_held`), and at the end each goes back to what it was
(`restore`), unless it was changed meanwhile.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from odradek.client.admin import Admin
from odradek.client.values import (
    ConfigChange,
    ConfigOperation,
    ConfigSource,
    Resource,
    ResourceType,
    check,
)
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


@dataclass(frozen=True, slots=True)
class HeldSetting:
    """A setting that is changed for a while: what it was (None: not set) and what it is set to."""

    type: int
    owner: str
    name: str
    before: str | None
    value: str

    @property
    def resource(self) -> Resource:
        return Resource(ResourceType(self.type), self.owner)


async def held_settings(
    admin: Admin, moves: Mapping[TopicPartition, Move], bytes_per_second: int
) -> list[HeldSetting]:
    """What has to be set to throttle these moves. Throttled replicas of others stay throttled, and
    a broker that is away, which moves may lead away from, needs no rate."""
    wanted = throttles(moves)
    live = wanted.brokers & (await admin.client.refresh()).nodes.keys()
    values = {
        **{
            (ResourceType.TOPIC, topic, LEADER_REPLICAS): of for topic, of in wanted.leaders.items()
        },
        **{
            (ResourceType.TOPIC, topic, FOLLOWER_REPLICAS): of
            for topic, of in wanted.followers.items()
        },
        **{
            (ResourceType.BROKER, str(broker), name): str(bytes_per_second)
            for broker in sorted(live)
            for name in (LEADER_RATE, FOLLOWER_RATE)
        },
    }
    before = await _own_values(admin, {Resource(type, owner) for type, owner, _ in values})
    held = []
    for (type, owner, name), value in values.items():
        was = before.get((Resource(type, owner), name))
        if type is ResourceType.TOPIC:
            value = _joined(was, value)
        if value != was:
            held.append(HeldSetting(type, owner, name, was, value))
    return held


async def set_held(admin: Admin, held: Sequence[HeldSetting]) -> None:
    """Set them, replicas before rates, and wait until the rate is in force."""
    for of_type in (ResourceType.TOPIC, ResourceType.BROKER):
        changes: dict[Resource, list[ConfigChange]] = {}
        for setting in held:
            if setting.type == of_type:
                change = ConfigChange(setting.name, setting.value)
                changes.setdefault(setting.resource, []).append(change)
        if changes:
            check(await admin.alter_configs(changes))
    rates = {of.resource: of.value for of in held if of.name == FOLLOWER_RATE}
    if rates:
        await _until_in_force(admin, list(rates), next(iter(rates.values())))


async def restore(admin: Admin, held: Sequence[HeldSetting]) -> list[HeldSetting]:
    """Give each setting back what it was; returns those that stay: they were changed meanwhile, or
    their broker is down and gets them when it is back."""
    now = await _own_values(admin, {setting.resource for setting in held})
    changes: dict[Resource, list[ConfigChange]] = {}
    left = []
    for setting in held:
        value = now.get((setting.resource, setting.name))
        if value == setting.value:
            change = (
                ConfigChange(setting.name, None, ConfigOperation.DELETE)
                if setting.before is None
                else ConfigChange(setting.name, setting.before)
            )
            changes.setdefault(setting.resource, []).append(change)
        elif value != setting.before or _is_away(admin, setting):
            left.append(setting)
    if changes:
        check(await admin.alter_configs(changes))
    return left


def _is_away(admin: Admin, setting: HeldSetting) -> bool:
    is_broker = setting.type == ResourceType.BROKER
    return is_broker and int(setting.owner) not in admin.client.metadata.nodes


async def _own_values(
    admin: Admin, resources: Iterable[Resource]
) -> dict[tuple[Resource, str], str | None]:
    """What is set on these topics and brokers themselves; nothing of those that are gone."""
    metadata = await admin.client.refresh(None)
    there = [
        resource
        for resource in sorted(resources)
        if resource.name in metadata.topics
        or (resource.type is ResourceType.BROKER and int(resource.name) in metadata.nodes)
    ]
    own = (ConfigSource.TOPIC, ConfigSource.BROKER)
    return {
        (resource, entry.name): entry.value
        for resource, entries in (await admin.describe_configs(there)).items()
        if isinstance(entries, list)
        for entry in entries
        if entry.source in own
    }


def _joined(was: str | None, value: str) -> str:
    parts = {part for text in (was, value) if text for part in text.split(",")}
    return "*" if "*" in parts else ",".join(sorted(parts - {"none"}))


def _broker(broker: int) -> Resource:
    return Resource(ResourceType.BROKER, str(broker))
