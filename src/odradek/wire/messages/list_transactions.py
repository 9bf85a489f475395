"""ListTransactions (66), v0–v1: the transactions a broker coordinates."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int16, int32, int64, since


class ListTransactionsRequest(
    Request["ListTransactionsResponse"], api_key=66, versions=(0, 1), flexible=0
):
    state_filters: list[str] = since(0)
    producer_id_filters: list[int64] = since(0)
    duration_filter: int64 = since(1, default=-1)


class TransactionState(Struct):
    transactional_id: str = since(0)
    producer_id: int64 = since(0)
    transaction_state: str = since(0)


class ListTransactionsResponse(Message, api_key=66, versions=(0, 1), flexible=0):
    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    unknown_state_filters: list[str] = since(0)
    transaction_states: list[TransactionState] = since(0)
