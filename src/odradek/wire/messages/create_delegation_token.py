"""CreateDelegationToken (38), v0–v3: a token that stands for a user for a while."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int16, int32, int64, since


class CreatableRenewers(Struct):
    principal_type: str = since(0)
    principal_name: str = since(0)


class CreateDelegationTokenRequest(
    Request["CreateDelegationTokenResponse"], api_key=38, versions=(0, 3), flexible=2
):
    owner_principal_type: str | None = since(3)
    owner_principal_name: str | None = since(3)
    renewers: list[CreatableRenewers] = since(0)
    max_lifetime_ms: int64 = since(0)


class CreateDelegationTokenResponse(Message, api_key=38, versions=(0, 3), flexible=2):
    error_code: int16 = since(0)
    principal_type: str = since(0)
    principal_name: str = since(0)
    token_requester_principal_type: str = since(3, ignorable=True)
    token_requester_principal_name: str = since(3, ignorable=True)
    issue_timestamp_ms: int64 = since(0)
    expiry_timestamp_ms: int64 = since(0)
    max_timestamp_ms: int64 = since(0)
    token_id: str = since(0)
    hmac: bytes = since(0)
    throttle_time_ms: int32 = since(0)
