"""OffsetFetch (9), v0–v9: a group's progress, as it was remembered."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int16, int32, int64, since


class OffsetFetchRequestTopic(Struct):
    name: str = since(0, until=7)
    partition_indexes: list[int32] = since(0, until=7)


class OffsetFetchRequestTopics(Struct):
    name: str = since(8)
    partition_indexes: list[int32] = since(8)


class OffsetFetchRequestGroup(Struct):
    group_id: str = since(8)
    member_id: str | None = since(9, default=None, ignorable=True)
    member_epoch: int32 = since(9, default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = since(8)  # null asks for all


class OffsetFetchRequest(Request["OffsetFetchResponse"], api_key=9, versions=(0, 9), flexible=6):
    group_id: str = since(0, until=7)
    # null asks for all
    topics: list[OffsetFetchRequestTopic] | None = since(0, until=7, nullable_since=2)
    groups: list[OffsetFetchRequestGroup] = since(8)
    require_stable: bool = since(7)


class OffsetFetchResponsePartition(Struct):
    partition_index: int32 = since(0, until=7)
    committed_offset: int64 = since(0, until=7)
    committed_leader_epoch: int32 = since(5, until=7, default=-1)
    metadata: str | None = since(0, until=7)
    error_code: int16 = since(0, until=7)


class OffsetFetchResponseTopic(Struct):
    name: str = since(0, until=7)
    partitions: list[OffsetFetchResponsePartition] = since(0, until=7)


class OffsetFetchResponsePartitions(Struct):
    partition_index: int32 = since(8)
    committed_offset: int64 = since(8)
    committed_leader_epoch: int32 = since(8, default=-1)
    metadata: str | None = since(8)
    error_code: int16 = since(8)


class OffsetFetchResponseTopics(Struct):
    name: str = since(8)
    partitions: list[OffsetFetchResponsePartitions] = since(8)


class OffsetFetchResponseGroup(Struct):
    group_id: str = since(8)
    topics: list[OffsetFetchResponseTopics] = since(8)
    error_code: int16 = since(8)


class OffsetFetchResponse(Message, api_key=9, versions=(0, 9), flexible=6):
    throttle_time_ms: int32 = since(3)
    topics: list[OffsetFetchResponseTopic] = since(0, until=7)
    error_code: int16 = since(2, until=7)
    groups: list[OffsetFetchResponseGroup] = since(8)
