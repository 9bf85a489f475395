"""CreateAcls (30), v0–v3. There is no authorizer: SECURITY_DISABLED, as Kafka without one."""

from odradek.broker.handler import Broker, RequestContext
from odradek.broker.handlers.describe_acls import NO_AUTHORIZER
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.create_acls import (
    CreateAclsRequest,
    CreateAclsResponse,
)


def handle(
    broker: Broker, request: CreateAclsRequest, context: RequestContext
) -> CreateAclsResponse:
    raise KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
