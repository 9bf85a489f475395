"""DescribeTransactions (65), v0: the state of transactions."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int16, int32, int64, since


class DescribeTransactionsRequest(
    Request["DescribeTransactionsResponse"], api_key=65, versions=(0, 0), flexible=0
):
    transactional_ids: list[str] = since(0)


class TopicData(Struct):
    topic: str = since(0)
    partitions: list[int32] = since(0)


class TransactionState(Struct):
    error_code: int16 = since(0)
    transactional_id: str = since(0)
    transaction_state: str = since(0)
    transaction_timeout_ms: int32 = since(0)
    transaction_start_time_ms: int64 = since(0)
    producer_id: int64 = since(0)
    producer_epoch: int16 = since(0)
    topics: list[TopicData] = since(0)


class DescribeTransactionsResponse(Message, api_key=65, versions=(0, 0), flexible=0):
    throttle_time_ms: int32 = since(0)
    transaction_states: list[TransactionState] = since(0)
