"""DeleteAcls (31), v0–v3. There is no authorizer: SECURITY_DISABLED, as Kafka without one."""

from odradek.broker.handler import Broker, RequestContext
from odradek.broker.handlers.describe_acls import NO_AUTHORIZER
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


def handle(
    broker: Broker, request: DeleteAclsRequest, context: RequestContext
) -> DeleteAclsResponse:
    return refuse(request, KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER), context)


def refuse(
    request: DeleteAclsRequest, error: KafkaError, context: RequestContext
) -> DeleteAclsResponse:
    result = DeleteAclsFilterResult(error_code=error.error, error_message=error.message or None)
    return DeleteAclsResponse(filter_results=[result for _ in request.filters])
