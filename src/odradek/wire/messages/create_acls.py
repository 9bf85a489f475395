"""CreateAcls (30), v0–v3: new access rules."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int8, int16, int32, since


class AclCreation(Struct):
    resource_type: int8 = since(0)
    resource_name: str = since(0)
    resource_pattern_type: int8 = since(1, default=3)
    principal: str = since(0)
    host: str = since(0)
    operation: int8 = since(0)
    permission_type: int8 = since(0)


class CreateAclsRequest(Request["CreateAclsResponse"], api_key=30, versions=(0, 3), flexible=2):
    creations: list[AclCreation] = since(0)


class AclCreationResult(Struct):
    error_code: int16 = since(0)
    error_message: str | None = since(0)


class CreateAclsResponse(Message, api_key=30, versions=(0, 3), flexible=2):
    throttle_time_ms: int32 = since(0)
    results: list[AclCreationResult] = since(0)
