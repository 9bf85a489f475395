"""ACLs: Kafka's paths and payloads, writes under a version, notifications of two kinds."""

import pytest
from tests.store.conftest import Backend, Recorder

from odradek.store import acls
from odradek.store.acls import LITERAL, PREFIXED, AclEntry, StoredPattern
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


async def test_a_resource_is_written_under_its_version(cluster: ClusterStore) -> None:
    assert await cluster.acls.get(TOPIC) == (set(), None)
    assert await cluster.acls.set(TOPIC, {ENTRY}, None) == 0
    assert await cluster.acls.set(TOPIC, {OTHER}, None) is None
    assert await cluster.acls.get(TOPIC) == ({ENTRY}, 0)
    assert await cluster.acls.set(TOPIC, {ENTRY, OTHER}, 0) == 1
    assert await cluster.acls.set(TOPIC, set(), 0) is None
    assert await cluster.acls.get(TOPIC) == ({ENTRY, OTHER}, 1)
    assert not await cluster.acls.delete(TOPIC, 0)
    assert await cluster.acls.delete(TOPIC, 1)
    assert await cluster.acls.set(TOPIC, set(), 1) is None


async def test_resources_are_where_kafka_keeps_them(cluster: ClusterStore) -> None:
    await cluster.acls.set(TOPIC, [ENTRY], None)
    await cluster.acls.set(PREFIX, [ENTRY], None)
    data = (
        b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow",'
        b'"operation":"Read","host":"*"}]}'
    )
    assert (await cluster.session.get("/kafka-acl/Topic/t"))[0] == data
    assert (await cluster.session.get("/kafka-acl-extended/prefixed/TransactionalId/p"))[0] == data
    assert await cluster.acls.resources() == [TOPIC, PREFIX]


async def test_changes_are_reported_in_order(
    cluster: ClusterStore, recorder: type[Recorder]
) -> None:
    watch = recorder()
    assert await cluster.acls.changes[LITERAL].after(watch=watch) == []
    await cluster.acls.notify_change(TOPIC)
    await watch.next()
    await cluster.session.create("/kafka-acl-changes/acl_changes_", b"nonsense", sequential=True)
    await cluster.acls.notify_change(StoredPattern("Cluster", "kafka-cluster"))
    assert await cluster.acls.changes[LITERAL].after(0) == [
        ChangeNotification(2, StoredPattern("Cluster", "kafka-cluster"))
    ]
    await cluster.acls.notify_change(PREFIX)
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
