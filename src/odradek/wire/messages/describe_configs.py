"""DescribeConfigs (32), v0–v4: how topics and brokers are configured, and by whom."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int8, int16, int32, since


class DescribeConfigsResource(Struct):
    resource_type: int8 = since(0)
    resource_name: str = since(0)
    configuration_keys: list[str] | None = since(0)  # null asks for all


class DescribeConfigsRequest(
    Request["DescribeConfigsResponse"], api_key=32, versions=(0, 4), flexible=4
):
    resources: list[DescribeConfigsResource] = since(0)
    include_synonyms: bool = since(1)
    include_documentation: bool = since(3)


class DescribeConfigsSynonym(Struct):
    name: str = since(1)
    value: str | None = since(1)
    source: int8 = since(1)


class DescribeConfigsResourceResult(Struct):
    name: str = since(0)
    value: str | None = since(0)
    read_only: bool = since(0)
    is_default: bool = since(0, until=0)
    config_source: int8 = since(1, default=-1)
    is_sensitive: bool = since(0)
    synonyms: list[DescribeConfigsSynonym] = since(1)
    config_type: int8 = since(3)
    documentation: str | None = since(3)


class DescribeConfigsResult(Struct):
    error_code: int16 = since(0)
    error_message: str | None = since(0)
    resource_type: int8 = since(0)
    resource_name: str = since(0)
    configs: list[DescribeConfigsResourceResult] = since(0)


class DescribeConfigsResponse(Message, api_key=32, versions=(0, 4), flexible=4):
    throttle_time_ms: int32 = since(0)
    results: list[DescribeConfigsResult] = since(0)
