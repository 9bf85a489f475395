"""AddOffsetsToTxn (25), v0–v4: a group whose offsets a transaction is about to commit."""

from __future__ import annotations

from ..schema import Message, Request, int16, int32, int64, since


class AddOffsetsToTxnRequest(
    Request["AddOffsetsToTxnResponse"], api_key=25, versions=(0, 4), flexible=3
):
    transactional_id: str = since(0)
    producer_id: int64 = since(0)
    producer_epoch: int16 = since(0)
    group_id: str = since(0)


class AddOffsetsToTxnResponse(Message, api_key=25, versions=(0, 4), flexible=3):
    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
