"""Heartbeat (12), v0–v4: a member is still alive."""

from __future__ import annotations

from ..schema import Message, Request, int16, int32, since


class HeartbeatRequest(Request["HeartbeatResponse"], api_key=12, versions=(0, 4), flexible=4):
    group_id: str = since(0)
    generation_id: int32 = since(0)
    member_id: str = since(0)
    group_instance_id: str | None = since(3, default=None)


class HeartbeatResponse(Message, api_key=12, versions=(0, 4), flexible=4):
    throttle_time_ms: int32 = since(1)
    error_code: int16 = since(0)
