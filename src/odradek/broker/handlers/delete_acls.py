"""DeleteAcls (31), v0–v3. A binding that several filters match is reported under the first.

Without an authorizer: SECURITY_DISABLED. docs/spec/security.md, section 4.4.
"""

from odradek.broker.handler import Broker, RequestContext
from odradek.broker.handlers.describe_acls import NO_AUTHORIZER, acl_filter
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


async def handle(
    broker: Broker, request: DeleteAclsRequest, context: RequestContext
) -> DeleteAclsResponse:
    if broker.acls is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    results = []
    for each in request.filters:
        try:
            removed = await broker.acls.remove(acl_filter(each))
        except KafkaError as error:
            results.append(
                DeleteAclsFilterResult(error_code=error.error, error_message=error.message)
            )
            continue
        results.append(
            DeleteAclsFilterResult(
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
        )
    return DeleteAclsResponse(filter_results=results)
