"""ACLs: Kafka's paths and payloads, writes under a version, notifications of two kinds."""

import pytest
from tests.store.conftest import Backend, Recorder

from odradek.store import acls
from odradek.store.acls import (
    LITERAL,
    NOTHING_STORED,
    PREFIXED,
    ROOTS,
    AclEntry,
    StoredAcls,
    StoredPattern,
)
from odradek.store.change_nodes import ChangeNotification
from odradek.store.cluster import ClusterStore
from odradek.store.payloads import InvalidPayload

ENTRY = AclEntry("User:alice", "Allow", "Read", "*")
OTHER = AclEntry("User:bob", "Deny", "All", "10.0.0.1")
TOPIC, PREFIX = StoredPattern("Topic", "t"), StoredPattern("TransactionalId", "p", PREFIXED)


@pytest.fixture
async def cluster(backend: Backend) -> ClusterStore:
    cluster = ClusterStore(await backend.open())
    await cluster.acls.prepare()
    return cluster


async def test_resources_are_written_under_their_versions(cluster: ClusterStore) -> None:
    one, both = frozenset({ENTRY}), frozenset({ENTRY, OTHER})

    async def get() -> tuple[object, ...]:
        return tuple(await cluster.acls.get_many([TOPIC, PREFIX]))

    async def raced(**topic_and_prefix: StoredAcls) -> list[StoredPattern]:
        patterns = {"topic": TOPIC, "prefix": PREFIX}
        return await cluster.acls.write_many(
            {patterns[name]: acls for name, acls in topic_and_prefix.items()}
        )

    assert await get() == (NOTHING_STORED, NOTHING_STORED)
    assert await raced(topic=StoredAcls(one, None)) == []
    late = StoredAcls(both, None)
    assert await raced(topic=late, prefix=late) == [TOPIC], "the other is written"
    assert await get() == (StoredAcls(one, 0), StoredAcls(both, 0))
    assert await raced(topic=StoredAcls(both, 0)) == []
    assert await raced(topic=StoredAcls(frozenset(), 0)) == [TOPIC]
    assert await get() == (StoredAcls(both, 1), StoredAcls(both, 0))
    assert await raced(topic=StoredAcls(frozenset(), 1)) == []
    assert await raced(topic=StoredAcls(one, 1)) == [TOPIC]
    assert await get() == (NOTHING_STORED, StoredAcls(both, 0))
    changes = {pattern: await cluster.acls.changes[pattern].after() for pattern in ROOTS}
    assert len(changes[LITERAL]) == 3, "one for each write, none for what was not written"
    assert len(changes[PREFIXED]) == 1


async def test_resources_are_where_kafka_keeps_them(cluster: ClusterStore) -> None:
    acls = StoredAcls(frozenset({ENTRY}), None)
    assert await cluster.acls.write_many({TOPIC: acls, PREFIX: acls}) == []
    data = (
        b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow",'
        b'"operation":"Read","host":"*"}]}'
    )
    assert (await cluster.session.get("/kafka-acl/Topic/t"))[0] == data
    assert (await cluster.session.get("/kafka-acl-extended/prefixed/TransactionalId/p"))[0] == data
    assert await cluster.acls.resources() == [TOPIC, PREFIX]
    assert (await cluster.session.get("/kafka-acl-changes/acl_changes_0000000000"))[0] == b"TOPIC:t"


async def test_what_cannot_be_read_does_not_hide_the_others(cluster: ClusterStore) -> None:
    await cluster.acls.write_many({TOPIC: StoredAcls(frozenset({ENTRY}), None)})
    await cluster.session.create(PREFIX.path, b"nonsense")
    unreadable, readable = await cluster.acls.get_many([PREFIX, TOPIC])
    assert isinstance(unreadable, InvalidPayload)
    assert readable == StoredAcls(frozenset({ENTRY}), 0)


async def test_changes_are_reported_in_order(
    cluster: ClusterStore, recorder: type[Recorder]
) -> None:
    watch = recorder()
    assert await cluster.acls.changes[LITERAL].after(watch=watch) == []
    await cluster.acls.changes[LITERAL].notify(TOPIC)
    await watch.next()
    await cluster.session.create("/kafka-acl-changes/acl_changes_", b"nonsense", sequential=True)
    await cluster.acls.changes[LITERAL].notify(StoredPattern("Cluster", "kafka-cluster"))
    assert await cluster.acls.changes[LITERAL].after(0) == [
        ChangeNotification(2, StoredPattern("Cluster", "kafka-cluster"))
    ]
    await cluster.acls.changes[PREFIXED].notify(PREFIX)
    assert await cluster.acls.changes[PREFIXED].after() == [ChangeNotification(0, PREFIX)]


def test_the_payloads_of_changes() -> None:
    assert acls.encode_acl_change(TOPIC) == b"TOPIC:t"
    assert acls.decode_acl_change(LITERAL, b"TOPIC:a:b", "/p") == StoredPattern("Topic", "a:b")
    extended = (
        b'{"version":1,"resourceType":"TRANSACTIONAL_ID","name":"p","patternType":"PREFIXED"}'
    )
    assert acls.encode_acl_change(PREFIX) == extended
    assert acls.decode_acl_change(PREFIXED, extended, "/p") == PREFIX


@pytest.mark.parametrize(
    ("pattern", "data"),
    [
        (LITERAL, None),
        (LITERAL, b"TOPIC"),
        (LITERAL, b"NOTHING:t"),
        (PREFIXED, b"TOPIC:t"),
        (PREFIXED, b'{"version":2,"resourceType":"TOPIC","name":"p","patternType":"PREFIXED"}'),
        (PREFIXED, b'{"version":1,"resourceType":"TOPIC","name":"p","patternType":"MATCH"}'),
        (PREFIXED, b'{"version":1,"resourceType":"TOPIC","name":"p"}'),
        (
            PREFIXED,
            b'{"version":1,"resourceType":"TOPIC","name":"p","patternType":"PREFIXED","x":1}',
        ),
    ],
)
def test_nonsense_names_the_node(pattern: str, data: bytes | None) -> None:
    with pytest.raises(InvalidPayload, match="/p"):
        acls.decode_acl_change(pattern, data, "/p")


def test_the_payload_of_entries() -> None:
    assert acls.decode_acls(None, "/p") == set()
    assert acls.decode_acls(acls.encode_acls([ENTRY, OTHER]), "/p") == {ENTRY, OTHER}
    for wrong in (b'{"version":2,"acls":[]}', b'{"version":1,"acls":[{"principal":"User:a"}]}'):
        with pytest.raises(InvalidPayload, match="/p"):
            acls.decode_acls(wrong, "/p")
