"""AlterConfigs (33), v0–v2. Replaces all settings of a topic or broker, or only checks them."""

from typing import TYPE_CHECKING

from odradek.broker.altering import alter
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from odradek.broker.requests import RequestContext
    from odradek.broker.server import Broker


async def handle(
    broker: "Broker", request: AlterConfigsRequest, context: "RequestContext"
) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[
            await _alter(broker, resource, request.validate_only) for resource in request.resources
        ]
    )


def refuse(
    request: AlterConfigsRequest, error: KafkaError, context: "RequestContext"
) -> AlterConfigsResponse:
    return AlterConfigsResponse(responses=[_answer(each, error) for each in request.resources])


async def _alter(
    broker: "Broker", resource: AlterConfigsResource, validate_only: bool
) -> AlterConfigsResourceResponse:
    wanted = {each.name: each.value for each in resource.configs if each.value is not None}
    try:
        await alter(
            broker,
            resource.resource_type,
            resource.resource_name,
            lambda current: wanted,
            validate_only=validate_only,
        )
    except KafkaError as error:
        return _answer(resource, error)
    return _answer(resource, KafkaError(ErrorCode.NONE))


def _answer(resource: AlterConfigsResource, error: KafkaError) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error.error,
        error_message=error.message or None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
