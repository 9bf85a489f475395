"""TxnOffsetCommit (28), v0–v4: offsets that are committed if the transaction is."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int16, int32, int64, since


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int32 = since(0)
    committed_offset: int64 = since(0)
    committed_leader_epoch: int32 = since(2, default=-1, ignorable=True)
    committed_metadata: str | None = since(0)


class TxnOffsetCommitRequestTopic(Struct):
    name: str = since(0)
    partitions: list[TxnOffsetCommitRequestPartition] = since(0)


class TxnOffsetCommitRequest(
    Request["TxnOffsetCommitResponse"], api_key=28, versions=(0, 4), flexible=3
):
    transactional_id: str = since(0)
    group_id: str = since(0)
    producer_id: int64 = since(0)
    producer_epoch: int16 = since(0)
    generation_id: int32 = since(3, default=-1)
    member_id: str = since(3)
    group_instance_id: str | None = since(3, default=None)
    topics: list[TxnOffsetCommitRequestTopic] = since(0)


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: int32 = since(0)
    error_code: int16 = since(0)


class TxnOffsetCommitResponseTopic(Struct):
    name: str = since(0)
    partitions: list[TxnOffsetCommitResponsePartition] = since(0)


class TxnOffsetCommitResponse(Message, api_key=28, versions=(0, 4), flexible=3):
    throttle_time_ms: int32 = since(0)
    topics: list[TxnOffsetCommitResponseTopic] = since(0)
