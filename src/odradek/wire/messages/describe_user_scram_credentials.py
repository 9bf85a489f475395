"""DescribeUserScramCredentials (50), v0: which users can log in with SCRAM."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int8, int16, int32, since


class UserName(Struct):
    name: str = since(0)


class DescribeUserScramCredentialsRequest(
    Request["DescribeUserScramCredentialsResponse"], api_key=50, versions=(0, 0), flexible=0
):
    users: list[UserName] | None = since(0)


class CredentialInfo(Struct):
    mechanism: int8 = since(0)
    iterations: int32 = since(0)


class DescribeUserScramCredentialsResult(Struct):
    user: str = since(0)
    error_code: int16 = since(0)
    error_message: str | None = since(0)
    credential_infos: list[CredentialInfo] = since(0)


class DescribeUserScramCredentialsResponse(Message, api_key=50, versions=(0, 0), flexible=0):
    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    error_message: str | None = since(0)
    results: list[DescribeUserScramCredentialsResult] = since(0)
