"""What this broker serves, as ApiVersions lists it: also before a login, and to clients of any age.

There are no features on ZooKeeper: of the tagged fields of v3+ only the epoch of an enabled feature
node appears, and only to clients that are logged in. A version we do not know is answered in v0,
which names our range of this very API.
"""

import re
from functools import cache

from odradek.broker.handlers import HANDLERS, served_versions
from odradek.store.controller_nodes import NO_FEATURES
from odradek.wire.api import ApiKey
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)

__all__ = ["unsupported_version", "versions_response"]

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def versions_response(
    request: ApiVersionsRequest, version: int, features_epoch: int = NO_FEATURES
) -> ApiVersionsResponse:
    if version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if version < 3:
        return ApiVersionsResponse(api_keys=_served())
    return ApiVersionsResponse(api_keys=_served(), finalized_features_epoch=features_epoch)


def unsupported_version() -> ApiVersionsResponse:
    """The answer to a version we do not know."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[_range(ApiKey.API_VERSIONS)]
    )


@cache
def _served() -> list[ApiVersion]:
    return [_range(key) for key in sorted(HANDLERS)]


def _range(key: int) -> ApiVersion:
    versions = served_versions(key)
    return ApiVersion(api_key=key, min_version=versions[0], max_version=versions[-1])
