"""ListGroups (16), v0–v5: the groups a broker coordinates."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int16, int32, since


class ListGroupsRequest(Request["ListGroupsResponse"], api_key=16, versions=(0, 5), flexible=3):
    states_filter: list[str] = since(4)
    types_filter: list[str] = since(5)


class ListedGroup(Struct):
    group_id: str = since(0)
    protocol_type: str = since(0)
    group_state: str = since(4)
    group_type: str = since(5)


class ListGroupsResponse(Message, api_key=16, versions=(0, 5), flexible=3):
    throttle_time_ms: int32 = since(1)
    error_code: int16 = since(0)
    groups: list[ListedGroup] = since(0)
