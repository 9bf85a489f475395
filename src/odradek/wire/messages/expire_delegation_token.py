"""ExpireDelegationToken (40), v0–v2: end a token, now or later."""

from __future__ import annotations

from ..schema import Message, Request, int16, int32, int64, since


class ExpireDelegationTokenRequest(
    Request["ExpireDelegationTokenResponse"], api_key=40, versions=(0, 2), flexible=2
):
    hmac: bytes = since(0)
    expiry_time_period_ms: int64 = since(0)


class ExpireDelegationTokenResponse(Message, api_key=40, versions=(0, 2), flexible=2):
    error_code: int16 = since(0)
    expiry_timestamp_ms: int64 = since(0)
    throttle_time_ms: int32 = since(0)
