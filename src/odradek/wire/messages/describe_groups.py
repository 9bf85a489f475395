"""DescribeGroups (15), v0–v5: the state and the members of groups."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int16, int32, since


class DescribeGroupsRequest(
    Request["DescribeGroupsResponse"], api_key=15, versions=(0, 5), flexible=5
):
    groups: list[str] = since(0)
    include_authorized_operations: bool = since(3)


class DescribedGroupMember(Struct):
    member_id: str = since(0)
    group_instance_id: str | None = since(4, default=None)
    client_id: str = since(0)
    client_host: str = since(0)
    member_metadata: bytes = since(0)
    member_assignment: bytes = since(0)


class DescribedGroup(Struct):
    error_code: int16 = since(0)
    group_id: str = since(0)
    group_state: str = since(0)
    protocol_type: str = since(0)
    protocol_data: str = since(0)
    members: list[DescribedGroupMember] = since(0)
    authorized_operations: int32 = since(3, default=-2147483648)


class DescribeGroupsResponse(Message, api_key=15, versions=(0, 5), flexible=5):
    throttle_time_ms: int32 = since(1)
    groups: list[DescribedGroup] = since(0)
