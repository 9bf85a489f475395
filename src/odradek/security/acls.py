"""ACL entries, and the decision whether a principal may do something: AclAuthorizer's semantics.

docs/spec/security.md, sections 4.2 and 4.3. The rules, in order:

1. A super user may.
2. What counts is every entry of the literal name, of literal `*`, and of each prefix of the name.
3. If there is no entry at all, `allow.everyone.if.no.acl.found` decides.
4. A DENY for the principal or `User:*`, the host or `*`, the operation or All: may not.
5. An ALLOW likewise: may. Describe is implied by ALLOW Read, Write, Delete or Alter, and
   DescribeConfigs by ALLOW AlterConfigs; a DENY implies nothing.
6. Otherwise may not.

A decision is remembered until the ACLs change, so that the produce and fetch path pays one
dictionary look-up for each topic.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from enum import IntEnum
from functools import cache
from typing import NamedTuple, TypeVar

from odradek.security.principal import Principal
from odradek.security.refusals import RefusalLog

__all__ = [
    "CLUSTER_NAME",
    "AclEntry",
    "AclFilter",
    "AclOperation",
    "AclPermission",
    "Authorizer",
    "PatternType",
    "ResourcePattern",
    "ResourceType",
    "authorized_operations",
    "parse_word",
    "word",
]

CLUSTER_NAME = "kafka-cluster"
WILDCARD = "*"
WILDCARD_PRINCIPAL = "User:*"
DECISIONS_MAX = 100_000
# Decisions about longer names are not kept: a client may ask about any, of up to 32 KB each.
REMEMBERED_NAME_MAX = 256


class ResourceType(IntEnum):
    __hash__ = int.__hash__  # that of enumerations is a call of Python's, and on every hot path

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclOperation(IntEnum):
    __hash__ = int.__hash__

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class AclPermission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class PatternType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class ResourcePattern(NamedTuple):
    type: ResourceType
    name: str
    pattern: PatternType = PatternType.LITERAL


class AclEntry(NamedTuple):
    principal: str
    permission: AclPermission
    operation: AclOperation
    host: str = WILDCARD


_O = AclOperation
# What makes sense on each type: the bits of "authorized operations".
SUPPORTED_OPERATIONS: Mapping[ResourceType, tuple[AclOperation, ...]] = {
    ResourceType.TOPIC: (
        _O.READ,
        _O.WRITE,
        _O.CREATE,
        _O.DELETE,
        _O.ALTER,
        _O.DESCRIBE,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (_O.READ, _O.DESCRIBE, _O.DELETE),
    ResourceType.CLUSTER: (
        _O.CREATE,
        _O.CLUSTER_ACTION,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
        _O.IDEMPOTENT_WRITE,
        _O.ALTER,
        _O.DESCRIBE,
    ),
    ResourceType.TRANSACTIONAL_ID: (_O.DESCRIBE, _O.WRITE),
    ResourceType.DELEGATION_TOKEN: (_O.DESCRIBE,),
    ResourceType.USER: (_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS),
}
_IMPLIED_BY: Mapping[AclOperation, frozenset[AclOperation]] = {
    _O.DESCRIBE: frozenset({_O.DESCRIBE, _O.READ, _O.WRITE, _O.DELETE, _O.ALTER, _O.ALL}),
    _O.DESCRIBE_CONFIGS: frozenset({_O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS, _O.ALL}),
}

_Decision = tuple[str, str, AclOperation, ResourceType, str]


class Authorizer:
    """The ACLs of the cluster as this broker knows them, and decisions over them."""

    def __init__(
        self, super_users: Set[Principal] = frozenset(), *, allow_if_no_acl: bool = False
    ) -> None:
        self._super_users = super_users
        self._allow_if_no_acl = allow_if_no_acl
        self._entries: dict[ResourcePattern, frozenset[AclEntry]] = {}
        # Lengths of the prefixed patterns of each type, and how many have each: a name is looked up
        # once for each length.
        self._prefix_lengths: dict[ResourceType, Counter[int]] = {}
        self._decisions: dict[_Decision, bool] = {}
        self._decisions_by_type: dict[tuple[str, str, AclOperation, ResourceType], bool] = {}
        self.refusals = RefusalLog()
        # Rises with every change: what was decided at another number is to be decided again.
        self.version = 0

    def update(self, pattern: ResourcePattern, entries: Iterable[AclEntry]) -> None:
        """The entries of one pattern are now these; none removes the pattern."""
        kept = frozenset(entries)
        before = self._entries.get(pattern, frozenset())
        if kept == before:
            return
        if kept:
            self._entries[pattern] = kept
        else:
            del self._entries[pattern]
        if pattern.pattern is PatternType.PREFIXED and bool(kept) != bool(before):
            lengths = self._prefix_lengths.setdefault(pattern.type, Counter())
            lengths[len(pattern.name)] += 1 if kept else -1
            if not lengths[len(pattern.name)]:
                del lengths[len(pattern.name)]
        self._decisions.clear()
        self._decisions_by_type.clear()
        self.version += 1

    def replace(self, entries: Mapping[ResourcePattern, Iterable[AclEntry]]) -> None:
        """All ACLs are now these."""
        for pattern in set(self._entries) - set(entries):
            self.update(pattern, ())
        for pattern, of in entries.items():
            self.update(pattern, of)

    @property
    def entries(self) -> Mapping[ResourcePattern, frozenset[AclEntry]]:
        return self._entries

    def allows(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        type_: ResourceType,
        name: str = CLUSTER_NAME,
    ) -> bool:
        key = (principal.text, host, operation, type_, name)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decide(principal, host, operation, type_, name)
            if len(name) > REMEMBERED_NAME_MAX:
                return decision
            if len(self._decisions) >= DECISIONS_MAX:
                self._decisions.clear()  # names are the client's to choose: memory stays bounded
            self._decisions[key] = decision
        return decision

    def _decide(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        type_: ResourceType,
        name: str,
    ) -> bool:
        if principal in self._super_users:
            return True
        found = self._matching(type_, name)
        if not found:
            return self._allow_if_no_acl
        applicable = [each for each in found if _is_about(each, principal, host)]
        denied = {operation, _O.ALL}
        if any(e.permission is AclPermission.DENY and e.operation in denied for e in applicable):
            return False
        granted = _IMPLIED_BY.get(operation, denied)
        return any(
            e.permission is AclPermission.ALLOW and e.operation in granted for e in applicable
        )

    def _matching(self, type_: ResourceType, name: str) -> list[AclEntry]:
        patterns = [ResourcePattern(type_, name), ResourcePattern(type_, WILDCARD)]
        if name == WILDCARD:
            patterns.pop()
        patterns += [
            ResourcePattern(type_, name[:length], PatternType.PREFIXED)
            for length in self._prefix_lengths.get(type_, ())
            if length <= len(name)
        ]
        return [entry for each in patterns for entry in self._entries.get(each, ())]

    def allows_by_type(
        self, principal: Principal, host: str, operation: AclOperation, type_: ResourceType
    ) -> bool:
        """Whether some resource of the type allows it: an idempotent producer without a topic.

        Remembered like any other decision: it looks at every ACL there is, 2 ms for 10,000.
        """
        key = (principal.text, host, operation, type_)
        decision = self._decisions_by_type.get(key)
        if decision is None:
            decision = self._decide_by_type(principal, host, operation, type_)
            if len(self._decisions_by_type) >= DECISIONS_MAX:
                self._decisions_by_type.clear()
            self._decisions_by_type[key] = decision
        return decision

    def _decide_by_type(
        self, principal: Principal, host: str, operation: AclOperation, type_: ResourceType
    ) -> bool:
        """Exact operation or All, without implication. An ALLOW counts unless a DENY of a prefix of
        its name (for a literal also of the same literal) covers it."""
        if principal in self._super_users:
            return True
        wanted = {operation, _O.ALL}
        allowed: set[ResourcePattern] = set()
        denied: set[ResourcePattern] = set()
        for pattern, entries in self._entries.items():
            if pattern.type is not type_:
                continue
            for entry in entries:
                if entry.operation in wanted and _is_about(entry, principal, host):
                    if entry.permission is AclPermission.DENY:
                        denied.add(pattern)
                    elif entry.permission is AclPermission.ALLOW:
                        allowed.add(pattern)
        literal_wildcard = ResourcePattern(type_, WILDCARD)
        if literal_wildcard in denied:
            return False
        if self._allow_if_no_acl:
            return True
        return any(each == literal_wildcard or not _is_covered(each, denied) for each in allowed)


def _is_covered(pattern: ResourcePattern, denied: Set[ResourcePattern]) -> bool:
    if pattern in denied:
        return True
    return any(
        ResourcePattern(pattern.type, pattern.name[:length], PatternType.PREFIXED) in denied
        for length in range(1, len(pattern.name) + 1)
    )


def _is_about(entry: AclEntry, principal: Principal, host: str) -> bool:
    return entry.principal in (principal.text, WILDCARD_PRINCIPAL) and entry.host in (
        host,
        WILDCARD,
    )


def authorized_operations(
    authorizer: Authorizer | None,
    principal: Principal,
    host: str,
    type_: ResourceType,
    name: str = CLUSTER_NAME,
) -> int:
    """The bit field of the operations this principal may do; all bits without an authorizer."""
    return sum(
        1 << operation
        for operation in SUPPORTED_OPERATIONS[type_]
        if authorizer is None or authorizer.allows(principal, host, operation, type_, name)
    )


# The words of ACLs in the store and in tools


def word(value: IntEnum) -> str:
    """`DESCRIBE_CONFIGS` as the store spells it: `DescribeConfigs`."""
    return "".join(part.capitalize() for part in value.name.split("_"))


E = TypeVar("E", bound=IntEnum)


def parse_word(kind: type[E], text: str) -> E:
    """Any case, with or without underscores, as old tools wrote them; UNKNOWN for anything else."""
    return kind(_codes(kind).get(_plain(text), 0))


@cache
def _codes(kind: type[IntEnum]) -> Mapping[str, int]:
    return {_plain(value.name): value.value for value in kind}


def _plain(text: str) -> str:
    return text.replace("_", "").lower()


class AclFilter(NamedTuple):
    """Which bindings a DescribeAcls or DeleteAcls is about; None and ANY match everything."""

    type: ResourceType
    name: str | None
    pattern: PatternType
    principal: str | None
    host: str | None
    operation: AclOperation
    permission: AclPermission

    def matches_pattern(self, pattern: ResourcePattern) -> bool:
        if self.type not in (ResourceType.ANY, pattern.type):
            return False
        if self.pattern in (PatternType.LITERAL, PatternType.PREFIXED) and (
            pattern.pattern is not self.pattern
        ):
            return False
        if self.name is None:
            return True
        if self.pattern is not PatternType.MATCH:
            return pattern.name == self.name
        if pattern.pattern is PatternType.LITERAL:
            return pattern.name in (self.name, WILDCARD)
        return self.name.startswith(pattern.name)

    def matches_entry(self, entry: AclEntry) -> bool:
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (AclPermission.ANY, entry.permission)
        )

    @property
    def names_one_pattern(self) -> bool:
        """Whether it can be looked up without knowing all patterns there are."""
        return (
            self.name is not None
            and self.type is not ResourceType.ANY
            and self.pattern is not PatternType.MATCH
        )
