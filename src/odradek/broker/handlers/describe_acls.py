"""DescribeAcls (29), v0–v3. From this broker's own knowledge of the ACLs, in no order.

Without an authorizer: SECURITY_DISABLED. docs/spec/security.md, section 4.4.
"""

from odradek.broker.acl_follower import matching
from odradek.broker.handler import Broker, RequestContext
from odradek.security.acls import (
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.delete_acls import DeleteAclsFilter
from odradek.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)

NO_AUTHORIZER = "No Authorizer is configured on the broker"


def handle(
    broker: Broker, request: DescribeAclsRequest, context: RequestContext
) -> DescribeAclsResponse:
    if broker.authorizer is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    found = matching(broker.authorizer.entries, acl_filter(request))
    return DescribeAclsResponse(
        error_message=None,
        resources=[
            DescribeAclsResource(
                resource_type=pattern.type,
                resource_name=pattern.name,
                pattern_type=pattern.pattern,
                acls=[
                    AclDescription(
                        principal=entry.principal,
                        host=entry.host,
                        operation=entry.operation,
                        permission_type=entry.permission,
                    )
                    for entry in entries
                ],
            )
            for pattern, entries in found.items()
        ],
    )


def acl_filter(request: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """Raises KafkaError(INVALID_REQUEST) for a code that means nothing."""
    try:
        made = AclFilter(
            ResourceType(request.resource_type_filter),
            request.resource_name_filter,
            PatternType(request.pattern_type_filter),
            request.principal_filter,
            request.host_filter,
            AclOperation(request.operation),
            AclPermission(request.permission_type),
        )
    except ValueError as error:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"the filter has an unknown code: {error}"
        ) from None
    if 0 in (made.type, made.pattern, made.operation, made.permission):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the filter contains UNKNOWN elements")
    return made
