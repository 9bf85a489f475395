"""DescribeAcls (29), v0–v3: the access rules that match a filter."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int8, int16, int32, since


class DescribeAclsRequest(Request["DescribeAclsResponse"], api_key=29, versions=(0, 3), flexible=2):
    resource_type_filter: int8 = since(0)
    resource_name_filter: str | None = since(0)
    pattern_type_filter: int8 = since(1, default=3)
    principal_filter: str | None = since(0)
    host_filter: str | None = since(0)
    operation: int8 = since(0)
    permission_type: int8 = since(0)


class AclDescription(Struct):
    principal: str = since(0)
    host: str = since(0)
    operation: int8 = since(0)
    permission_type: int8 = since(0)


class DescribeAclsResource(Struct):
    resource_type: int8 = since(0)
    resource_name: str = since(0)
    pattern_type: int8 = since(1, default=3)
    acls: list[AclDescription] = since(0)


class DescribeAclsResponse(Message, api_key=29, versions=(0, 3), flexible=2):
    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    error_message: str | None = since(0)
    resources: list[DescribeAclsResource] = since(0)
