"""ACLs in the store: followed by every broker, changed by any, never overwritten unread."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any

import pytest
from tests.broker.clusters import until

from odradek.broker.acl_follower import BATCH, DENY_ALL, AclFollower
from odradek.security.acls import (
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    Authorizer,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from odradek.security.principal import Principal
from odradek.store.api import wall_clock_ms
from odradek.store.change_nodes import ChangeNodes
from odradek.store.cluster import ClusterStore
from odradek.store.memory import MemoryServer, MemoryStore
from odradek.wire.errors import ErrorCode, KafkaError

PATTERN = ResourcePattern(ResourceType.TOPIC, "t", PatternType.LITERAL)
OTHER = ResourcePattern(ResourceType.TOPIC, "other", PatternType.LITERAL)
READ = AclEntry("User:alice", AclPermission.ALLOW, AclOperation.READ, "*")
PATH = "/kafka-acl/Topic/t"
ONE = AclFilter(
    ResourceType.TOPIC,
    "t",
    PatternType.LITERAL,
    principal=None,
    host=None,
    operation=AclOperation.ANY,
    permission=AclPermission.ANY,
)


class Brokers:
    """The parts of two brokers that follow the ACLs of one store."""

    def __init__(self) -> None:
        self.server = MemoryServer(clock=wall_clock_ms)
        self.followers: list[AclFollower] = []
        self.authorizers: list[Authorizer] = []
        self.stores: list[ClusterStore] = []

    async def add(self, **settings: bool) -> AclFollower:
        store = ClusterStore(MemoryStore(self.server), wall_clock_ms)
        await store.session.start()
        self.stores.append(store)
        self.authorizers.append(Authorizer(set(), **settings))
        follower = AclFollower(store, self.authorizers[-1], Random(1))
        await follower.start()
        self.followers.append(follower)
        return follower

    async def close(self) -> None:
        for follower in self.followers:
            await follower.stop()
        for store in self.stores:
            await store.session.close()


@asynccontextmanager
async def two_brokers(**settings: bool) -> AsyncIterator[Brokers]:
    brokers = Brokers()
    try:
        for _ in range(2):
            await brokers.add(**settings)
        yield brokers
    finally:
        await brokers.close()


async def test_a_change_reaches_the_other_broker_and_so_does_its_removal() -> None:
    async with two_brokers() as brokers:
        one, other = brokers.followers
        assert await one.add({PATTERN: [READ]}) == {}
        await until(lambda: brokers.authorizers[1].entries.get(PATTERN) == frozenset({READ}))
        assert await other.remove([ONE, ONE]) == [{PATTERN: frozenset({READ})}, {}], "first come"
        await until(lambda: not brokers.authorizers[0].entries.get(PATTERN))
        assert await brokers.stores[0].session.exists(PATH) is None
        assert await one.remove([ONE]) == [{}], "nothing there, nothing removed"


async def test_an_unreadable_node_is_neither_removed_nor_overwritten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with two_brokers() as brokers:
        one = brokers.followers[0]
        assert await one.add({PATTERN: [READ]}) == {}
        session = brokers.stores[0].session
        await session.set(PATH, b'{"version":2,"acls":[]}')
        with caplog.at_level(logging.ERROR):
            (refused,) = await one.remove([ONE])
            failed = await one.add({PATTERN: [READ._replace(host="h")], OTHER: [READ]})
            assert list(failed) == [PATTERN], "the others are added"
            for error in (refused, failed[PATTERN]):
                assert isinstance(error, KafkaError) and "unreadable" in error.message
                assert error.error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert "cannot be read" in caplog.text
        assert (await session.get(PATH))[0] == b'{"version":2,"acls":[]}'
        assert brokers.authorizers[0].entries[PATTERN] == {READ}, "still in force"


async def test_what_a_starting_broker_cannot_read_denies_instead_of_opening() -> None:
    """Where everything without ACLs is open, a node that cannot be read must not count as none."""
    async with two_brokers(allow_if_no_acl=True) as brokers:
        session = brokers.stores[0].session
        await session.create(PATH, b"nonsense")
        late = await brokers.add(allow_if_no_acl=True)
        authorizer = brokers.authorizers[2]
        assert authorizer.entries[PATTERN] == DENY_ALL
        alice = Principal("alice")
        operation, kind = AclOperation.READ, ResourceType.TOPIC
        assert not authorizer.allows(alice, "h", operation, kind, "t")
        assert authorizer.allows(alice, "h", operation, kind, "other")
        (refused,) = await late.remove([ONE])
        assert isinstance(refused, KafkaError) and "unreadable" in refused.message
        await session.delete(PATH)
        assert await late.remove([ONE]) == [{}]
        assert authorizer.allows(alice, "h", operation, kind, "t")


def patterns(count: int) -> list[ResourcePattern]:
    return [ResourcePattern(ResourceType.TOPIC, f"t{number}") for number in range(count)]


async def test_many_acls_cost_some_calls_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: Counter[str] = Counter()

    def counted(name: str) -> Any:
        call = getattr(MemoryStore, name)

        async def counting(store: MemoryStore, *arguments: Any, **more: Any) -> Any:
            calls[name] += 1
            return await call(store, *arguments, **more)

        return counting

    added = {pattern: [READ] for pattern in patterns(5 * BATCH)}
    async with two_brokers() as brokers:
        for name in ("get_many", "multi_many"):
            monkeypatch.setattr(MemoryStore, name, counted(name))
        assert await brokers.followers[0].add(added) == {}
        assert calls["multi_many"] == 5
        await until(lambda: len(brokers.authorizers[1].entries) == len(added))
        assert await brokers.followers[0].remove([ONE._replace(name=None)]) == [
            {pattern: frozenset({READ}) for pattern in added}
        ]
        await until(lambda: not brokers.authorizers[1].entries)
        assert calls["multi_many"] == 10
        assert calls["get_many"] < 100, "of both brokers, their notifications included"


async def test_two_brokers_that_add_to_the_same_patterns_lose_nothing() -> None:
    write = READ._replace(operation=AclOperation.WRITE)
    both = {pattern: {READ, write} for pattern in patterns(50)}
    async with two_brokers() as brokers:
        one, other = brokers.followers
        for failed in await asyncio.gather(
            one.add(dict.fromkeys(both, (READ,))), other.add(dict.fromkeys(both, (write,)))
        ):
            assert not failed
        await until(lambda: all(each.entries == both for each in brokers.authorizers))


async def test_old_notifications_are_looked_for_once_in_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That reads all of them: after each change it would cost the more, the more there were."""
    purged: list[object] = []

    async def purge(nodes: ChangeNodes[object]) -> None:
        purged.append(nodes)

    monkeypatch.setattr(ChangeNodes, "purge", purge)
    async with two_brokers() as brokers:
        for pattern in patterns(5):
            await brokers.followers[0].add({pattern: [READ]})
            await until(partial(brokers.authorizers[1].entries.__contains__, pattern))
        assert len(purged) == 2, "each broker once"
