"""ApiVersions (18), v0–v4. What this broker serves, and the epoch of the cluster's features."""

from odradek.broker.handler import Broker, RequestContext
from odradek.broker.served_apis import versions_response
from odradek.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse


def handle(
    broker: Broker, request: ApiVersionsRequest, context: RequestContext
) -> ApiVersionsResponse:
    return versions_response(request, context.version, broker.followers.features.epoch)
