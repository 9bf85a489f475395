"""AlterConfigs (33), v0–v2. Replaces all settings of a topic or broker, or only checks them."""

from odradek.broker.config_updates import Change, alter_each, check_keys
from odradek.broker.handler import Broker, RequestContext
from odradek.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def handle(
    broker: Broker, request: AlterConfigsRequest, context: RequestContext
) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=await alter_each(
            broker,
            request.resources,
            _change,
            AlterConfigsResourceResponse,
            validate_only=request.validate_only,
        )
    )


def _change(resource: AlterConfigsResource) -> Change:
    wanted = {each.name: each.value for each in resource.configs if each.value is not None}
    check_keys(
        [each.name for each in resource.configs],
        [each.name for each in resource.configs if each.value is None],
    )
    return lambda current: wanted
