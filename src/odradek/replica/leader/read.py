"""Reading for fetches: one item, from one partition, within what is left of the limits.

docs/spec/controller-and-replication.md section 5.5. A read never opens a batch. Followers read to
the log's end, consumers to the high watermark or, read-committed, to the last stable offset.
Reading changes nothing: what a follower's fetch says about the follower is noted before
(leader/follower_fetches.py).
"""

from odradek.log.log import Log
from odradek.replica.cluster_metadata import ClusterMetadata
from odradek.replica.hosted_partitions import HostedPartitions
from odradek.replica.leader.divergence import divergence
from odradek.replica.leader.fetch_state import (
    FetchItem,
    FetchParams,
    FetchSet,
    ReadResult,
)
from odradek.replica.leader.replica_selector import Candidate, rack_aware
from odradek.replica.leader.role import LeaderRole
from odradek.replica.partition import Partition
from odradek.replica.throttle import ReplicationQuota, is_throttled_replica
from odradek.store.payloads import NO_EPOCH
from odradek.wire.batch import CorruptBatch, UnsupportedMagic, scan
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.fetch import (
    CONSUMER,
    AbortedTransaction,
    EpochEndOffset,
    PartitionData,
)
from odradek.wire.schema import Records, size_bytes

__all__ = ["ReadSummary", "Reader"]


UNREADABLE = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class ReadSummary:
    """What a read of a whole fetch found."""

    __slots__ = ("byte_count", "is_final", "results", "unreadable")

    def __init__(self) -> None:
        self.results: list[ReadResult] = []
        self.byte_count = 0
        self.is_final = False  # an error, a divergence or a better replica: answer now
        # Partitions that there is nothing to read from: they do not end the wait of the others.
        self.unreadable = 0


class Reader:
    """Serves fetches from hosted partitions."""

    def __init__(
        self,
        broker_id: int,
        partitions: HostedPartitions,
        cluster: ClusterMetadata,
        leader_quota: ReplicationQuota,
        *,
        select_by_rack: bool,
    ) -> None:
        self._broker_id = broker_id
        self._partitions = partitions
        self._cluster = cluster
        self._quota = leader_quota
        self._select_by_rack = select_by_rack

    def items(self, fetch_set: FetchSet) -> list[FetchItem]:
        """The items that may have news; those of a session are registered with their partitions."""
        items = fetch_set.to_read()
        if fetch_set.is_session:
            for item in items:
                if item.partition is None:
                    partition = self._partitions.get(item.tp)
                    if partition is not None:
                        partition.watch(item)
        return items

    def read(self, params: FetchParams, items: list[FetchItem]) -> ReadSummary:
        """Read each item, until the limits are reached."""
        summary = ReadSummary()
        left = min(params.max_bytes, params.room())
        whole_first = not params.hard_limit
        is_follower = params.is_follower
        for item in items:
            try:
                partition = item.partition or self._hosted(item)
                data, held_back = self._read_item(params, item, partition, left, whole_first)
            except KafkaError as error:
                data, held_back = _failed(item, error), False
                if error.error in UNREADABLE:
                    summary.unreadable += 1
                    summary.results.append((item, data, held_back))
                    continue
            if data.records:
                size = size_bytes(data.records)
                summary.byte_count += size
                left = max(0, left - size)
                whole_first = False
                if is_follower and self._is_metered(partition, params.replica_id):
                    self._quota.record(size)
            elif (
                data.error_code != ErrorCode.NONE
                or data.diverging_epoch is not None
                or data.preferred_read_replica >= 0
            ):
                summary.is_final = True
            if params.read_committed and not data.error_code and not data.aborted_transactions:
                data.aborted_transactions = []
            summary.results.append((item, data, held_back))
        return summary

    def is_at_end(self, params: FetchParams, items: list[FetchItem]) -> bool:
        """Whether a read on behalf of a follower would find nothing at all to say: then the fetch
        waits without one. Its items were observed before; one that has not passed is still marked
        as being in the request."""
        for item in items:
            partition = item.partition
            if partition is None or item.is_in_request:
                return False
            role = partition.role
            if (
                not isinstance(role, LeaderRole)
                or item.leader_epoch != role.epoch
                or params.replica_id not in role.followers
                or item.offset != role.replica.open_log.end_offset
                or not partition.is_of_topic(item.topic_id)
            ):
                return False
        return True

    def _hosted(self, item: FetchItem) -> Partition:
        if not item.is_resolved:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic here has id {item.topic_id}")
        return self._partitions[item.tp]

    def _read_item(
        self,
        params: FetchParams,
        item: FetchItem,
        partition: Partition,
        left: int,
        whole_first: bool,
    ) -> tuple[PartitionData, bool]:
        """The answer for one partition, and whether there was more that the limits held back."""
        if not partition.is_of_topic(item.topic_id):
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID, f"the log of {item.tp} is of another topic"
            )
        log = partition.log_for(item.leader_epoch, leader_only=params.leader_only)
        is_metered = is_throttled = False
        if params.is_follower:
            leader = partition.leader
            if params.replica_id not in leader.followers:
                raise leader.unknown_follower(
                    params.replica_id, has_epoch=item.leader_epoch != NO_EPOCH
                )
            if log.config.leader_replication_throttled_replicas:
                is_metered = self._is_metered(partition, params.replica_id)
                is_throttled = is_metered and self._quota.is_exceeded
        elif self._select_by_rack and params.rack_id and params.may_read_follower:
            preferred = self._preferred_replica(params, item, partition, log)
            if preferred is not None:
                return _data(item, log, None, preferred=preferred), False
        if item.last_fetched_epoch >= 0:
            diverging = divergence(item.offset, item.last_fetched_epoch, log)
            if diverging is not None:
                return _data(item, log, None, diverging=diverging), False
        _check_range(item, log)
        end = _readable_end(params, log)
        if item.offset >= end:
            return _data(item, log, None), False
        limit = 0 if is_throttled else min(item.max_bytes, left)
        if limit <= 0 and (is_throttled or not whole_first):
            return _data(item, log, None), True
        records = _records(item, log, end, limit, whole_first)
        if not records and params.hard_limit:
            # A client of v0–v2 that gets no byte asks for ever; from a part of the first batch it
            # sees that its limit is too small.
            records = log.read(item.offset, limit, end_offset=end).records[:limit]
        if not records:
            return _data(item, log, None), True
        if is_metered:
            records = _whole_batches(records)
        data = _data(item, log, records)
        if params.read_committed:
            data.aborted_transactions = [
                AbortedTransaction(
                    producer_id=aborted.producer_id, first_offset=aborted.first_offset
                )
                for aborted in log.aborted_transactions(item.offset, _end_of(records, end))
            ]
        return data, False

    def _is_metered(self, partition: Partition, follower_id: int) -> bool:
        """Whether what this follower reads counts against the quota: it is not in sync, and its
        topic throttles what this broker sends as leader."""
        log = partition.replica.log
        throttled = log and log.config.leader_replication_throttled_replicas
        if not throttled:
            return False
        return follower_id not in partition.leader.isr.committed and is_throttled_replica(
            throttled, partition.tp.partition, self._broker_id
        )

    def _preferred_replica(
        self, params: FetchParams, item: FetchItem, partition: Partition, log: Log
    ) -> int | None:
        """The replica that this consumer should read from instead, if there is a nearer one."""
        role, cluster = partition.role, self._cluster
        if not isinstance(role, LeaderRole):
            return None
        followers = [
            Candidate(each.id, cluster.rack(each.id), each.log_end, each.caught_up_at)
            for each in role.followers.values()
            if each.id in role.isr.committed
            and each.log_start <= item.offset <= each.log_end
            and cluster.is_alive(each.id)
        ]
        leader = Candidate(self._broker_id, cluster.rack(self._broker_id), log.end_offset, 0.0)
        return rack_aware(params.rack_id, leader, followers)


