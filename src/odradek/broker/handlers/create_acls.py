"""CreateAcls (30), v0–v3. One result for each entry; what exists already is a success.

Without an authorizer: SECURITY_DISABLED. docs/spec/security.md, section 4.4.
"""

from odradek.broker.handler import Broker, RequestContext
from odradek.broker.handlers.describe_acls import NO_AUTHORIZER
from odradek.broker.slices import map_in_slices
from odradek.security.acls import (
    CLUSTER_NAME,
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from odradek.security.principal import Principal
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


async def handle(
    broker: Broker, request: CreateAclsRequest, context: RequestContext
) -> CreateAclsResponse:
    if broker.followers.acls is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    bindings = await map_in_slices(request.creations, _binding).result()
    added: dict[ResourcePattern, list[AclEntry]] = {}
    for binding in bindings:
        if not isinstance(binding, KafkaError):
            added.setdefault(binding[0], []).append(binding[1])
    failed = await broker.followers.acls.add(added)
    errors = [each if isinstance(each, KafkaError) else failed.get(each[0]) for each in bindings]
    return CreateAclsResponse(results=await map_in_slices(errors, _result).result())


def _result(error: KafkaError | None) -> AclCreationResult:
    if error is None:
        return AclCreationResult(error_message=None)
    return AclCreationResult(error_code=error.error, error_message=error.message)


def _binding(creation: AclCreation) -> tuple[ResourcePattern, AclEntry] | KafkaError:
    try:
        return _parsed(creation)
    except KafkaError as error:
        return error


def _parsed(creation: AclCreation) -> tuple[ResourcePattern, AclEntry]:
    try:
        type_ = ResourceType(creation.resource_type)
        pattern = PatternType(creation.resource_pattern_type)
        operation = AclOperation(creation.operation)
        permission = AclPermission(creation.permission_type)
    except ValueError as error:
        raise _invalid(f"an unknown code: {error}") from None
    if pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid("the pattern must be LITERAL or PREFIXED")
    if min(type_, operation, permission) <= 1:
        raise _invalid("UNKNOWN and ANY are for filters")
    name = creation.resource_name
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise _invalid(f"the resource name {name!r} is empty, or cannot be that of a node")
    if type_ is ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise _invalid(f"the only cluster is {CLUSTER_NAME}")
    try:
        Principal.parse(creation.principal)
    except ValueError as error:
        raise _invalid(str(error)) from None
    return (
        ResourcePattern(type_, name, pattern),
        AclEntry(creation.principal, permission, operation, creation.host),
    )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
