"""LeaveGroup (13), v0–v5: a member leaves its group, or is made to."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int16, int32, since


class MemberIdentity(Struct):
    member_id: str = since(3)
    group_instance_id: str | None = since(3, default=None)
    reason: str | None = since(5, default=None, ignorable=True)


class LeaveGroupRequest(Request["LeaveGroupResponse"], api_key=13, versions=(0, 5), flexible=4):
    group_id: str = since(0)
    member_id: str = since(0, until=2)
    members: list[MemberIdentity] = since(3)


class MemberResponse(Struct):
    member_id: str = since(3)
    group_instance_id: str | None = since(3)
    error_code: int16 = since(3)


class LeaveGroupResponse(Message, api_key=13, versions=(0, 5), flexible=4):
    throttle_time_ms: int32 = since(1)
    error_code: int16 = since(0)
    members: list[MemberResponse] = since(3)
