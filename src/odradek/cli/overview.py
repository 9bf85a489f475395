"""A cluster at a glance: its brokers and topics at one moment, and rates between two moments."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odradek.cli.output import numbers, size
from odradek.wire.errors import KafkaError

if TYPE_CHECKING:
    from odradek.client import Admin
    from odradek.client.metadata import Topic

# Beyond this many, asking every partition for its end would be a load of its own.
MEASURED_PARTITIONS_MAX = 2_000


@dataclass(frozen=True, slots=True)
class BrokerAt:
    """One broker: how many partitions it leads and holds, and the bytes they take."""

    address: str
    leads: int
    holds: int
    size_bytes: int | None


@dataclass(frozen=True, slots=True)
class TopicAt:
    """One topic: its partitions, those not well, and how many records were ever written."""

    partitions: int
    under_replicated: int
    offline: int
    isr: str
    records: int | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster at `at_s` on the loop's clock."""

    at_s: float
    controller: int
    brokers: Mapping[int, BrokerAt] = field(default_factory=dict)
    topics: Mapping[str, TopicAt] = field(default_factory=dict)

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
        return (
            f"brokers {numbers(sorted(self.brokers)) or 'none'}, "
            f"controller {self.controller if self.controller >= 0 else 'none'}, "
            f"{self.partitions} partitions, {self.under_replicated} under-replicated, "
            f"{self.offline} offline"
        )


async def look(admin: "Admin", *, measure: bool) -> Snapshot:
    """Ask the cluster how it is; with `measure` also for sizes and ends."""
    metadata = await admin.client.refresh(None)
    ends: dict[str, int] = {}
    sizes: dict[int, int] = {}
    count = sum(len(topic.partitions) for topic in metadata.topics.values())
    if measure and count <= MEASURED_PARTITIONS_MAX:
        try:
            sizes, ends = await asyncio.gather(_sizes(admin), _ends(admin))
        except (KafkaError, OSError, TimeoutError):
            pass  # a broker is just going: the next look will tell more
    brokers = {}
    for node in metadata.nodes.values():
        parts = [part for topic in metadata.topics.values() for part in topic.partitions.values()]
        brokers[node.id] = BrokerAt(
            str(node.address),
            sum(part.leader == node.id for part in parts),
            sum(node.id in part.replicas for part in parts),
            sizes.get(node.id),
        )
    return Snapshot(
        asyncio.get_running_loop().time(),
        metadata.controller_id,
        brokers,
        {name: _topic_at(topic, ends.get(name)) for name, topic in sorted(metadata.topics.items())},
    )


async def _sizes(admin: "Admin") -> dict[int, int]:
    return {
        broker: sum(replica.size_bytes for dir in directories for replica in dir.replicas)
        for broker, directories in (await admin.describe_log_dirs()).items()
    }


async def _ends(admin: "Admin") -> dict[str, int]:
    """How many records each topic was given, of those partitions that have a leader."""
    from odradek.client import LATEST, offsets_at
    from odradek.wire.topics import TopicPartition

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


def _topic_at(topic: "Topic", records: int | None) -> TopicAt:
    parts = topic.partitions.values()
    smallest = min((len(part.isr) for part in parts), default=0)
    most = max((len(part.replicas) for part in parts), default=0)
    return TopicAt(
        len(parts),
        sum(len(part.isr) < len(part.replicas) for part in parts),
        sum(part.leader < 0 for part in parts),
        f"{smallest}/{most}",
        records,
    )


def broker_rows(now: Snapshot, before: Snapshot | None, ids: list[int]) -> list[list[str]]:
    """id, address, role, leads, holds, size, growth; a line for each that there should be."""
    rows = []
    for broker in ids:
        state = now.brokers.get(broker)
        if state is None:
            rows.append([str(broker), "down", "", "", "", "", ""])
            continue
        earlier = before.brokers.get(broker) if before is not None else None
        growth = rate(now, before, state.size_bytes, earlier.size_bytes if earlier else None)
        rows.append(
            [
                str(broker),
                state.address,
                "controller" if broker == now.controller else "",
                str(state.leads),
                str(state.holds),
                "" if state.size_bytes is None else size(state.size_bytes),
                "" if growth is None else f"{size(growth)}/s",
            ]
        )
    return rows


def topic_rows(now: Snapshot, before: Snapshot | None, lines_max: int) -> list[list[str]]:
    """topic, partitions, smallest ISR, not well, records, records a second; the ill ones first."""
    ordered = sorted(
        now.topics.items(),
        key=lambda item: (-item[1].offline, -item[1].under_replicated, item[0]),
    )
    rows = []
    for name, topic in ordered[:lines_max]:
        earlier = before.topics.get(name) if before is not None else None
        growth = rate(now, before, topic.records, earlier.records if earlier else None)
        ill = [f"{topic.offline} offline"] if topic.offline else []
        ill += [f"{topic.under_replicated} under-replicated"] if topic.under_replicated else []
        rows.append(
            [
                name,
                str(topic.partitions),
                topic.isr,
                ", ".join(ill),
                "" if topic.records is None else str(topic.records),
                "" if growth is None else f"{growth:.0f}/s",
            ]
        )
    return rows


def rate(
    now: Snapshot, before: Snapshot | None, amount: int | None, earlier: int | None
) -> float | None:
    """How much an amount grew a second between two moments; None if nobody knows."""
    if before is None or amount is None or earlier is None or now.at_s <= before.at_s:
        return None
    return max(0.0, (amount - earlier) / (now.at_s - before.at_s))
