"""Telemetry in the name of brokers that publish none: worked out from what any broker reports.

Apache's brokers, and ours with telemetry off. Two samples of the cluster make a frame for each such
broker, marked as estimated. Records are the growth of the log end of the partitions it leads; a
record is as large as the log is on average, smoothed; what consumers read is the growth of their
groups' committed offsets, and followers read what is written. Processor time is not known.

Nothing is kept but the last sample: a poller that is killed and started again begins with its next
two samples, and the time between is not covered.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from odradek.balance.cluster import read_log_dirs
from odradek.client.admin import Admin
from odradek.client.groups import Groups
from odradek.client.metadata import Partition
from odradek.client.reader import EARLIEST, LATEST, offsets_at
from odradek.client.values import LogDir
from odradek.wire.errors import KafkaError
from odradek.wire.telemetry import (
    COLUMNS,
    DIRECTORIES_MAX,
    IN_SYNC,
    LEADS,
    NO_DIRECTORY,
    BrokerLoad,
    Directory,
    Frame,
    new_columns,
)
from odradek.wire.topics import TopicPartition

__all__ = ["Estimator", "Sample", "take_sample"]

# How much the size of a record follows the newest sample.
SMOOTHING = 0.3


@dataclass(frozen=True)
class Sample:
    """The cluster at one moment."""

    at_ms: int
    partitions: Mapping[TopicPartition, Partition]
    directories: Mapping[int, list[LogDir]]
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    # Of each group, what it has committed.
    committed: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)


async def take_sample(admin: Admin, groups: Groups, at_ms: int) -> Sample:
    """One request for sizes and two for offsets to each broker, and one to each group's
    coordinator. Partitions without a leader are left out."""
    topics = await admin.describe_topics()
    partitions = {
        TopicPartition(name, partition.id): partition
        for name, topic in topics.items()
        for partition in topic.partitions.values()
        if partition.leader >= 0
    }
    directories = await read_log_dirs(admin)
    ends = await offsets_at(admin.client, dict.fromkeys(partitions, LATEST))
    starts = await offsets_at(admin.client, dict.fromkeys(partitions, EARLIEST))
    return Sample(
        at_ms,
        partitions,
        directories,
        {tp: found.offset for tp, found in starts.items()},
        {tp: found.offset for tp, found in ends.items()},
        await _committed(groups),
    )


async def _committed(groups: Groups) -> dict[str, dict[TopicPartition, int]]:
    async def of(group: str) -> dict[TopicPartition, int]:
        try:
            return {tp: each.offset for tp, each in (await groups.offsets(group)).items()}
        except KafkaError:
            return {}  # It has gone, or we may not see it.

    names = [group.id for group in await groups.list_groups()]
    found = await asyncio.gather(*map(of, names))
    return dict(zip(names, found, strict=True))


class Estimator:
    """Makes frames of one sample after the other."""

    def __init__(self, started_ms: int) -> None:
        self._incarnation = started_ms
        self._tick = 0
        self._before: Sample | None = None
        self._record_bytes: dict[TopicPartition, float] = {}

    @property
    def is_new(self) -> bool:
        return self._before is None

    def frames(self, now: Sample, silent: Collection[int]) -> list[Frame]:
        """What these brokers did since the last sample; nothing after the first."""
        before, self._before = self._before, now
        sizes = {broker: _sizes(now, broker) for broker in now.directories}
        self._record_bytes = {
            tp: self._smoothed(tp, now, sizes.get(partition.leader, {}).get(tp, (0, 0))[0])
            for tp, partition in now.partitions.items()
        }
        if before is None or before.at_ms >= now.at_ms:
            return []
        self._tick += 1
        return [self._frame(broker, before, now) for broker in sorted(silent)]

    def _smoothed(self, tp: TopicPartition, now: Sample, size: int) -> float:
        records = now.ends.get(tp, 0) - now.starts.get(tp, 0)
        known = self._record_bytes.get(tp)
        if records <= 0 or size <= 0:
            return known or 0.0
        newest = size / records
        return newest if not known else known + SMOOTHING * (newest - known)

    def _frame(self, broker: int, before: Sample, now: Sample) -> Frame:
        columns, topics = new_columns(), dict[str, int]()
        for tp, (size, directory) in _sizes(now, broker).items():
            partition = now.partitions.get(tp)
            if partition is None:
                continue
            leads = partition.leader == broker
            counts = self._counts(tp, partition, before, now) if leads else {}
            row = {
                "topic": topics.setdefault(tp.topic, len(topics)),
                "partition": tp.partition,
                "role": LEADS * leads | IN_SYNC * (broker in partition.isr),
                "directory": directory,
                "size": size,
                "log_end": now.ends.get(tp, 0),
                **counts,
            }
            for name in COLUMNS:
                columns[name].append(row.get(name, 0))
        return Frame(
            broker,
            self._incarnation,
            self._tick,
            before.at_ms,
            now.at_ms,
            BrokerLoad(),
            tuple(
                Directory(
                    each.path,
                    max(0, each.total_bytes),
                    max(0, each.usable_bytes),
                    each.error is not None,
                )
                for each in now.directories.get(broker, [])[:DIRECTORIES_MAX]
            ),
            tuple(topics),
            columns,
            is_whole=True,
            is_estimated=True,
        )

    def _counts(
        self, tp: TopicPartition, partition: Partition, before: Sample, now: Sample
    ) -> dict[str, int]:
        def growth(newer: Mapping[TopicPartition, int], older: Mapping[TopicPartition, int]) -> int:
            """None of what is new, and none of what went back."""
            return max(0, newer.get(tp, 0) - older.get(tp, newer.get(tp, 0)))

        record_bytes = self._record_bytes.get(tp, 0.0)
        messages = growth(now.ends, before.ends)
        read = sum(
            growth(offsets, before.committed.get(group, {}))
            for group, offsets in now.committed.items()
        )
        bytes_in = round(messages * record_bytes)
        return {
            "bytes_in": bytes_in,
            "bytes_out": round(read * record_bytes),
            "follower_out": bytes_in * max(0, len(partition.isr) - 1),
            "messages": messages,
        }


def _sizes(sample: Sample, broker: int) -> dict[TopicPartition, tuple[int, int]]:
    """Size and directory of each replica on a broker."""
    return {
        replica.partition: (max(0, replica.size_bytes), min(number, NO_DIRECTORY))
        for number, directory in enumerate(sample.directories.get(broker, []))
        for replica in directory.replicas
        if not replica.is_future
    }
