"""JoinGroup (11), v0–v9: enter a group, and wait for the others."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int16, int32, since


class JoinGroupRequestProtocol(Struct):
    name: str = since(0)
    metadata: bytes = since(0)


class JoinGroupRequest(Request["JoinGroupResponse"], api_key=11, versions=(0, 9), flexible=6):
    group_id: str = since(0)
    session_timeout_ms: int32 = since(0)
    rebalance_timeout_ms: int32 = since(1, default=-1, ignorable=True)
    member_id: str = since(0)
    group_instance_id: str | None = since(5, default=None)
    protocol_type: str = since(0)
    protocols: list[JoinGroupRequestProtocol] = since(0)
    reason: str | None = since(8, default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: str = since(0)
    group_instance_id: str | None = since(5, default=None)
    metadata: bytes = since(0)


class JoinGroupResponse(Message, api_key=11, versions=(0, 9), flexible=6):
    throttle_time_ms: int32 = since(2)
    error_code: int16 = since(0)
    generation_id: int32 = since(0, default=-1)
    protocol_type: str | None = since(7, default=None)
    protocol_name: str | None = since(0, nullable_since=7)
    leader: str = since(0)
    skip_assignment: bool = since(9)
    member_id: str = since(0)
    members: list[JoinGroupResponseMember] = since(0)
