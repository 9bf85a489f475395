"""DescribeDelegationToken (41), v0–v3: the tokens of some owners."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int16, int32, int64, since


class DescribeDelegationTokenOwner(Struct):
    principal_type: str = since(0)
    principal_name: str = since(0)


class DescribeDelegationTokenRequest(
    Request["DescribeDelegationTokenResponse"], api_key=41, versions=(0, 3), flexible=2
):
    owners: list[DescribeDelegationTokenOwner] | None = since(0)


class DescribedDelegationTokenRenewer(Struct):
    principal_type: str = since(0)
    principal_name: str = since(0)


class DescribedDelegationToken(Struct):
    principal_type: str = since(0)
    principal_name: str = since(0)
    token_requester_principal_type: str = since(3, ignorable=True)
    token_requester_principal_name: str = since(3, ignorable=True)
    issue_timestamp: int64 = since(0)
    expiry_timestamp: int64 = since(0)
    max_timestamp: int64 = since(0)
    token_id: str = since(0)
    hmac: bytes = since(0)
    renewers: list[DescribedDelegationTokenRenewer] = since(0)


class DescribeDelegationTokenResponse(Message, api_key=41, versions=(0, 3), flexible=2):
    error_code: int16 = since(0)
    tokens: list[DescribedDelegationToken] = since(0)
    throttle_time_ms: int32 = since(0)
