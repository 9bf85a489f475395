"""RenewDelegationToken (39), v0–v2: let a token live longer."""

from __future__ import annotations

from ..schema import Message, Request, int16, int32, int64, since


class RenewDelegationTokenRequest(
    Request["RenewDelegationTokenResponse"], api_key=39, versions=(0, 2), flexible=2
):
    hmac: bytes = since(0)
    renew_period_ms: int64 = since(0)


class RenewDelegationTokenResponse(Message, api_key=39, versions=(0, 2), flexible=2):
    error_code: int16 = since(0)
    expiry_timestamp_ms: int64 = since(0)
    throttle_time_ms: int32 = since(0)
