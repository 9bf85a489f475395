"""ACLs in the store: followed by every broker, changed by any, never overwritten unread."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import pytest
from tests.broker.clusters import until

from odradek.broker.acl_follower import DENY_ALL, AclFollower
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
from odradek.store.cluster import ClusterStore
from odradek.store.memory import MemoryServer, MemoryStore
from odradek.wire.errors import ErrorCode, KafkaError

PATTERN = ResourcePattern(ResourceType.TOPIC, "t", PatternType.LITERAL)
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
        await one.add(PATTERN, [READ])
        await until(lambda: brokers.authorizers[1].entries.get(PATTERN) == frozenset({READ}))
        assert await other.remove(ONE) == {PATTERN: {READ}}
        await until(lambda: not brokers.authorizers[0].entries.get(PATTERN))
        assert await brokers.stores[0].session.exists(PATH) is None
        assert await one.remove(ONE) == {}, "nothing there, nothing removed"


async def test_an_unreadable_node_is_neither_removed_nor_overwritten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with two_brokers() as brokers:
        one = brokers.followers[0]
        await one.add(PATTERN, [READ])
        session = brokers.stores[0].session
        await session.set(PATH, b'{"version":2,"acls":[]}')
        with caplog.at_level(logging.ERROR):
            for change in (one.remove(ONE), one.add(PATTERN, [READ._replace(host="h")])):
                with pytest.raises(KafkaError, match="unreadable") as raised:
                    await change
                assert raised.value.error is ErrorCode.UNKNOWN_SERVER_ERROR
        assert "unreadable" in caplog.text
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
        with pytest.raises(KafkaError, match="unreadable"):
            await late.remove(ONE)
        await session.delete(PATH)
        assert await late.remove(ONE) == {}
        assert authorizer.allows(alice, "h", operation, kind, "t")
