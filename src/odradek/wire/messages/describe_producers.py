"""DescribeProducers (61), v0: the producers that are writing to partitions."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int16, int32, int64, since


class TopicRequest(Struct):
    name: str = since(0)
    partition_indexes: list[int32] = since(0)


class DescribeProducersRequest(
    Request["DescribeProducersResponse"], api_key=61, versions=(0, 0), flexible=0
):
    topics: list[TopicRequest] = since(0)


class ProducerState(Struct):
    producer_id: int64 = since(0)
    producer_epoch: int32 = since(0)
    last_sequence: int32 = since(0, default=-1)
    last_timestamp: int64 = since(0, default=-1)
    coordinator_epoch: int32 = since(0)
    current_txn_start_offset: int64 = since(0, default=-1)


class PartitionResponse(Struct):
    partition_index: int32 = since(0)
    error_code: int16 = since(0)
    error_message: str | None = since(0, default=None)
    active_producers: list[ProducerState] = since(0)


class TopicResponse(Struct):
    name: str = since(0)
    partitions: list[PartitionResponse] = since(0)


class DescribeProducersResponse(Message, api_key=61, versions=(0, 0), flexible=0):
    throttle_time_ms: int32 = since(0)
    topics: list[TopicResponse] = since(0)
