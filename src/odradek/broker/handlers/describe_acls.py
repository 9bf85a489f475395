"""DescribeAcls (29), v0–v3. There is no authorizer: SECURITY_DISABLED, as Kafka without one."""

from odradek.broker.handler import Broker, RequestContext
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

NO_AUTHORIZER = "No Authorizer is configured on the broker"


def handle(
    broker: Broker, request: DescribeAclsRequest, context: RequestContext
) -> DescribeAclsResponse:
    raise KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
