"""SaslHandshake (17), v0–v1: choose how to authenticate."""

from __future__ import annotations

from ..schema import Message, Request, int16, since


class SaslHandshakeRequest(Request["SaslHandshakeResponse"], api_key=17, versions=(0, 1)):
    mechanism: str = since(0)


class SaslHandshakeResponse(Message, api_key=17, versions=(0, 1)):
    error_code: int16 = since(0)
    mechanisms: list[str] = since(0)
