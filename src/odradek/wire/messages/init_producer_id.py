"""InitProducerId (22), v0–v5: an id and an epoch for an idempotent or transactional producer."""

from __future__ import annotations

from ..schema import Message, Request, int16, int32, int64, since


class InitProducerIdRequest(
    Request["InitProducerIdResponse"], api_key=22, versions=(0, 5), flexible=2
):
    transactional_id: str | None = since(0)  # null is a producer without transactions
    transaction_timeout_ms: int32 = since(0)
    producer_id: int64 = since(3, default=-1)
    producer_epoch: int16 = since(3, default=-1)


class InitProducerIdResponse(Message, api_key=22, versions=(0, 5), flexible=2):
    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    producer_id: int64 = since(0, default=-1)
    producer_epoch: int16 = since(0)
