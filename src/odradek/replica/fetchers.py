"""All fetchers of one broker: which partition is fetched by whom.

docs/spec/controller-and-replication.md section 5.1.
"""

import asyncio
from collections.abc import Iterable

from odradek.replica.fetcher import FetcherHost, ReplicaFetcher
from odradek.replica.partition import Partition
from odradek.wire.topics import TopicPartition

__all__ = ["FetcherManager", "fetcher_index"]


def java_hash(text: str) -> int:
    """Java's String.hashCode, as a signed 32-bit number."""
    value = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def fetcher_index(of: TopicPartition, count: int) -> int:
    """Which of `count` fetchers has this partition: Kafka's own choice."""
    return ((31 * java_hash(of.topic) + of.partition) & 0x7FFFFFFF) % count


class FetcherManager:
    """One fetcher per leader and index, made when first needed."""

    def __init__(self, host: FetcherHost) -> None:
        self._host = host
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._by_partition: dict[TopicPartition, ReplicaFetcher] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def add(self, partitions: Iterable[Partition]) -> None:
        """Follow these partitions from their leaders."""
        shares: dict[tuple[int, int], list[Partition]] = {}
        for partition in partitions:
            assert partition.leader_id is not None, partition
            assert not partition.is_leader, partition
            of = partition.topic_partition
            assert of not in self._by_partition, of
            index = fetcher_index(of, self._host.config.num_replica_fetchers)
            shares.setdefault((partition.leader_id, index), []).append(partition)
        for key, share in shares.items():
            fetcher = self._fetchers.get(key)
            if fetcher is None:
                fetcher = self._fetchers[key] = ReplicaFetcher(self._host, *key)
            fetcher.add(share)
            for partition in share:
                self._by_partition[partition.topic_partition] = fetcher

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        for of in partitions:
            fetcher = self._by_partition.pop(of, None)
            if fetcher is not None:
                fetcher.remove(of)

    def forget(self, of: TopicPartition) -> None:
        """The fetcher itself has dropped this partition."""
        self._by_partition.pop(of, None)

    def is_following(self, of: TopicPartition) -> bool:
        return of in self._by_partition

    def close_idle(self) -> None:
        """End fetchers that have nothing left to fetch."""
        for key, fetcher in list(self._fetchers.items()):
            if not len(fetcher):
                del self._fetchers[key]
                task = asyncio.ensure_future(fetcher.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)

    def brokers_changed(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.reconnect_if_moved()

    async def close(self) -> None:
        fetchers, self._fetchers = list(self._fetchers.values()), {}
        self._by_partition.clear()
        await asyncio.gather(*(fetcher.close() for fetcher in fetchers), *self._closing)

    def statistics(self) -> dict[str, int]:
        totals = {"fetchers": len(self._fetchers), "following": len(self._by_partition)}
        for fetcher in self._fetchers.values():
            for name, count in fetcher.statistics().items():
                totals[name] = totals.get(name, 0) + count
        return totals
