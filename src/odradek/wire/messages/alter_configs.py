"""AlterConfigs (33), v0–v2: replace the whole configuration of a topic or broker."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int8, int16, int32, since


class AlterableConfig(Struct):
    name: str = since(0)
    value: str | None = since(0)


class AlterConfigsResource(Struct):
    resource_type: int8 = since(0)
    resource_name: str = since(0)
    configs: list[AlterableConfig] = since(0)


class AlterConfigsRequest(Request["AlterConfigsResponse"], api_key=33, versions=(0, 2), flexible=2):
    resources: list[AlterConfigsResource] = since(0)
    validate_only: bool = since(0)


class AlterConfigsResourceResponse(Struct):
    error_code: int16 = since(0)
    error_message: str | None = since(0)
    resource_type: int8 = since(0)
    resource_name: str = since(0)


class AlterConfigsResponse(Message, api_key=33, versions=(0, 2), flexible=2):
    throttle_time_ms: int32 = since(0)
    responses: list[AlterConfigsResourceResponse] = since(0)