def _records(item: FetchItem, log: Log, end: int, limit: int, whole_first: bool) -> Records:
    """From memory if that is where they are, else from the disk."""
    kept = log.tail.read(item.offset, end, limit, min_one_batch=whole_first)
    if kept is not None:
        return kept
    return log.read(item.offset, limit, end_offset=end, min_one_batch=whole_first).records


def _whole_batches(records: Records) -> Records:
    """Without the part of a batch at the end: the reader throws it away, and where bytes are
    counted it would be paid for twice."""
    *parts, last = records if isinstance(records, list) else [records]
    end = 0
    try:
        for header in scan(last):
            end = header.end_position
    except (CorruptBatch, UnsupportedMagic):
        return records
    if not end:
        return parts or records
    return [*parts, last[:end]] if parts else last[:end]


def _end_of(records: Records, end: int) -> int:
    """Where whole batches end: a reader far behind needs no aborted transactions beyond that."""
    parts = records if isinstance(records, list) else [records]
    return max((header.next_offset for part in parts for header in scan(part)), default=end)


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


def _data(
    item: FetchItem,
    log: Log,
    records: Records | None,
    *,
    preferred: int = -1,
    diverging: tuple[int, int] | None = None,
) -> PartitionData:
    return PartitionData(
        partition_index=item.tp.partition,
        error_code=0,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.start_offset,
        diverging_epoch=None
        if diverging is None
        else EpochEndOffset(epoch=diverging[0], end_offset=diverging[1]),
        aborted_transactions=None,
        preferred_read_replica=preferred,
        records=b"" if records is None else records,
    )


def _failed(item: FetchItem, error: KafkaError) -> PartitionData:
    return PartitionData(
        partition_index=item.tp.partition,
        error_code=error.error,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        records=b"",
    )
