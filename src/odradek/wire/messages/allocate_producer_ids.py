"""AllocateProducerIds (67), v0: a block of producer ids from the controller."""

from __future__ import annotations

from ..schema import Message, Request, int16, int32, int64, since


class AllocateProducerIdsRequest(
    Request["AllocateProducerIdsResponse"], api_key=67, versions=(0, 0), flexible=0
):
    broker_id: int32 = since(0)
    broker_epoch: int64 = since(0, default=-1)


class AllocateProducerIdsResponse(Message, api_key=67, versions=(0, 0), flexible=0):
    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    producer_id_start: int64 = since(0)
    producer_id_len: int32 = since(0)
