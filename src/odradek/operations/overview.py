"""A cluster at a glance: its brokers and topics at one moment, and rates between two moments."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from odradek.client.admin import Admin
from odradek.client.metadata import Topic
from odradek.client.reader import LATEST, offsets_at
from odradek.wire.errors import KafkaError
from odradek.wire.topics import TopicPartition

# With more partitions, asking each for its end would load the cluster noticeably.
MEASURED_PARTITIONS_MAX = 2_000


@dataclass(frozen=True, slots=True)
class BrokerSummary:
    """One broker: how many partitions it leads and holds, and the bytes they take."""

    address: str
    leads: int
    holds: int
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class TopicSummary:
    """One topic: its partitions, how many are unhealthy, and how many records were ever written."""

    partitions: int
    under_replicated: int
    offline: int
    isr: str
    records: int | None


@dataclass(frozen=True, slots=True)
class Overview:
    """The cluster at `at_s` on the loop's clock."""

    at_s: float
    controller: int
    brokers: Mapping[int, BrokerSummary] = field(default_factory=dict)
    topics: Mapping[str, TopicSummary] = field(default_factory=dict)

    @property
    def partitions(self) -> int:
        return sum(topic.partitions for topic in self.topics.values())

    @property
    def under_replicated(self) -> int:
        return sum(topic.under_replicated for topic in self.topics.values())

    @property
    def offline(self) -> int:
        return sum(topic.offline for topic in self.topics.values())

    def summary(self) -> str:
        brokers = ",".join(map(str, sorted(self.brokers)))
        return (
            f"brokers {brokers or 'none'}, "
            f"controller {self.controller if self.controller >= 0 else 'none'}, "
            f"{self.partitions} partitions, {self.under_replicated} under-replicated, "
            f"{self.offline} offline"
        )


async def read_overview(admin: Admin, *, measure: bool) -> Overview:
    """Ask the cluster how it is; with `measure` also for sizes and ends."""
    metadata = await admin.client.refresh(None)
    ends: dict[str, int] = {}
    sizes: dict[int, int] = {}
    count = sum(len(topic.partitions) for topic in metadata.topics.values())
    if measure and count <= MEASURED_PARTITIONS_MAX:
        try:
            sizes, ends = await asyncio.gather(_sizes(admin), _ends(admin))
        except (KafkaError, OSError, TimeoutError):
            pass  # a broker is going down: the next overview has more
    brokers = {}
    for node in metadata.nodes.values():
        parts = [part for topic in metadata.topics.values() for part in topic.partitions.values()]
        brokers[node.id] = BrokerSummary(
            str(node.address),
            sum(part.leader == node.id for part in parts),
            sum(node.id in part.replicas for part in parts),
            sizes.get(node.id),
        )
    return Overview(
        asyncio.get_running_loop().time(),
        metadata.controller_id,
        brokers,
        {
            name: _summary_of(topic, ends.get(name))
            for name, topic in sorted(metadata.topics.items())
        },
    )


async def _sizes(admin: Admin) -> dict[int, int]:
    return {
        broker: sum(replica.size_bytes for dir in directories for replica in dir.replicas)
        for broker, directories in (await admin.describe_log_dirs()).items()
    }


async def _ends(admin: Admin) -> dict[str, int]:
    """How many records each topic was given, of those partitions that have a leader."""
    led = {
        TopicPartition(topic.name, part.id): LATEST
        for topic in admin.client.metadata.topics.values()
        for part in topic.partitions.values()
        if part.leader in admin.client.metadata.nodes
    }
    totals: dict[str, int] = {}
    for partition, place in (await offsets_at(admin.client, led)).items():
        totals[partition.topic] = totals.get(partition.topic, 0) + place.offset
    return totals


def _summary_of(topic: Topic, records: int | None) -> TopicSummary:
    parts = topic.partitions.values()
    smallest = min((len(part.isr) for part in parts), default=0)
    most = max((len(part.replicas) for part in parts), default=0)
    return TopicSummary(
        len(parts),
        sum(len(part.isr) < len(part.replicas) for part in parts),
        sum(part.leader < 0 for part in parts),
        f"{smallest}/{most}",
        records,
    )


def rate(
    now: Overview, before: Overview | None, amount: int | None, earlier: int | None
) -> float | None:
    """Growth per second between two moments; None if one of the amounts is unknown."""
    if before is None or amount is None or earlier is None or now.at_s <= before.at_s:
        return None
    return max(0.0, (amount - earlier) / (now.at_s - before.at_s))
