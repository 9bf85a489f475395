"""Who may do what: ACLs as Kafka's authorizer keeps them.

docs/spec/interchange-with-apache-kafka.md sections B.1 and B.4.

A resource pattern has one node, written under its version in one transaction with a notification,
so that no crash comes between the two. Literal patterns have a tree and notifications of their own,
older than all other kinds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from odradek.store import payloads
from odradek.store.api import (
    BadVersion,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Operation,
    Set,
    StoreError,
)
from odradek.store.change_nodes import ChangeNodes
from odradek.store.nodes import Nodes
from odradek.store.payloads import InvalidPayload

LITERAL, PREFIXED = "LITERAL", "PREFIXED"
ROOTS = {LITERAL: "/kafka-acl", PREFIXED: "/kafka-acl-extended/prefixed"}
CHANGES = {LITERAL: "/kafka-acl-changes", PREFIXED: "/kafka-acl-extended-changes"}
CHANGE_PREFIX = "acl_changes_"

# A resource type as paths spell it, and as notifications do.
RESOURCE_TYPES: Mapping[str, str] = {
    "Topic": "TOPIC",
    "Group": "GROUP",
    "Cluster": "CLUSTER",
    "TransactionalId": "TRANSACTIONAL_ID",
    "DelegationToken": "DELEGATION_TOKEN",
    "User": "USER",
}
_PATH_NAMES = {name: in_paths for in_paths, name in RESOURCE_TYPES.items()}


class AclEntry(NamedTuple):
    principal: str
    permission: str
    operation: str
    host: str


class StoredPattern(NamedTuple):
    """What an ACL is about: ``StoredPattern("Topic", "t")``, or a prefix of names."""

    type: str
    name: str
    pattern: str = LITERAL

    @property
    def path(self) -> str:
        return f"{ROOTS[self.pattern]}/{self.type}/{self.name}"


class StoredAcls(NamedTuple):
    """The entries of a resource, and the version they stand at; None without a node."""

    entries: frozenset[AclEntry]
    version: int | None


NOTHING_STORED = StoredAcls(frozenset(), None)


class Acls:
    """ACLs by resource pattern."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        # Literal patterns, and the others.
        self.changes = {
            pattern: ChangeNodes(
                nodes, parent, CHANGE_PREFIX, encode_acl_change, partial(decode_acl_change, pattern)
            )
            for pattern, parent in CHANGES.items()
        }

    async def prepare(self) -> None:
        """Create the nodes an authorizer creates at start."""
        for pattern, root in ROOTS.items():
            for resource_type in RESOURCE_TYPES:
                await self._nodes.ensure(f"{root}/{resource_type}")
            await self.changes[pattern].prepare()

    async def resources(self) -> list[StoredPattern]:
        return [
            StoredPattern(resource_type, name, pattern)
            for pattern, root in ROOTS.items()
            for resource_type in await self._nodes.names(root)
            for name in await self._nodes.names(f"{root}/{resource_type}")
        ]

    async def get_many(
        self, resources: Sequence[StoredPattern]
    ) -> list[StoredAcls | InvalidPayload]:
        """What stands at each; the error in the place of what cannot be read."""
        nodes = await self._nodes.session.get_many([resource.path for resource in resources])
        found: list[StoredAcls | InvalidPayload] = []
        for resource, node in zip(resources, nodes, strict=True):
            try:
                found.append(
                    NOTHING_STORED
                    if node is None
                    else StoredAcls(decode_acls(node[0], resource.path), node[1].version)
                )
            except InvalidPayload as error:
                found.append(error)
        return found

    async def write_many(self, changes: Mapping[StoredPattern, StoredAcls]) -> list[StoredPattern]:
        """Writes the entries of each resource if they still stand at the version given, and
        notifies; those where another writer was faster. Without entries the node is deleted."""
        results = await self._nodes.session.multi_many(
            [_write(resource, acls), self.changes[resource.pattern].notification(resource)]
            for resource, acls in changes.items()
        )
        raced = []
        for resource, result in zip(changes, results, strict=True):
            if isinstance(result, (NodeExists, BadVersion, NoNode)):
                raced.append(resource)
            elif isinstance(result, StoreError):
                raise result
        return raced


def _write(resource: StoredPattern, acls: StoredAcls) -> Operation:
    if not acls.entries:
        assert acls.version is not None, f"{resource}: there is nothing to delete"
        return Delete(resource.path, acls.version)
    data = encode_acls(acls.entries)
    if acls.version is None:
        return Create(resource.path, data)
    return Set(resource.path, data, acls.version)


def encode_acls(acls: Iterable[AclEntry]) -> bytes:
    entries = [
        {
            "principal": acl.principal,
            "permissionType": acl.permission,
            "operation": acl.operation,
            "host": acl.host,
        }
        for acl in acls
    ]
    return payloads.dump({"version": 1, "acls": entries})


def decode_acls(data: bytes | None, path: str) -> frozenset[AclEntry]:
    if not data:
        return frozenset()
    of = payloads.parse(data, path)
    if payloads.integer(of, "version", path) != 1:
        raise InvalidPayload(path, f"unsupported version {of['version']}")
    keys = ("principal", "permissionType", "operation", "host")
    return frozenset(
        AclEntry(*(payloads.typed(entry, key, str, path) for key in keys))
        for entry in payloads.objects(of, "acls", path)
    )


def encode_acl_change(resource: StoredPattern) -> bytes:
    name = RESOURCE_TYPES[resource.type]
    if resource.pattern == LITERAL:
        return f"{name}:{resource.name}".encode()
    return payloads.dump(
        {
            "version": 1,
            "resourceType": name,
            "name": resource.name,
            "patternType": resource.pattern,
        }
    )


def decode_acl_change(pattern: str, data: bytes | None, path: str) -> StoredPattern:
    if pattern == LITERAL:
        resource_type, _, name = (data or b"").decode(errors="replace").partition(":")
    else:
        of = payloads.parse(data, path)
        payloads.only(of, {"version", "resourceType", "name", "patternType"}, path)
        if payloads.integer(of, "version", path) > 1:
            raise InvalidPayload(path, f"unsupported version {of['version']}")
        pattern = payloads.typed(of, "patternType", str, path)
        resource_type = payloads.typed(of, "resourceType", str, path)
        name = payloads.typed(of, "name", str, path)
    resource_type = resource_type.upper()
    if resource_type not in _PATH_NAMES or pattern not in ROOTS or not name:
        raise InvalidPayload(path, f"not a resource: {data!r}")
    return StoredPattern(_PATH_NAMES[resource_type], name, pattern)
