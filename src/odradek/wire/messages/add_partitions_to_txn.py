"""AddPartitionsToTxn (24), v0–v5: partitions that a transaction is about to write to."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int16, int32, int64, since


class AddPartitionsToTxnTopic(Struct):
    name: str = since(0)
    partitions: list[int32] = since(0)


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str = since(4)
    producer_id: int64 = since(4)
    producer_epoch: int16 = since(4)
    verify_only: bool = since(4)
    topics: list[AddPartitionsToTxnTopic] = since(4)


class AddPartitionsToTxnRequest(
    Request["AddPartitionsToTxnResponse"], api_key=24, versions=(0, 5), flexible=3
):
    transactions: list[AddPartitionsToTxnTransaction] = since(4)
    v3_and_below_transactional_id: str = since(0, until=3)
    v3_and_below_producer_id: int64 = since(0, until=3)
    v3_and_below_producer_epoch: int16 = since(0, until=3)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = since(0, until=3)


class AddPartitionsToTxnTopicResult(Struct):
    name: str = since(0)
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = since(0)


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int32 = since(0)
    partition_error_code: int16 = since(0)


class AddPartitionsToTxnResult(Struct):
    transactional_id: str = since(4)
    topic_results: list[AddPartitionsToTxnTopicResult] = since(4)


class AddPartitionsToTxnResponse(Message, api_key=24, versions=(0, 5), flexible=3):
    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(4)
    results_by_transaction: list[AddPartitionsToTxnResult] = since(4)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = since(0, until=3)
