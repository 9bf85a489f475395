"""The cluster's ACLs, followed through the store, and changed there.

docs/spec/security.md, section 4.3. Literal and prefixed patterns have a tree and notifications
each. A change is written under the version that was read, and read again and repeated when another
broker was faster. What cannot be read is not changed: the node may hold rules that we do not know.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from random import Random

from odradek.broker.change_follower import ChangeFollower
from odradek.security.acls import (
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    Authorizer,
    PatternType,
    ResourcePattern,
    ResourceType,
    parse_word,
    word,
)
from odradek.store.acls import AclEntry as StoredEntry
from odradek.store.acls import StoredPattern
from odradek.store.cluster import ClusterStore
from odradek.store.payloads import InvalidPayload
from odradek.wire.errors import ErrorCode, KafkaError

__all__ = ["AclFollower"]

ATTEMPTS_MAX = 10
CONFLICT_PAUSE_S = (0.1, 0.15)

logger = logging.getLogger(__name__)

Entries = frozenset[AclEntry]

DENY_ALL: Entries = frozenset({AclEntry("User:*", AclPermission.DENY, AclOperation.ALL, "*")})


class AclFollower:
    """Keeps an authorizer in step with the store."""

    def __init__(self, store: ClusterStore, authorizer: Authorizer, rng: Random) -> None:
        self._store = store
        self._authorizer = authorizer
        self._rng = rng
        self._changes = ChangeFollower(store.session, "ACLs")

    async def start(self) -> None:
        """Returns when all ACLs are known: before that nothing may be served."""
        await self._store.acls.prepare()
        for changes in self._store.acls.changes.values():
            await self._changes.watch(changes, self._read)
        for resource in await self._store.acls.resources():
            await self._read(resource)
        self._changes.start()

    async def stop(self) -> None:
        await self._changes.stop()

    async def _read(self, resource: StoredPattern) -> tuple[Entries, int | None] | None:
        """What the store now says of one pattern; None if that cannot be read. Then the ACLs read
        before stay in force; without any, everything is denied."""
        try:
            stored, version = await self._store.acls.get(resource)
        except InvalidPayload as error:
            logger.error("ACLs of %s are unreadable, those before stay: %s", resource, error)
            if _pattern(resource) not in self._authorizer.entries:
                self._authorizer.update(_pattern(resource), DENY_ALL)
            return None
        entries = frozenset(map(_entry, stored))
        self._authorizer.update(_pattern(resource), entries)
        return entries, version

    # Changing

    async def add(self, pattern: ResourcePattern, entries: Iterable[AclEntry]) -> None:
        added = frozenset(entries)
        await self._change(pattern, lambda before: before | added)

    async def remove(self, filters: AclFilter) -> dict[ResourcePattern, Entries]:
        """Deletes what matches; what was deleted, by pattern."""
        patterns = {each for each in self._authorizer.entries if filters.matches_pattern(each)}
        if filters.names_one_pattern and filters.name is not None:
            # One that another broker has just written is found although we have not heard of it.
            kinds = (
                (PatternType.LITERAL, PatternType.PREFIXED)
                if filters.pattern is PatternType.ANY
                else (filters.pattern,)
            )
            patterns |= {ResourcePattern(filters.type, filters.name, kind) for kind in kinds}
        removed: dict[ResourcePattern, Entries] = {}
        for pattern in patterns:
            gone: set[AclEntry] = set()

            def without(before: Entries, gone: set[AclEntry] = gone) -> Entries:
                gone.clear()
                gone.update(entry for entry in before if filters.matches_entry(entry))
                return before - gone

            await self._change(pattern, without)
            if gone:
                removed[pattern] = frozenset(gone)
        return removed

    async def _change(self, pattern: ResourcePattern, change: Callable[[Entries], Entries]) -> None:
        resource = _stored_pattern(pattern)
        for _ in range(ATTEMPTS_MAX):
            read = await self._read(resource)
            if read is None:
                raise KafkaError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"the ACLs at {resource.path} are unreadable, and were not changed",
                )
            before, version = read
            after = change(before)
            if after == before:
                return
            if await self._write(resource, after, version):
                self._authorizer.update(pattern, after)
                await self._store.acls.notify_change(resource)
                return
            await asyncio.sleep(self._rng.uniform(*CONFLICT_PAUSE_S))
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the ACLs of {word(pattern.type)}:{pattern.name} are being changed by others",
        )

    async def _write(self, resource: StoredPattern, entries: Entries, version: int | None) -> bool:
        """Whether the node still stood at this version; None: there was none."""
        if entries:
            stored = {_stored(entry) for entry in entries}
            return await self._store.acls.set(resource, stored, version) is not None
        # Without a node there were no entries, so that there is nothing to delete either.
        return version is None or await self._store.acls.delete(resource, version)


def matching(
    entries: Mapping[ResourcePattern, Entries], filters: AclFilter
) -> dict[ResourcePattern, list[AclEntry]]:
    """What a filter finds, by pattern."""
    found = {
        pattern: sorted(entry for entry in of if filters.matches_entry(entry))
        for pattern, of in entries.items()
        if filters.matches_pattern(pattern)
    }
    return {pattern: of for pattern, of in found.items() if of}


def _pattern(resource: StoredPattern) -> ResourcePattern:
    return ResourcePattern(
        parse_word(ResourceType, resource.type), resource.name, PatternType[resource.pattern]
    )


def _stored_pattern(pattern: ResourcePattern) -> StoredPattern:
    return StoredPattern(word(pattern.type), pattern.name, pattern.pattern.name)


def _entry(stored: StoredEntry) -> AclEntry:
    return AclEntry(
        stored.principal,
        parse_word(AclPermission, stored.permission),
        parse_word(AclOperation, stored.operation),
        stored.host,
    )


def _stored(entry: AclEntry) -> StoredEntry:
    return StoredEntry(entry.principal, word(entry.permission), word(entry.operation), entry.host)
