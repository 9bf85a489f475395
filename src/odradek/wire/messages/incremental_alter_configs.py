"""IncrementalAlterConfigs (44), v0–v1: change single values of a configuration."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int8, int16, int32, since


class AlterableConfig(Struct):
    name: str = since(0)
    config_operation: int8 = since(0)  # 0 set, 1 delete, 2 append, 3 subtract
    value: str | None = since(0)


class AlterConfigsResource(Struct):
    resource_type: int8 = since(0)
    resource_name: str = since(0)
    configs: list[AlterableConfig] = since(0)


class IncrementalAlterConfigsRequest(
    Request["IncrementalAlterConfigsResponse"], api_key=44, versions=(0, 1), flexible=1
):
    resources: list[AlterConfigsResource] = since(0)
    validate_only: bool = since(0)


class AlterConfigsResourceResponse(Struct):
    error_code: int16 = since(0)
    error_message: str | None = since(0)
    resource_type: int8 = since(0)
    resource_name: str = since(0)


class IncrementalAlterConfigsResponse(Message, api_key=44, versions=(0, 1), flexible=1):
    throttle_time_ms: int32 = since(0)
    responses: list[AlterConfigsResourceResponse] = since(0)
