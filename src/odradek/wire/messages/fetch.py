"""Fetch (1), v0–v17: record batches from an offset on; consumers and followers ask alike."""

from __future__ import annotations

from uuid import UUID

from ..schema import Message, Records, Request, Struct, int8, int16, int32, int64, since

# Instead of a broker's id. Tools say -2: they read from any replica, up to the log's end.
CONSUMER = -1


class ReplicaState(Struct):
    replica_id: int32 = since(15, default=-1)
    replica_epoch: int64 = since(15, default=-1)


class FetchPartition(Struct):
    partition: int32 = since(0)
    current_leader_epoch: int32 = since(9, default=-1, ignorable=True)
    fetch_offset: int64 = since(0)
    last_fetched_epoch: int32 = since(12, default=-1)
    # a follower's own; -1 from a consumer
    log_start_offset: int64 = since(5, default=-1, ignorable=True)
    partition_max_bytes: int32 = since(0)
    replica_directory_id: UUID = since(17, tag=0, ignorable=True)


class FetchTopic(Struct):
    topic: str = since(0, until=12, ignorable=True)
    topic_id: UUID = since(13, ignorable=True)
    partitions: list[FetchPartition] = since(0)


class ForgottenTopic(Struct):
    topic: str = since(7, until=12, ignorable=True)
    topic_id: UUID = since(13, ignorable=True)
    partitions: list[int32] = since(7)


class FetchRequest(Request["FetchResponse"], api_key=1, versions=(0, 17), flexible=12):
    cluster_id: str | None = since(12, tag=0, default=None, ignorable=True)
    replica_id: int32 = since(0, until=14, default=-1)  # a follower's broker id; -1 is a consumer
    replica_state: ReplicaState | None = since(15, tag=1)
    max_wait_ms: int32 = since(0)
    min_bytes: int32 = since(0)
    max_bytes: int32 = since(3, default=2147483647, ignorable=True)
    isolation_level: int8 = since(4, ignorable=True)  # 0 read uncommitted, 1 read committed
    session_id: int32 = since(7, ignorable=True)
    # 0 opens a session, -1 asks for none
    session_epoch: int32 = since(7, default=-1, ignorable=True)
    topics: list[FetchTopic] = since(0)
    forgotten_topics_data: list[ForgottenTopic] = since(7)
    rack_id: str = since(11, ignorable=True)


def replica_id_of(request: FetchRequest) -> int:
    """The follower that fetches, in whichever field this version has it; -1 is a consumer."""
    state = request.replica_state
    return request.replica_id if state is None else state.replica_id


class EpochEndOffset(Struct):
    epoch: int32 = since(12, default=-1)
    end_offset: int64 = since(12, default=-1)


class LeaderIdAndEpoch(Struct):
    leader_id: int32 = since(12, default=-1)
    leader_epoch: int32 = since(12, default=-1)


class SnapshotId(Struct):
    end_offset: int64 = since(0, default=-1)
    epoch: int32 = since(0, default=-1)


class AbortedTransaction(Struct):
    producer_id: int64 = since(4)
    first_offset: int64 = since(4)


class PartitionData(Struct):
    partition_index: int32 = since(0)
    error_code: int16 = since(0)
    high_watermark: int64 = since(0)
    last_stable_offset: int64 = since(4, default=-1)
    log_start_offset: int64 = since(5, default=-1)
    diverging_epoch: EpochEndOffset | None = since(12, tag=0)
    current_leader: LeaderIdAndEpoch | None = since(12, tag=1)
    snapshot_id: SnapshotId | None = since(12, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = since(4)
    preferred_read_replica: int32 = since(11, default=-1)
    records: Records | None = since(0)


class FetchableTopicResponse(Struct):
    topic: str = since(0, until=12)
    topic_id: UUID = since(13)
    partitions: list[PartitionData] = since(0)


class NodeEndpoint(Struct):
    node_id: int32 = since(16)
    host: str = since(16)
    port: int32 = since(16)
    rack: str | None = since(16, default=None)


class FetchResponse(Message, api_key=1, versions=(0, 17), flexible=12):
    throttle_time_ms: int32 = since(1)
    error_code: int16 = since(7)
    session_id: int32 = since(7)
    responses: list[FetchableTopicResponse] = since(0)
    node_endpoints: list[NodeEndpoint] = since(16, tag=0)
