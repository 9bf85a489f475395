"""OffsetDelete (47), v0: forget a group's offsets for some partitions."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int16, int32, since


class OffsetDeleteRequestPartition(Struct):
    partition_index: int32 = since(0)


class OffsetDeleteRequestTopic(Struct):
    name: str = since(0)
    partitions: list[OffsetDeleteRequestPartition] = since(0)


class OffsetDeleteRequest(Request["OffsetDeleteResponse"], api_key=47, versions=(0, 0)):
    group_id: str = since(0)
    topics: list[OffsetDeleteRequestTopic] = since(0)


class OffsetDeleteResponsePartition(Struct):
    partition_index: int32 = since(0)
    error_code: int16 = since(0)


class OffsetDeleteResponseTopic(Struct):
    name: str = since(0)
    partitions: list[OffsetDeleteResponsePartition] = since(0)


class OffsetDeleteResponse(Message, api_key=47, versions=(0, 0)):
    error_code: int16 = since(0)
    throttle_time_ms: int32 = since(0)
    topics: list[OffsetDeleteResponseTopic] = since(0)
