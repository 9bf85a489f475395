"""Reading for fetches: one item, from one partition, within what is left of the limits.

docs/spec/controller-and-replication.md section 5.5. A read never opens a batch. Followers read to
the log's end, consumers to the high watermark or, read-committed, to the last stable offset.
"""

from collections.abc import Callable

from odradek.log.log import Log
from odradek.replica.fetching import CONSUMER, FetchItem, FetchParams, FetchSet, ReadResult
from odradek.replica.isr import Follower
from odradek.replica.metadata_cache import MetadataCache
from odradek.replica.partition import NO_EPOCH, Partition
from odradek.replica.selector import Candidate, rack_aware
from odradek.replica.throttle import ReplicationQuota, is_throttled_replica
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.fetch import AbortedTransaction, EpochEndOffset, PartitionData
from odradek.wire.topics import TopicPartition

__all__ = ["ReadSummary", "Reader"]


class ReadSummary:
    """What a read of a whole fetch found."""

    __slots__ = ("byte_count", "is_final", "results")

    def __init__(self) -> None:
        self.results: list[ReadResult] = []
        self.byte_count = 0
        self.is_final = False  # an error, a divergence or a better replica: answer now


class Reader:
    """Serves fetches from hosted partitions."""

    def __init__(
        self,
        broker_id: int,
        hosted: Callable[[TopicPartition], Partition],
        cache: MetadataCache,
        leader_quota: ReplicationQuota,
        *,
        select_by_rack: bool,
        rack: Callable[[int], str | None],
    ) -> None:
        self._broker_id = broker_id
        self._hosted = hosted
        self._cache = cache
        self._quota = leader_quota
        self._select_by_rack = select_by_rack
        self._rack = rack

    def read(
        self, params: FetchParams, fetch_set: FetchSet, arrived_at: float | None
    ) -> ReadSummary:
        """Read every item that may have news.

        `arrived_at` is when a new request came: then a follower's positions are recorded. None
        means that a parked one is looked at again.
        """
        summary = ReadSummary()
        left = params.max_bytes
        whole_first = not params.hard_limit
        for item in fetch_set.to_read():
            try:
                data, held_back = self._read_item(params, item, left, whole_first, arrived_at)
            except KafkaError as error:
                data, held_back = _failed(item, error), False
            if data.records:
                size = len(data.records)
                summary.byte_count += size
                left = max(0, left - size)
                whole_first = False
            elif (
                data.error_code != ErrorCode.NONE
                or data.diverging_epoch is not None
                or data.preferred_read_replica >= 0
            ):
                summary.is_final = True
            summary.results.append((item, data, held_back))
        return summary

    def _read_item(
        self,
        params: FetchParams,
        item: FetchItem,
        left: int,
        whole_first: bool,
        arrived_at: float | None,
    ) -> tuple[PartitionData, bool]:
        partition = item.partition
        if partition is None:
            partition = self._hosted(item.topic_partition)
            if item.owner.is_session:
                partition.watch(item)
        log = partition.log_for(item.leader_epoch, leader_only=params.leader_only)
        follower = None
        if params.is_follower:
            follower = partition.follower(params.replica_id, item.leader_epoch)
        elif self._select_by_rack and params.rack_id and params.may_read_follower:
            preferred = self._preferred_replica(params, item, partition, log)
            if preferred is not None:
                return _data(item, log, None, preferred=preferred), False
        if item.last_fetched_epoch >= 0:
            diverging = _divergence(item, log)
            if diverging is not None:
                return _data(item, log, None, diverging=diverging), False
        _check_range(item, log)
        if follower is not None and item.moved and arrived_at is not None:
            item.moved = False
            partition.record_fetch(follower, item, arrived_at)
        end = _readable_end(params, log)
        if item.offset >= end:
            return _data(item, log, None), False
        throttled = follower is not None and self._is_throttled(partition, follower)
        limit = 0 if throttled else min(item.max_bytes, left)
        if limit <= 0 and (throttled or not whole_first):
            return _data(item, log, None), True
        records: bytes | memoryview
        fresh = partition.fresh
        if (
            fresh is not None
            and fresh[0] == item.offset
            and fresh[1] <= end
            and (len(fresh[2]) <= limit or whole_first)
        ):
            records = fresh[2]
        else:
            records = log.read(
                item.offset, limit, end_offset=end, min_one_batch=whole_first
            ).records
        if not records:
            return _data(item, log, None), True
        if follower is not None and self._counts_against_quota(partition, follower):
            self._quota.record(len(records))
        data = _data(item, log, records)
        if params.read_committed:
            data.aborted_transactions = [
                AbortedTransaction(
                    producer_id=aborted.producer_id, first_offset=aborted.first_offset
                )
                for aborted in log.aborted_transactions(item.offset, end)
            ]
        return data, False

    # Throttles

    def _counts_against_quota(self, partition: Partition, follower: Follower) -> bool:
        log = partition.local_log
        return follower.id not in partition.isr.committed and is_throttled_replica(
            log.config.leader_replication_throttled_replicas,
            partition.topic_partition.partition,
            self._broker_id,
        )

    def _is_throttled(self, partition: Partition, follower: Follower) -> bool:
        return self._counts_against_quota(partition, follower) and self._quota.is_exceeded

    # The nearest replica

    def _preferred_replica(
        self, params: FetchParams, item: FetchItem, partition: Partition, log: Log
    ) -> int | None:
        if not partition.is_leader:
            return None
        offset = item.offset
        followers = [
            Candidate(follower.id, self._rack(follower.id), follower.log_end, follower.caught_up_at)
            for follower in partition.followers.values()
            if follower.id in partition.isr.committed
            and follower.log_start <= offset <= follower.log_end
            and self._cache.is_alive(follower.id)
        ]
        leader = Candidate(self._broker_id, self._rack(self._broker_id), log.end_offset, 0.0)
        return rack_aware(params.rack_id, leader, followers)


def _readable_end(params: FetchParams, log: Log) -> int:
    if params.replica_id != CONSUMER:
        return log.end_offset
    return log.last_stable_offset if params.read_committed else log.high_watermark


def _check_range(item: FetchItem, log: Log) -> None:
    if item.offset < log.start_offset or item.offset > log.end_offset:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{item.offset} is not between {log.start_offset} and {log.end_offset}",
        )


def _divergence(item: FetchItem, log: Log) -> tuple[int, int] | None:
    """Where the asker's log and ours part, if they do (KIP-595).

    docs/spec/controller-and-replication.md section 5.2.
    """
    epoch, end = log.epochs.end_offset_for(item.last_fetched_epoch, log.end_offset)
    if epoch == NO_EPOCH or end == -1:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"leader epoch {item.last_fetched_epoch} is not known here",
        )
    if item.offset < log.start_offset:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"{item.offset} is before {log.start_offset}"
        )
    if epoch < item.last_fetched_epoch or end < item.offset:
        return epoch, end
    return None


def _data(
    item: FetchItem,
    log: Log,
    records: bytes | memoryview | None,
    *,
    preferred: int = -1,
    diverging: tuple[int, int] | None = None,
) -> PartitionData:
    return PartitionData(
        partition_index=item.topic_partition.partition,
        error_code=0,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.start_offset,
        diverging_epoch=None
        if diverging is None
        else EpochEndOffset(epoch=diverging[0], end_offset=diverging[1]),
        preferred_read_replica=preferred,
        records=b"" if records is None else records,
    )


def _failed(item: FetchItem, error: KafkaError) -> PartitionData:
    return PartitionData(
        partition_index=item.topic_partition.partition,
        error_code=error.error,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        records=b"",
    )
