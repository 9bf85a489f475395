"""EndTxn (26), v0–v4: commit or abort a transaction."""

from __future__ import annotations

from ..schema import Message, Request, int16, int32, int64, since


class EndTxnRequest(Request["EndTxnResponse"], api_key=26, versions=(0, 4), flexible=3):
    transactional_id: str = since(0)
    producer_id: int64 = since(0)
    producer_epoch: int16 = since(0)
    committed: bool = since(0)


class EndTxnResponse(Message, api_key=26, versions=(0, 4), flexible=3):
    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
