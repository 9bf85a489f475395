"""Permissions: ACLs of the cluster (KIP-140)."""

from collections.abc import Sequence
from typing import NamedTuple

from odradek.client.client import Client
from odradek.client.values import Outcome, outcome
from odradek.security.acls import (
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from odradek.wire.errors import KafkaError, error_code
from odradek.wire.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
)
from odradek.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
)

__all__ = ["Acl", "Acls"]


class Acl(NamedTuple):
    """One permission: what it is about, and who may or may not do what there."""

    resource: ResourcePattern
    entry: AclEntry


class Acls:
    """Adds, lists and deletes ACLs."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def add(self, acls: Sequence[Acl]) -> dict[Acl, Outcome]:
        """What exists already is a success."""
        request = CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=acl.resource.type,
                    resource_name=acl.resource.name,
                    resource_pattern_type=acl.resource.pattern,
                    principal=acl.entry.principal,
                    host=acl.entry.host,
                    operation=acl.entry.operation,
                    permission_type=acl.entry.permission,
                )
                for acl in acls
            ]
        )
        response = await self._client.ask_any(request)
        return {
            acl: outcome(result.error_code, result.error_message, acl.resource.name)
            for acl, result in zip(acls, response.results, strict=True)
        }

    async def describe(self, wanted: AclFilter) -> list[Acl]:
        request = DescribeAclsRequest(
            resource_type_filter=wanted.type,
            resource_name_filter=wanted.name,
            pattern_type_filter=wanted.pattern,
            principal_filter=wanted.principal,
            host_filter=wanted.host,
            operation=wanted.operation,
            permission_type=wanted.permission,
        )
        response = await self._client.ask_any(request)
        if response.error_code:
            raise KafkaError(error_code(response.error_code), response.error_message or "ACLs")
        return sorted(_acl(each, acl) for each in response.resources for acl in each.acls)

    async def delete(self, filters: Sequence[AclFilter]) -> list[Acl]:
        """Deletes what matches one of these; what was deleted. Raises KafkaError."""
        request = DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=each.type,
                    resource_name_filter=each.name,
                    pattern_type_filter=each.pattern,
                    principal_filter=each.principal,
                    host_filter=each.host,
                    operation=each.operation,
                    permission_type=each.permission,
                )
                for each in filters
            ]
        )
        response = await self._client.ask_any(request)
        deleted = []
        for result in response.filter_results:
            failed = outcome(result.error_code, result.error_message, "ACLs")
            if failed is not None:
                raise failed
            for acl in result.matching_acls:
                failed = outcome(acl.error_code, acl.error_message, acl.resource_name)
                if failed is not None:
                    raise failed
                deleted.append(_acl(acl, acl))
        return sorted(deleted)


def _acl(
    resource: DescribeAclsResource | DeleteAclsMatchingAcl,
    entry: AclDescription | DeleteAclsMatchingAcl,
) -> Acl:
    return Acl(
        ResourcePattern(
            ResourceType(resource.resource_type),
            resource.resource_name,
            PatternType(resource.pattern_type),
        ),
        AclEntry(
            entry.principal,
            AclPermission(entry.permission_type),
            AclOperation(entry.operation),
            entry.host,
        ),
    )
