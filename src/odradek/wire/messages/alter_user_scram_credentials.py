"""AlterUserScramCredentials (51), v0: add, change and remove SCRAM credentials of users."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int8, int16, int32, since


class ScramCredentialDeletion(Struct):
    name: str = since(0)
    mechanism: int8 = since(0)


class ScramCredentialUpsertion(Struct):
    name: str = since(0)
    mechanism: int8 = since(0)
    iterations: int32 = since(0)
    salt: bytes = since(0)
    salted_password: bytes = since(0)


class AlterUserScramCredentialsRequest(
    Request["AlterUserScramCredentialsResponse"], api_key=51, versions=(0, 0), flexible=0
):
    deletions: list[ScramCredentialDeletion] = since(0)
    upsertions: list[ScramCredentialUpsertion] = since(0)


class AlterUserScramCredentialsResult(Struct):
    user: str = since(0)
    error_code: int16 = since(0)
    error_message: str | None = since(0)


class AlterUserScramCredentialsResponse(Message, api_key=51, versions=(0, 0), flexible=0):
    throttle_time_ms: int32 = since(0)
    results: list[AlterUserScramCredentialsResult] = since(0)
