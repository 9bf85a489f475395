"""AlterClientQuotas (49), v0–v1: change quotas."""

from __future__ import annotations

from ..schema import Message, Request, Struct, float64, int16, int32, since


class AlterClientQuotasRequestEntityData(Struct):
    entity_type: str = since(0)
    entity_name: str | None = since(0)


class OpData(Struct):
    key: str = since(0)
    value: float64 = since(0)
    remove: bool = since(0)


class AlterClientQuotasRequestEntryData(Struct):
    entity: list[AlterClientQuotasRequestEntityData] = since(0)
    ops: list[OpData] = since(0)


class AlterClientQuotasRequest(
    Request["AlterClientQuotasResponse"], api_key=49, versions=(0, 1), flexible=1
):
    entries: list[AlterClientQuotasRequestEntryData] = since(0)
    validate_only: bool = since(0)


class AlterClientQuotasResponseEntityData(Struct):
    entity_type: str = since(0)
    entity_name: str | None = since(0)


class AlterClientQuotasResponseEntryData(Struct):
    error_code: int16 = since(0)
    error_message: str | None = since(0)
    entity: list[AlterClientQuotasResponseEntityData] = since(0)


class AlterClientQuotasResponse(Message, api_key=49, versions=(0, 1), flexible=1):
    throttle_time_ms: int32 = since(0)
    entries: list[AlterClientQuotasResponseEntryData] = since(0)
