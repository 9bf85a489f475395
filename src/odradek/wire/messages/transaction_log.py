"""Records of __transaction_state, one for each transactional id.

docs/spec/transactions.md section 1.
"""

from __future__ import annotations

from ..schema import Message, Struct, int8, int16, int32, int64, since


class TransactionLogKey(Message, versions=(0, 0)):
    transactional_id: str = since(0)


class PartitionsSchema(Struct):
    topic: str = since(0)
    partition_ids: list[int32] = since(0)


class TransactionLogValue(Message, versions=(0, 1), flexible=1):
    producer_id: int64 = since(0)
    producer_epoch: int16 = since(0)
    transaction_timeout_ms: int32 = since(0)
    transaction_status: int8 = since(0)
    transaction_partitions: list[PartitionsSchema] | None = since(0)
    transaction_last_update_timestamp_ms: int64 = since(0)
    transaction_start_timestamp_ms: int64 = since(0)
