"""OffsetCommit (8), v0–v9: a group's progress, to be remembered."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int16, int32, int64, since


class OffsetCommitRequestPartition(Struct):
    partition_index: int32 = since(0)
    committed_offset: int64 = since(0)
    committed_leader_epoch: int32 = since(6, default=-1, ignorable=True)
    commit_timestamp: int64 = since(1, until=1, default=-1)
    committed_metadata: str | None = since(0)


class OffsetCommitRequestTopic(Struct):
    name: str = since(0)
    partitions: list[OffsetCommitRequestPartition] = since(0)


class OffsetCommitRequest(Request["OffsetCommitResponse"], api_key=8, versions=(0, 9), flexible=8):
    group_id: str = since(0)
    # -1: not a member of the group
    generation_id_or_member_epoch: int32 = since(1, default=-1, ignorable=True)
    member_id: str = since(1, ignorable=True)
    group_instance_id: str | None = since(7, default=None)
    # -1: as the broker is configured
    retention_time_ms: int64 = since(2, until=4, default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = since(0)


class OffsetCommitResponsePartition(Struct):
    partition_index: int32 = since(0)
    error_code: int16 = since(0)


class OffsetCommitResponseTopic(Struct):
    name: str = since(0)
    partitions: list[OffsetCommitResponsePartition] = since(0)


class OffsetCommitResponse(Message, api_key=8, versions=(0, 9), flexible=8):
    throttle_time_ms: int32 = since(3)
    topics: list[OffsetCommitResponseTopic] = since(0)
