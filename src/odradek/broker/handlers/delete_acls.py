"""DeleteAcls (31), v0–v3. There is no authorizer: SECURITY_DISABLED, as Kafka without one."""

from odradek.broker.handler import Broker, RequestContext
from odradek.broker.handlers.describe_acls import NO_AUTHORIZER
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.delete_acls import (
    DeleteAclsRequest,
    DeleteAclsResponse,
)


def handle(
    broker: Broker, request: DeleteAclsRequest, context: RequestContext
) -> DeleteAclsResponse:
    raise KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
