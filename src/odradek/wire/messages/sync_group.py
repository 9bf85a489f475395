"""SyncGroup (14), v0–v5: the leader hands out the assignment, everybody else fetches theirs."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int16, int32, since


class SyncGroupRequestAssignment(Struct):
    member_id: str = since(0)
    assignment: bytes = since(0)


class SyncGroupRequest(Request["SyncGroupResponse"], api_key=14, versions=(0, 5), flexible=4):
    group_id: str = since(0)
    generation_id: int32 = since(0)
    member_id: str = since(0)
    group_instance_id: str | None = since(3, default=None)
    protocol_type: str | None = since(5, default=None, ignorable=True)
    protocol_name: str | None = since(5, default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = since(0)


class SyncGroupResponse(Message, api_key=14, versions=(0, 5), flexible=4):
    throttle_time_ms: int32 = since(1)
    error_code: int16 = since(0)
    protocol_type: str | None = since(5, default=None)
    protocol_name: str | None = since(5, default=None)
    assignment: bytes = since(0)
