"""All fetchers of one broker: which fetcher has which partition.

docs/spec/controller-and-replication.md section 5.1.
"""

import asyncio
import logging
from collections.abc import Iterable

from odradek.replica.follower.fetcher import FetcherContext, ReplicaFetcher
from odradek.replica.partition import Partition
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.java_hash import java_hash
from odradek.wire.topics import TopicPartition

__all__ = ["FetcherManager", "fetcher_index"]

logger = logging.getLogger(__name__)


def fetcher_index(tp: TopicPartition, count: int) -> int:
    """Which of `count` fetchers has this partition: Kafka's own choice."""
    return ((31 * java_hash(tp.topic) + tp.partition) & 0x7FFFFFFF) % count


class FetcherManager:
    """One fetcher per leader and index, made when first needed."""

    def __init__(self, context: FetcherContext) -> None:
        self._context = context
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._by_partition: dict[TopicPartition, ReplicaFetcher] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._failed = 0

    def add(self, partitions: Iterable[Partition]) -> None:
        """Follow these partitions from their leaders."""
        shares: dict[tuple[int, int], list[Partition]] = {}
        for partition in partitions:
            assert partition.leader_id is not None, partition
            assert not partition.is_leader, partition
            tp = partition.tp
            assert tp not in self._by_partition, tp
            index = fetcher_index(tp, self._context.config.num_replica_fetchers)
            shares.setdefault((partition.leader_id, index), []).append(partition)
        for key, share in shares.items():
            fetcher = self._fetchers.get(key)
            if fetcher is None:
                fetcher = self._fetchers[key] = ReplicaFetcher(
                    self._context, *key, on_failure=self._partition_failed
                )
            fetcher.add(share)
            for partition in share:
                self._by_partition[partition.tp] = fetcher

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            fetcher = self._by_partition.pop(tp, None)
            if fetcher is not None:
                fetcher.remove(tp)

    def topic_id_changed(self, tp: TopicPartition) -> None:
        fetcher = self._by_partition.get(tp)
        if fetcher is not None:
            fetcher.topic_id_changed(tp)

    def _partition_failed(self, partition: Partition, error: Exception) -> None:
        """A fetcher has dropped this partition until the controller's next LeaderAndIsr."""
        # A leader that is ahead in epochs is ordinary: the controller's request is on its way.
        is_fenced = isinstance(error, KafkaError) and error.error is ErrorCode.FENCED_LEADER_EPOCH
        logger.log(
            logging.INFO if is_fenced else logging.ERROR,
            "%s: follower stops fetching in leader epoch %d: %s",
            partition.tp,
            partition.leader_epoch,
            error,
        )
        self._by_partition.pop(partition.tp, None)
        self._failed += 1

    def __contains__(self, tp: object) -> bool:
        """Whether records of this partition are being fetched."""
        return tp in self._by_partition

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

    def max_lag(self) -> int:
        """Records that the slowest follower here is behind its leader."""
        return max((lag for each in self._fetchers.values() for lag in each.lags()), default=0)

    def statistics(self) -> dict[str, int]:
        totals = {
            "fetchers": len(self._fetchers),
            "following": len(self._by_partition),
            "failed": self._failed,
            **self._context.counts,
        }
        for fetcher in self._fetchers.values():
            for name, count in fetcher.statistics().items():
                totals[name] = totals.get(name, 0) + count
        return totals
