"""A cluster at one moment, as far as Kafka's APIs show it: what the health rules look at.

Everything comes from requests any broker answers (Metadata, DescribeConfigs, DescribeLogDirs,
ListPartitionReassignments, group offsets), so it works with Apache Kafka's brokers, too. A request
that fails leaves its part out, and `unanswered` says which: a cluster in trouble must not keep us
from seeing the trouble.
"""

import asyncio
import time
from collections.abc import Awaitable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from odradek.client.admin import Admin
from odradek.client.groups import Groups, Lag
from odradek.client.metadata import Node, Topic
from odradek.client.values import LogDir, Resource, ResourceType
from odradek.placement import Ongoing
from odradek.wire.errors import KafkaError
from odradek.wire.topics import TopicPartition

# The share of a disk above which it is nearly full.
DISK_USED_MAX = 0.85
MIN_INSYNC = "min.insync.replicas"
# Groups asked at a time: each is a request to its coordinator and one to each leader.
GROUPS_AT_ONCE = 16

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """A cluster at `at_ms`, by the wall clock of this machine."""

    at_ms: int
    controller_id: int
    brokers: Mapping[int, Node] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)
    min_insync: Mapping[str, int] = field(default_factory=dict)
    log_dirs: Mapping[int, Sequence[LogDir]] = field(default_factory=dict)
    reassignments: Mapping[TopicPartition, Ongoing] = field(default_factory=dict)
    group_lags: Mapping[str, Mapping[TopicPartition, Lag]] = field(default_factory=dict)
    unanswered: Sequence[str] = ()
    disk_used_max: float = DISK_USED_MAX

    @property
    def needs_second(self) -> bool:
        """Whether something goes on that only a second snapshot can judge."""
        lags = (lag.records for lags in self.group_lags.values() for lag in lags.values())
        return bool(self.reassignments) or any(lags)

    def replica_bytes(self, tp: TopicPartition, broker: int) -> int:
        """What a broker has of a partition, as far as it says."""
        return sum(
            replica.size_bytes
            for directory in self.log_dirs.get(broker, ())
            for replica in directory.replicas
            if replica.partition == tp and not replica.is_future
        )


async def take_snapshot(
    admin: Admin, groups: Groups, disk_used_max: float = DISK_USED_MAX
) -> ClusterSnapshot:
    """Ask the cluster. Raises only if no broker answers at all."""
    metadata = await admin.client.refresh(None)
    unanswered: list[str] = []

    async def attempt(what: str, call: Awaitable[T], otherwise: T) -> T:
        try:
            return await call
        except (KafkaError, OSError, TimeoutError) as error:
            unanswered.append(f"{what}: {error}")
            return otherwise

    brokers = sorted(metadata.nodes)
    (min_insync, reassignments, (group_lags, unread)), log_dirs = await asyncio.gather(
        asyncio.gather(
            attempt("settings of topics", _min_insync(admin, list(metadata.topics)), {}),
            attempt("reassignments", admin.list_reassignments(), {}),
            _group_lags(groups, brokers),
        ),
        asyncio.gather(
            *(
                attempt(f"log directories of broker {id}", admin.describe_log_dirs([id]), {})
                for id in brokers
            )
        ),
    )
    unanswered += unread
    return ClusterSnapshot(
        time.time_ns() // 1_000_000,
        metadata.controller_id,
        dict(metadata.nodes),
        dict(metadata.topics),
        min_insync,
        {id: found for answer in log_dirs for id, found in answer.items()},
        reassignments,
        group_lags,
        tuple(sorted(unanswered)),
        disk_used_max,
    )


async def _min_insync(admin: Admin, topics: Sequence[str]) -> dict[str, int]:
    described = await admin.describe_configs(Resource(ResourceType.TOPIC, name) for name in topics)
    return {
        resource.name: int(entry.value)
        for resource, entries in described.items()
        if isinstance(entries, list)
        for entry in entries
        if entry.name == MIN_INSYNC and entry.value is not None
    }


async def _group_lags(
    groups: Groups, brokers: Sequence[int]
) -> tuple[dict[str, dict[TopicPartition, Lag]], list[str]]:
    """By group, and what is not known: a broker that does not answer, or a group that cannot be
    read, hides no other."""
    limit = asyncio.Semaphore(GROUPS_AT_ONCE)

    async def lag(group: str) -> dict[TopicPartition, Lag]:
        async with limit:
            return await groups.lag(group, led_only=True)

    listed = await _outcomes(groups.list_groups([broker]) for broker in brokers)
    unread = [
        f"consumer groups of broker {broker}: {found}"
        for broker, found in zip(brokers, listed, strict=True)
        if isinstance(found, Exception)
    ]
    names = [group.id for found in listed if isinstance(found, list) for group in found]
    read = await _outcomes(map(lag, names))
    failures = [found for found in read if isinstance(found, Exception)]
    if failures:
        unread.append(f"lag of {len(failures)} of {len(names)} consumer groups: {failures[0]}")
    return {
        name: found
        for name, found in zip(names, read, strict=True)
        if not isinstance(found, Exception)
    }, unread


async def _outcomes(calls: Iterable[Coroutine[Any, Any, T]]) -> "list[T | Exception]":
    """What each of them brought, or how it failed. What is no failure of the cluster is raised."""

    async def outcome(call: Coroutine[Any, Any, T]) -> T | Exception:
        try:
            return await call
        except (KafkaError, OSError, TimeoutError) as error:
            return error

    return list(await asyncio.gather(*map(outcome, calls)))
