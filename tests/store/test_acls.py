"""ACLs: Kafka's paths and payloads, writes under a version, notifications of two kinds."""

import pytest

from odradek.store import acls
from odradek.store.acls import LITERAL, PREFIXED, AclChange, AclEntry, Resource
from odradek.store.cluster import ClusterStore
from odradek.store.payloads import InvalidPayload

ENTRY = AclEntry("User:alice", "Allow", "Read", "*")
OTHER = AclEntry("User:bob", "Deny", "All", "10.0.0.1")
TOPIC, PREFIX = Resource("Topic", "t"), Resource("TransactionalId", "p", PREFIXED)


@pytest.fixture
async def cluster(backend) -> ClusterStore:
    cluster = ClusterStore(await backend.open())
    await cluster.prepare_acls()
    return cluster


async def test_a_resource_is_written_under_its_version(cluster) -> None:
    assert await cluster.acls(TOPIC) == (set(), -1)
    assert await cluster.set_acls(TOPIC, {ENTRY}, -1) == 0
    assert await cluster.set_acls(TOPIC, {OTHER}, -1) is None
    assert await cluster.acls(TOPIC) == ({ENTRY}, 0)
    assert await cluster.set_acls(TOPIC, {ENTRY, OTHER}, 0) == 1
    assert await cluster.set_acls(TOPIC, set(), 0) is None
    assert await cluster.acls(TOPIC) == ({ENTRY, OTHER}, 1)
    assert not await cluster.delete_acls(TOPIC, 0)
    assert await cluster.delete_acls(TOPIC, 1)
    assert await cluster.set_acls(TOPIC, set(), 1) is None


async def test_resources_are_where_kafka_keeps_them(cluster) -> None:
    await cluster.set_acls(TOPIC, [ENTRY], -1)
    await cluster.set_acls(PREFIX, [ENTRY], -1)
    data = (
        b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow",'
        b'"operation":"Read","host":"*"}]}'
    )
    assert (await cluster.store.get("/kafka-acl/Topic/t"))[0] == data
    assert (await cluster.store.get("/kafka-acl-extended/prefixed/TransactionalId/p"))[0] == data
    assert await cluster.acl_resources() == [TOPIC, PREFIX]


async def test_changes_are_told_in_order(cluster, recorder) -> None:
    watch = recorder()
    assert await cluster.acl_changes(LITERAL, watch=watch) == []
    await cluster.notify_acl_change(TOPIC)
    await watch.next()
    await cluster.store.create("/kafka-acl-changes/acl_changes_", b"nonsense", sequential=True)
    await cluster.notify_acl_change(Resource("Cluster", "kafka-cluster"))
    assert await cluster.acl_changes(LITERAL, after=0) == [
        AclChange(2, Resource("Cluster", "kafka-cluster"))
    ]
    await cluster.notify_acl_change(PREFIX)
    assert await cluster.acl_changes(PREFIXED) == [AclChange(0, PREFIX)]


def test_the_payloads_of_changes() -> None:
    assert acls.encode_acl_change(TOPIC) == b"TOPIC:t"
    assert acls.decode_acl_change(LITERAL, b"TOPIC:a:b", "/p") == Resource("Topic", "a:b")
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
