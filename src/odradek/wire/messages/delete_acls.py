"""DeleteAcls (31), v0–v3: access rules to delete, by filter."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int8, int16, int32, since


class DeleteAclsFilter(Struct):
    resource_type_filter: int8 = since(0)
    resource_name_filter: str | None = since(0)
    pattern_type_filter: int8 = since(1, default=3)
    principal_filter: str | None = since(0)
    host_filter: str | None = since(0)
    operation: int8 = since(0)
    permission_type: int8 = since(0)


class DeleteAclsRequest(Request["DeleteAclsResponse"], api_key=31, versions=(0, 3), flexible=2):
    filters: list[DeleteAclsFilter] = since(0)


class DeleteAclsMatchingAcl(Struct):
    error_code: int16 = since(0)
    error_message: str | None = since(0)
    resource_type: int8 = since(0)
    resource_name: str = since(0)
    pattern_type: int8 = since(1, default=3)
    principal: str = since(0)
    host: str = since(0)
    operation: int8 = since(0)
    permission_type: int8 = since(0)


class DeleteAclsFilterResult(Struct):
    error_code: int16 = since(0)
    error_message: str | None = since(0)
    matching_acls: list[DeleteAclsMatchingAcl] = since(0)


class DeleteAclsResponse(Message, api_key=31, versions=(0, 3), flexible=2):
    throttle_time_ms: int32 = since(0)
    filter_results: list[DeleteAclsFilterResult] = since(0)
