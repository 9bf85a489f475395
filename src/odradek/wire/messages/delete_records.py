"""DeleteRecords (21), v0–v2: raise the first offset of partitions."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int16, int32, int64, since


class DeleteRecordsPartition(Struct):
    partition_index: int32 = since(0)
    offset: int64 = since(0)  # -1 is the high watermark


class DeleteRecordsTopic(Struct):
    name: str = since(0)
    partitions: list[DeleteRecordsPartition] = since(0)


class DeleteRecordsRequest(
    Request["DeleteRecordsResponse"], api_key=21, versions=(0, 2), flexible=2
):
    topics: list[DeleteRecordsTopic] = since(0)
    timeout_ms: int32 = since(0)


class DeleteRecordsPartitionResult(Struct):
    partition_index: int32 = since(0)
    low_watermark: int64 = since(0)
    error_code: int16 = since(0)


class DeleteRecordsTopicResult(Struct):
    name: str = since(0)
    partitions: list[DeleteRecordsPartitionResult] = since(0)


class DeleteRecordsResponse(Message, api_key=21, versions=(0, 2), flexible=2):
    throttle_time_ms: int32 = since(0)
    topics: list[DeleteRecordsTopicResult] = since(0)
