"""What `odradek reassign` is made of: what a plan costs, its throttles, and how far it has come.

A new copy is fetched from the partition's leader, so that is where its bytes come from.
BEHAVIOUR.md, section 1.4.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from odradek.placement import Move, Ongoing, TopicPartitionReplica, throttles
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    from odradek.client import Admin, ConfigChange, Resource
    from odradek.client.metadata import Metadata

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
DIRECTORY_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
RETRY_S = 0.1
SIZES_TIMEOUT_S = 3.0

Sizes = Mapping[TopicPartition, Mapping[int, int]]


class Cost(NamedTuple):
    """The bytes each broker has to send and to take, and the copies it gains and loses."""

    sent: dict[int, int]
    taken: dict[int, int]
    gained: dict[int, int]
    lost: dict[int, int]

    @property
    def total_bytes(self) -> int:
        return sum(self.taken.values())

    def rows(self) -> list[dict[str, int]]:
        brokers = sorted({*self.sent, *self.taken, *self.gained, *self.lost})
        return [
            {
                "broker": broker,
                "gains": self.gained.get(broker, 0),
                "loses": self.lost.get(broker, 0),
                "receives_bytes": self.taken.get(broker, 0),
                "sends_bytes": self.sent.get(broker, 0),
            }
            for broker in brokers
        ]


class Remaining(NamedTuple):
    """How far the moves of a cluster have come."""

    partitions: int
    done_bytes: int
    total_bytes: int


def assignment_of(metadata: "Metadata", topics: Iterable[str]) -> dict[TopicPartition, list[int]]:
    """Where the replicas of these topics are, in order."""
    return {
        partition: metadata.topics[partition.topic].partitions[partition.partition].replicas
        for partition in metadata.partitions_of(topics)
    }


async def sizes(admin: "Admin", partitions: Iterable[TopicPartition]) -> Sizes:
    """The bytes of each copy by partition and broker, of the brokers that tell."""
    partitions = list(partitions)
    found: dict[TopicPartition, dict[int, int]] = {}

    async def ask(broker: int) -> None:
        try:
            async with asyncio.timeout(SIZES_TIMEOUT_S):
                directories = (await admin.describe_log_dirs([broker], partitions))[broker]
        except (KafkaError, OSError, TimeoutError):
            return  # a broker that is ill must not keep others from being moved off it
        for directory in directories:
            for replica in directory.replicas:
                if not replica.is_future:
                    found.setdefault(replica.partition, {})[broker] = replica.size_bytes

    await asyncio.gather(*(ask(broker) for broker in list(admin.client.metadata.nodes)))
    return found


def cost_of(
    current: Mapping[TopicPartition, Sequence[int]],
    proposed: Mapping[TopicPartition, Sequence[int]],
    known: Sizes,
    leaders: Mapping[TopicPartition, int],
) -> Cost:
    """What it takes to make `proposed` of `current`."""
    cost = Cost({}, {}, {}, {})
    for partition, replicas in proposed.items():
        here = current[partition]
        copies = known.get(partition, {})
        leader = leaders.get(partition, -1)
        size_bytes = copies.get(leader, max(copies.values(), default=0))
        for broker in set(replicas) - set(here):
            _add(cost.gained, broker, 1)
            _add(cost.taken, broker, size_bytes)
            _add(cost.sent, leader, size_bytes)
        for broker in set(here) - set(replicas):
            _add(cost.lost, broker, 1)
    return cost


def _add(totals: dict[int, int], broker: int, amount: int) -> None:
    totals[broker] = totals.get(broker, 0) + amount


async def remaining(admin: "Admin", ongoing: Mapping[TopicPartition, Ongoing]) -> Remaining:
    """How much of what is being added has arrived."""
    metadata = await admin.client.refresh({partition.topic for partition in ongoing})
    known = await sizes(admin, ongoing)
    done = total = 0
    for partition, state in ongoing.items():
        copies = known.get(partition, {})
        described = (
            metadata.topics[partition.topic].partitions
            if partition.topic in metadata.topics
            else {}
        )
        leader = described[partition.partition].leader if partition.partition in described else -1
        whole = copies.get(leader, max(copies.values(), default=0))
        for broker in state.adding:
            total += whole
            done += min(copies.get(broker, 0), whole)
    return Remaining(len(ongoing), done, total)


async def set_throttles(
    admin: "Admin", moves: Mapping[TopicPartition, Move], bytes_per_second: int
) -> None:
    """Name the throttled replicas to the topics first, then the rate to the brokers."""
    from odradek.client import ConfigChange, check

    wanted = throttles(moves)
    topics = {
        _topic(topic): [
            ConfigChange(LEADER_REPLICAS, wanted.leaders[topic]),
            ConfigChange(FOLLOWER_REPLICAS, wanted.followers[topic]),
        ]
        for topic in wanted.leaders
    }
    check(await admin.alter_configs(topics))
    await set_rates(admin, wanted.brokers, bytes_per_second)


async def set_rates(admin: "Admin", brokers: Iterable[int], bytes_per_second: int) -> None:
    from odradek.client import ConfigChange, check

    rate = str(bytes_per_second)
    changes = [ConfigChange(LEADER_RATE, rate), ConfigChange(FOLLOWER_RATE, rate)]
    owners = {_broker(broker): changes for broker in sorted(brokers)}
    check(await admin.alter_configs(owners))
    await _until_felt(admin, list(owners), rate)


async def _until_felt(admin: "Admin", brokers: "list[Resource]", rate: str) -> None:
    """A broker hears of a new setting a moment after it is written, and by then much could have
    been moved. It hears of them in order, so whoever has the rate knows the throttled replicas."""
    budget = admin.client.retry_budget()
    while True:
        described = await admin.describe_configs(brokers)
        told = {
            entry.value
            for entries in described.values()
            if isinstance(entries, list)
            for entry in entries
            if entry.name == FOLLOWER_RATE
        }
        if told == {rate} or budget.remaining_s < RETRY_S:
            return
        await asyncio.sleep(RETRY_S)


async def clear_throttles(admin: "Admin", topics: Iterable[str]) -> None:
    """Take back what throttling set, on these topics and every living broker."""
    from odradek.client import ConfigChange, ConfigOperation, check

    metadata = await admin.client.refresh(topics)

    def gone(*names: str) -> "list[ConfigChange]":
        return [ConfigChange(name, None, ConfigOperation.DELETE) for name in names]

    changes = {
        **{
            _broker(node): gone(LEADER_RATE, FOLLOWER_RATE, DIRECTORY_RATE)
            for node in metadata.nodes
        },
        **{
            _topic(topic): gone(LEADER_REPLICAS, FOLLOWER_REPLICAS)
            for topic in topics
            if topic in metadata.topics
        },
    }
    check(await admin.alter_configs(changes))


async def move_directories(
    admin: "Admin", wanted: Mapping[TopicPartitionReplica, str], timeout_s: float
) -> None:
    """Send replicas to their directories. One that is not there yet is asked again."""
    budget = admin.client.retry_budget(timeout_s)
    left = dict(wanted)
    while left:
        outcomes = await admin.alter_log_dirs(left)
        failed = {replica: error for replica, error in outcomes.items() if error is not None}
        for error in failed.values():
            if error.error is not ErrorCode.REPLICA_NOT_AVAILABLE:
                raise error
        left = {replica: path for replica, path in left.items() if replica in failed}
        if left:
            if budget.remaining_s < RETRY_S:
                raise next(iter(failed.values()))
            await asyncio.sleep(RETRY_S)


async def unmoved_directories(
    admin: "Admin", wanted: Mapping[TopicPartitionReplica, str]
) -> list[TopicPartitionReplica]:
    """The replicas that are not in the directory they shall be in, or not yet."""
    partitions = {TopicPartition(replica.topic, replica.partition) for replica in wanted}
    brokers = sorted({replica.broker for replica in wanted})
    arrived = {
        TopicPartitionReplica(*replica.partition, broker)
        for broker, directories in (await admin.describe_log_dirs(brokers, partitions)).items()
        for directory in directories
        for replica in directory.replicas
        if not replica.is_future
        and wanted.get(TopicPartitionReplica(*replica.partition, broker)) == directory.path
    }
    return sorted(set(wanted) - arrived)


def require(
    metadata: "Metadata",
    current: Mapping[TopicPartition, Sequence[int]],
    proposed: Mapping[TopicPartition, Sequence[int]],
) -> None:
    """Refuse a plan that names a partition or broker there is not."""
    for partition, replicas in proposed.items():
        if partition not in current:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {partition} does not exist"
            )
        if unknown := sorted(set(replicas) - set(metadata.nodes)):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{partition} would go to broker {unknown[0]}, which is not alive",
            )


def _topic(name: str) -> "Resource":
    from odradek.client import Resource, ResourceType

    return Resource(ResourceType.TOPIC, name)


def _broker(broker: int) -> "Resource":
    from odradek.client import Resource, ResourceType

    return Resource(ResourceType.BROKER, str(broker))
