"""Produce (0), v0–v11: record batches to append, and where they ended up."""

from __future__ import annotations

from ..schema import Message, Records, Request, Struct, int16, int32, int64, since


class PartitionProduceData(Struct):
    index: int32 = since(0)
    records: Records | None = since(0)


class TopicProduceData(Struct):
    name: str = since(0)
    partition_data: list[PartitionProduceData] = since(0)


class ProduceRequest(Request["ProduceResponse"], api_key=0, versions=(0, 11), flexible=9):
    transactional_id: str | None = since(3, default=None)
    acks: int16 = since(0)  # 0: do not answer; 1: the leader has it; -1: the whole ISR has it
    timeout_ms: int32 = since(0)
    topic_data: list[TopicProduceData] = since(0)


class BatchIndexAndErrorMessage(Struct):
    batch_index: int32 = since(8)
    batch_index_error_message: str | None = since(8, default=None)


class LeaderIdAndEpoch(Struct):
    leader_id: int32 = since(10, default=-1)
    leader_epoch: int32 = since(10, default=-1)


class PartitionProduceResponse(Struct):
    index: int32 = since(0)
    error_code: int16 = since(0)
    base_offset: int64 = since(0)
    log_append_time_ms: int64 = since(2, default=-1)  # -1 unless the topic stamps at append
    log_start_offset: int64 = since(5, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = since(8)
    error_message: str | None = since(8, default=None)
    current_leader: LeaderIdAndEpoch | None = since(10, tag=0)


class TopicProduceResponse(Struct):
    name: str = since(0)
    partition_responses: list[PartitionProduceResponse] = since(0)


class NodeEndpoint(Struct):
    node_id: int32 = since(10)
    host: str = since(10)
    port: int32 = since(10)
    rack: str | None = since(10, default=None)


class ProduceResponse(Message, api_key=0, versions=(0, 11), flexible=9):
    responses: list[TopicProduceResponse] = since(0)
    throttle_time_ms: int32 = since(1)
    node_endpoints: list[NodeEndpoint] = since(10, tag=0)
