"""The cluster's ACLs, followed through the store, and changed there.

docs/spec/security.md, section 4.3. Literal and prefixed patterns have a tree and notifications
each. A change is written under the version that was read, and read again and repeated when another
broker was faster. What cannot be read is not changed: the node may hold rules that we do not know.

Patterns are read and written in batches, one batch at a time: thousands of ACLs cost the store some
dozens of round trips, and no read of old entries is taken after the write of new ones.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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
from odradek.store.acls import StoredAcls, StoredPattern
from odradek.store.cluster import ClusterStore
from odradek.store.payloads import InvalidPayload
from odradek.wire.errors import ErrorCode, KafkaError

__all__ = ["AclFollower"]

# Patterns read and written at once: some milliseconds of the loop.
BATCH = 200
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
        self._turn = asyncio.Lock()

    async def start(self) -> None:
        """Returns when all ACLs are known: before that nothing may be served."""
        await self._store.acls.prepare()
        for changes in self._store.acls.changes.values():
            await self._changes.watch(changes, self._read_all)
        await self._read_all(await self._store.acls.resources())
        self._changes.start()

    async def stop(self) -> None:
        await self._changes.stop()

    async def _read_all(self, resources: Sequence[StoredPattern]) -> None:
        for batch in _batches(resources):
            async with self._turn:
                await self._read(batch)

    async def _read(self, resources: Sequence[StoredPattern]) -> dict[StoredPattern, StoredAcls]:
        """What the store now says of these, without those that cannot be read. Of the latter the
        ACLs read before stay in force; without any, everything is denied."""
        readable = {}
        found = await self._store.acls.get_many(resources)
        for resource, stored in zip(resources, found, strict=True):
            pattern = _pattern(resource)
            if isinstance(stored, InvalidPayload):
                logger.error(
                    "ACLs of %s cannot be read, the previous ones stay in force: %s",
                    resource,
                    stored,
                )
                if pattern not in self._authorizer.entries:
                    self._authorizer.update(pattern, DENY_ALL)
            else:
                self._authorizer.update(pattern, map(_entry, stored.entries))
                readable[resource] = stored
        return readable

    # Changing

    async def add(
        self, added: Mapping[ResourcePattern, Collection[AclEntry]]
    ) -> dict[ResourcePattern, KafkaError]:
        """The patterns whose entries could not be added, and why."""
        return await self._change(added, lambda pattern, before: before.union(added[pattern]))

    async def remove(
        self, filters: Sequence[AclFilter]
    ) -> list[dict[ResourcePattern, Entries] | KafkaError]:
        """Deletes what matches; for each filter what was deleted, by pattern, or why not. What
        several filters match is deleted by the first."""
        by_pattern: dict[ResourcePattern, list[int]] = {}
        for number, each in enumerate(filters):
            for pattern in await self._patterns(each):
                by_pattern.setdefault(pattern, []).append(number)
        removed: dict[ResourcePattern, dict[int, Entries]] = {}

        def without(pattern: ResourcePattern, entries: Entries) -> Entries:
            gone = removed[pattern] = {}
            for number in by_pattern[pattern]:
                gone[number] = frozenset(filter(filters[number].matches_entry, entries))
                entries -= gone[number]
            return entries

        failed = await self._change(by_pattern, without)
        results: list[dict[ResourcePattern, Entries]] = [{} for _ in filters]
        errors: dict[int, KafkaError] = {}
        for pattern, numbers in by_pattern.items():
            for number in numbers:
                if pattern in failed:
                    errors[number] = failed[pattern]
                elif removed[pattern][number]:
                    results[number][pattern] = removed[pattern][number]
        return [errors.get(number, result) for number, result in enumerate(results)]

    async def _patterns(self, filters: AclFilter) -> list[ResourcePattern]:
        """What a filter is about. One that another broker has just written is among them although
        we have not heard of it, if it is named."""
        if filters.names_one_pattern and filters.name is not None:
            both = (PatternType.LITERAL, PatternType.PREFIXED)
            kinds = both if filters.pattern is PatternType.ANY else (filters.pattern,)
            return [ResourcePattern(filters.type, filters.name, kind) for kind in kinds]
        await asyncio.sleep(0)  # looking through thousands takes milliseconds
        return [each for each in self._authorizer.entries if filters.matches_pattern(each)]

    async def _change(
        self,
        patterns: Iterable[ResourcePattern],
        change: Callable[[ResourcePattern, Entries], Entries],
    ) -> dict[ResourcePattern, KafkaError]:
        """The patterns that could not be changed, and why."""
        failed: dict[ResourcePattern, KafkaError] = {}
        remaining = [_stored_pattern(pattern) for pattern in patterns]
        for _ in range(ATTEMPTS_MAX):
            raced: list[StoredPattern] = []
            for batch in _batches(remaining):
                async with self._turn:
                    raced += await self._try(batch, change, failed)
            if not raced:
                return failed
            remaining = raced
            await asyncio.sleep(self._rng.uniform(*CONFLICT_PAUSE_S))
        for resource in remaining:
            failed[_pattern(resource)] = KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"the ACLs of {resource.type}:{resource.name} are being changed by others",
            )
        return failed

    async def _try(
        self,
        resources: Sequence[StoredPattern],
        change: Callable[[ResourcePattern, Entries], Entries],
        failed: dict[ResourcePattern, KafkaError],
    ) -> list[StoredPattern]:
        """Changes these unless another broker does meanwhile; those where one did."""
        read = await self._read(resources)
        for resource in resources:
            if resource not in read:
                failed[_pattern(resource)] = KafkaError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"the ACLs at {resource.path} are unreadable, and were not changed",
                )
        changes: dict[StoredPattern, Entries] = {}
        for resource, stored in read.items():
            before = frozenset(map(_entry, stored.entries))
            after = change(_pattern(resource), before)
            if after != before:
                changes[resource] = after
        raced = await self._store.acls.write_many(
            {
                resource: StoredAcls(frozenset(map(_stored, after)), read[resource].version)
                for resource, after in changes.items()
            }
        )
        for resource, after in changes.items():
            if resource not in raced:
                self._authorizer.update(_pattern(resource), after)
        return raced


def _batches(resources: Sequence[StoredPattern]) -> Iterator[Sequence[StoredPattern]]:
    for start in range(0, len(resources), BATCH):
        yield resources[start : start + BATCH]


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
