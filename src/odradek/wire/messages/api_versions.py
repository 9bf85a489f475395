"""ApiVersions (18), v0–v4: which APIs a broker serves, in which versions."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int16, int32, int64, since


class ApiVersionsRequest(Request["ApiVersionsResponse"], api_key=18, versions=(0, 4), flexible=3):
    client_software_name: str = since(3, ignorable=True)
    client_software_version: str = since(3, ignorable=True)


class ApiVersion(Struct):
    api_key: int16 = since(0)
    min_version: int16 = since(0)
    max_version: int16 = since(0)


class SupportedFeatureKey(Struct):
    name: str = since(3)
    min_version: int16 = since(3)
    max_version: int16 = since(3)


class FinalizedFeatureKey(Struct):
    name: str = since(3)
    max_version_level: int16 = since(3)
    min_version_level: int16 = since(3)


class ApiVersionsResponse(Message, api_key=18, versions=(0, 4), flexible=3):
    error_code: int16 = since(0)
    api_keys: list[ApiVersion] = since(0)
    throttle_time_ms: int32 = since(1)
    supported_features: list[SupportedFeatureKey] = since(3, tag=0)
    finalized_features_epoch: int64 = since(3, tag=1, default=-1)
    finalized_features: list[FinalizedFeatureKey] = since(3, tag=2)
    zk_migration_ready: bool = since(3, tag=3)
