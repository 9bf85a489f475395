"""DeleteGroups (42), v0–v2: groups to delete, with all their offsets."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int16, int32, since


class DeleteGroupsRequest(Request["DeleteGroupsResponse"], api_key=42, versions=(0, 2), flexible=2):
    groups_names: list[str] = since(0)


class DeletableGroupResult(Struct):
    group_id: str = since(0)
    error_code: int16 = since(0)


class DeleteGroupsResponse(Message, api_key=42, versions=(0, 2), flexible=2):
    throttle_time_ms: int32 = since(0)
    results: list[DeletableGroupResult] = since(0)
