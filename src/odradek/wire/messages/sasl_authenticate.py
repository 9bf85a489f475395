"""SaslAuthenticate (36), v0–v2: one step of the authentication that was chosen."""

from __future__ import annotations

from ..schema import Message, Request, int16, int64, since


class SaslAuthenticateRequest(
    Request["SaslAuthenticateResponse"], api_key=36, versions=(0, 2), flexible=2
):
    auth_bytes: bytes = since(0)


class SaslAuthenticateResponse(Message, api_key=36, versions=(0, 2), flexible=2):
    error_code: int16 = since(0)
    error_message: str | None = since(0)
    auth_bytes: bytes = since(0)
    session_lifetime_ms: int64 = since(1)
