"""DescribeAcls (29), v0–v3. From this broker's own knowledge of the ACLs, in no order.

Without an authorizer: SECURITY_DISABLED. docs/spec/security.md, section 4.4.
"""

from functools import partial

from odradek.broker.handler import Broker, RequestContext
from odradek.broker.slices import map_in_slices
from odradek.security.acls import (
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
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


async def handle(
    broker: Broker, request: DescribeAclsRequest, context: RequestContext
) -> DescribeAclsResponse:
    if broker.authorizer is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    wanted = acl_filter(request)
    # As of now: ACLs that change between two slices are not in the response.
    bindings = [(key, each) for key, of in broker.authorizer.entries.items() for each in of]
    described = await map_in_slices(bindings, partial(_described, wanted)).result()
    by_pattern: dict[ResourcePattern, list[AclDescription]] = {}
    for (pattern, _), description in zip(bindings, described, strict=True):
        if description is not None:
            by_pattern.setdefault(pattern, []).append(description)
    found = await map_in_slices(list(by_pattern.items()), _resource).result()
    return DescribeAclsResponse(error_message=None, resources=found)


def _described(
    wanted: AclFilter, binding: tuple[ResourcePattern, AclEntry]
) -> AclDescription | None:
    pattern, entry = binding
    if not wanted.matches_pattern(pattern) or not wanted.matches_entry(entry):
        return None
    return AclDescription(
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )


def _resource(found: tuple[ResourcePattern, list[AclDescription]]) -> DescribeAclsResource:
    pattern, acls = found
    return DescribeAclsResource(
        resource_type=pattern.type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern,
        acls=acls,
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
