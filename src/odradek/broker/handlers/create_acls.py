"""CreateAcls (30), v0–v3. There is no authorizer: SECURITY_DISABLED, as Kafka without one."""

from odradek.broker.handler import Broker, RequestContext
from odradek.broker.handlers.describe_acls import NO_AUTHORIZER
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


def handle(
    broker: Broker, request: CreateAclsRequest, context: RequestContext
) -> CreateAclsResponse:
    return refuse(request, KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER), context)


def refuse(
    request: CreateAclsRequest, error: KafkaError, context: RequestContext
) -> CreateAclsResponse:
    result = AclCreationResult(error_code=error.error, error_message=error.message or None)
    return CreateAclsResponse(results=[result for _ in request.creations])
