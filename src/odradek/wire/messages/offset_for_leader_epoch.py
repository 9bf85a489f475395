"""OffsetForLeaderEpoch (23), v0–v4: where a leader epoch ended: what a follower truncates to."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int16, int32, int64, since

# An epoch or end offset that the leader cannot give.
UNDEFINED = -1


class OffsetForLeaderPartition(Struct):
    partition: int32 = since(0)
    current_leader_epoch: int32 = since(2, default=-1, ignorable=True)
    leader_epoch: int32 = since(0)


class OffsetForLeaderTopic(Struct):
    topic: str = since(0)
    partitions: list[OffsetForLeaderPartition] = since(0)


class OffsetForLeaderEpochRequest(
    Request["OffsetForLeaderEpochResponse"], api_key=23, versions=(0, 4), flexible=4
):
    replica_id: int32 = since(3, default=-2, ignorable=True)  # -1 is a consumer, -2 a debugger
    topics: list[OffsetForLeaderTopic] = since(0)


class EpochEndOffset(Struct):
    error_code: int16 = since(0)
    partition: int32 = since(0)
    leader_epoch: int32 = since(1, default=-1)
    end_offset: int64 = since(0, default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: str = since(0)
    partitions: list[EpochEndOffset] = since(0)


class OffsetForLeaderEpochResponse(Message, api_key=23, versions=(0, 4), flexible=4):
    throttle_time_ms: int32 = since(2)
    topics: list[OffsetForLeaderTopicResult] = since(0)
