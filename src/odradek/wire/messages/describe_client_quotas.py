"""DescribeClientQuotas (48), v0–v1: the quotas that match a filter."""

from __future__ import annotations

from ..schema import Message, Request, Struct, float64, int8, int16, int32, since


class ComponentData(Struct):
    entity_type: str = since(0)
    match_type: int8 = since(0)
    match: str | None = since(0)


class DescribeClientQuotasRequest(
    Request["DescribeClientQuotasResponse"], api_key=48, versions=(0, 1), flexible=1
):
    components: list[ComponentData] = since(0)
    strict: bool = since(0)


class EntityData(Struct):
    entity_type: str = since(0)
    entity_name: str | None = since(0)


class ValueData(Struct):
    key: str = since(0)
    value: float64 = since(0)


class EntryData(Struct):
    entity: list[EntityData] = since(0)
    values: list[ValueData] = since(0)


class DescribeClientQuotasResponse(Message, api_key=48, versions=(0, 1), flexible=1):
    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    error_message: str | None = since(0)
    entries: list[EntryData] | None = since(0)
