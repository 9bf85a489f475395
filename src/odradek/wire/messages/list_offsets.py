"""ListOffsets (2), v0–v9: the offset at a timestamp, or at either end of a log."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int8, int16, int32, int64, since

# What a timestamp means that is none.
LATEST = -1
EARLIEST = -2


class ListOffsetsPartition(Struct):
    partition_index: int32 = since(0)
    current_leader_epoch: int32 = since(4, default=-1, ignorable=True)
    timestamp: int64 = since(0)  # or LATEST, the end of the log, or EARLIEST, its start
    max_num_offsets: int32 = since(0, until=0, default=1)


class ListOffsetsTopic(Struct):
    name: str = since(0)
    partitions: list[ListOffsetsPartition] = since(0)


class ListOffsetsRequest(Request["ListOffsetsResponse"], api_key=2, versions=(0, 9), flexible=6):
    replica_id: int32 = since(0)  # a follower's broker id; -1 is a consumer, -2 a debugger
    isolation_level: int8 = since(2)  # 0 read uncommitted, 1 read committed
    topics: list[ListOffsetsTopic] = since(0)


class ListOffsetsPartitionResponse(Struct):
    partition_index: int32 = since(0)
    error_code: int16 = since(0)
    old_style_offsets: list[int64] = since(0, until=0)
    timestamp: int64 = since(1, default=-1)
    offset: int64 = since(1, default=-1)
    leader_epoch: int32 = since(4, default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str = since(0)
    partitions: list[ListOffsetsPartitionResponse] = since(0)


class ListOffsetsResponse(Message, api_key=2, versions=(0, 9), flexible=6):
    throttle_time_ms: int32 = since(2)
    topics: list[ListOffsetsTopicResponse] = since(0)
