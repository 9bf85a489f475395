"""DeleteAcls (31), v0–v3. A binding that several filters match is reported under the first.

Without an authorizer: SECURITY_DISABLED. docs/spec/security.md, section 4.4.
"""

from odradek.broker.handler import Broker, RequestContext
from odradek.broker.handlers.describe_acls import NO_AUTHORIZER, acl_filter
from odradek.broker.slices import map_in_slices
from odradek.security.acls import AclEntry, AclFilter, ResourcePattern
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


async def handle(
    broker: Broker, request: DeleteAclsRequest, context: RequestContext
) -> DeleteAclsResponse:
    if broker.followers.acls is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    filters = await map_in_slices(request.filters, _filter).result()
    valid = [each for each in filters if isinstance(each, AclFilter)]
    removed = iter(await broker.followers.acls.remove(valid))
    outcomes = [next(removed) if isinstance(each, AclFilter) else each for each in filters]
    return DeleteAclsResponse(filter_results=await map_in_slices(outcomes, _result).result())


def _filter(written: DeleteAclsFilter) -> AclFilter | KafkaError:
    try:
        return acl_filter(written)
    except KafkaError as error:
        return error


def _result(
    removed: dict[ResourcePattern, frozenset[AclEntry]] | KafkaError,
) -> DeleteAclsFilterResult:
    if isinstance(removed, KafkaError):
        return DeleteAclsFilterResult(error_code=removed.error, error_message=removed.message)
    return DeleteAclsFilterResult(
        error_message=None,
        matching_acls=[
            DeleteAclsMatchingAcl(
                error_message=None,
                resource_type=pattern.type,
                resource_name=pattern.name,
                pattern_type=pattern.pattern,
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
            for pattern, entries in removed.items()
            for entry in sorted(entries)
        ],
    )
