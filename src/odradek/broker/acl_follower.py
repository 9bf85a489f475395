"""The cluster's ACLs, followed through the store, and changed there.

docs/spec/security.md, section 4.3. Literal and prefixed patterns have a tree and notifications
each. The watch is set before everything is loaded, so that no change falls between; notifications
carry a number, so nothing is missed over a lost session. A change is written under the version that
was read, and read again and repeated when another broker was faster.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from random import Random

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
from odradek.store.acls import Resource as StoredPattern
from odradek.store.api import SessionEvent, StoreError, WatchEvent
from odradek.store.cluster import ClusterStore
from odradek.store.payloads import InvalidPayload
from odradek.wire.errors import ErrorCode, KafkaError

__all__ = ["AclFollower"]

RETRY_S = 1.0
ATTEMPTS_MAX = 10
CONFLICT_PAUSE_S = (0.1, 0.15)
PATTERNS = ("LITERAL", "PREFIXED")

logger = logging.getLogger(__name__)

Entries = frozenset[AclEntry]


class AclFollower:
    """Keeps an authorizer in step with the store."""

    def __init__(self, store: ClusterStore, authorizer: Authorizer, rng: Random) -> None:
        self._store = store
        self._authorizer = authorizer
        self._rng = rng
        self._seen = dict.fromkeys(PATTERNS, -1)
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns when all ACLs are known: before that nothing may be served."""
        await self._store.acls.prepare()
        self._store.session.on_session(self._session_changed)
        for pattern in PATTERNS:
            changes = await self._store.acls.changes(pattern, watch=self._watched)
            self._seen[pattern] = changes[-1].sequence if changes else -1
        for resource in await self._store.acls.resources():
            await self._read(resource)
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # Following

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.CONNECTED:
            self._wake.set()

    def _watched(self, event: WatchEvent) -> None:
        self._wake.set()

    async def _follow(self) -> None:
        while True:
            self._wake.clear()
            try:
                for pattern in PATTERNS:
                    changes = await self._store.acls.changes(
                        pattern, self._seen[pattern], self._watched
                    )
                    for change in changes:
                        await self._read(change.resource)
                        self._seen[pattern] = change.sequence
            except StoreError as error:
                logger.warning("cannot follow the ACLs, retrying: %s", error)
                await asyncio.sleep(RETRY_S)
                continue
            await self._wake.wait()

    async def _read(self, resource: StoredPattern) -> tuple[Entries, int]:
        """What the store now says of one pattern; unreadable ACLs leave those before in place."""
        pattern = _pattern(resource)
        try:
            stored, version = await self._store.acls.get(resource)
        except InvalidPayload as error:
            logger.error("keeping the ACLs of %s as they were: %s", resource, error)
            return self._authorizer.entries.get(pattern, frozenset()), -1
        entries = frozenset(map(_entry, stored))
        self._authorizer.update(pattern, entries)
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
            before, version = await self._read(resource)
            after = change(before)
            if after == before:
                return
            if after:
                stored = {_stored(entry) for entry in after}
                written = await self._store.acls.set(resource, stored, version) is not None
            else:
                written = await self._store.acls.delete(resource, version)
            if written:
                self._authorizer.update(pattern, after)
                await self._store.acls.notify_change(resource)
                return
            await asyncio.sleep(self._rng.uniform(*CONFLICT_PAUSE_S))
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the ACLs of {word(pattern.type)}:{pattern.name} are being changed by others",
        )


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
