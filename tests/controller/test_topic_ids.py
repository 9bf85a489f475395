"""Topic ids as the controller keeps them: given once, never changed, never lost.

docs/spec/protocol-ladder.md section 2.1.
"""

from uuid import UUID

import pytest
from tests.controller.test_controller import Cluster

from odradek.controller.context import ControllerContext, InconsistentTopicId
from odradek.controller.journal import EntryKind
from odradek.store.payloads import TopicNode
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest
from odradek.wire.messages.update_metadata import UpdateMetadataRequest
from odradek.wire.protocol_version import ProtocolVersion
from odradek.wire.topic_ids import NO_TOPIC_ID
from odradek.wire.topics import TopicPartition

T0 = TopicPartition("t", 0)
OLD, NEW = ProtocolVersion.V2_6_IV0, ProtocolVersion.V3_9_IV0
WITH_ID = TopicNode({0: (1, 2)}, topic_id=UUID("12345678-1234-4234-8234-123456789abc"))


async def opened(protocol: ProtocolVersion) -> Cluster:
    made = Cluster(protocol=protocol)
    await made.open([1, 2, 3], [1, 2])
    return made


async def id_of(cluster: Cluster, topic: str = "t") -> UUID | None:
    node = await cluster.admin.topic(topic)
    assert node is not None
    return node.topic_id


async def restart_controller(cluster: Cluster, broker_id: int) -> None:
    """The controller's broker is killed and starts again; the next one takes over."""
    await cluster.kill(broker_id)
    await cluster.settle()
    await cluster.start(broker_id)
    await cluster.settle()


async def test_old_topics_get_an_id_at_the_first_election_and_keep_it() -> None:
    """Acceptance 6: raising the protocol gives ids once."""
    cluster = await opened(OLD)
    await cluster.make("t", (1, 2))
    assert await id_of(cluster) is None
    cluster.config["protocol"] = NEW
    await restart_controller(cluster, 2)  # not the controller, so that it starts with the new one
    assert await id_of(cluster) is None
    await cluster.kill(1)
    await cluster.settle()
    given = await id_of(cluster)
    assert given is not None and given != NO_TOPIC_ID
    for kind in (LeaderAndIsrRequest, UpdateMetadataRequest):
        sent = [
            (version, topic.topic_id)
            for version, request in cluster.members[2].puppet.requests
            if isinstance(request, kind)
            for topic in request.topic_states
        ]
        assert sent[-1] == (7 if kind is LeaderAndIsrRequest else 8, given), kind
    await cluster.start(1)
    await cluster.settle()
    await restart_controller(cluster, 2)
    assert await id_of(cluster) == given, "a second failover changes none"
    await cluster.close()


async def test_a_topic_without_id_that_appears_is_given_one() -> None:
    cluster = await opened(NEW)
    await cluster.make("t", (1, 2))
    given = await id_of(cluster)
    assert given is not None
    (state,) = [
        topic.topic_id
        for _, request in cluster.members[1].puppet.requests
        if isinstance(request, LeaderAndIsrRequest)
        for topic in request.topic_states
    ][-1:]
    assert state == given
    await cluster.close()


async def test_an_id_is_given_beside_a_concurrent_expansion() -> None:
    cluster = await opened(NEW)
    grown = TopicNode({0: (1, 2), 1: (2, 1)})

    async def grow() -> None:
        await cluster.admin.set_topic("t", grown)

    async def grow_at_the_second_read() -> None:
        # The first read is the controller's look at the new topic, the second the write of its id.
        cluster.members[1].held.race("/brokers/topics/t", grow)

    cluster.members[1].held.race("/brokers/topics/t", grow_at_the_second_read)
    await cluster.make("t", (1, 2))
    node = await cluster.admin.topic("t")
    assert node is not None and node.topic_id is not None
    assert node.partitions == grown.partitions
    assert set(cluster.members[1].puppet.replicas) == {T0, TopicPartition("t", 1)}
    await cluster.close()


@pytest.mark.parametrize("reads", [1, 2])
async def test_an_id_that_another_writes_meanwhile_is_the_topics(reads: int) -> None:
    """After the controller has read the topic, or after it has read it again to write an id."""
    cluster = await opened(NEW)
    left = reads

    async def write_at_the_last_read() -> None:
        nonlocal left
        left -= 1
        if left:
            cluster.members[1].held.race("/brokers/topics/t", write_at_the_last_read)
        else:
            await cluster.admin.set_topic("t", WITH_ID)

    cluster.members[1].held.race("/brokers/topics/t", write_at_the_last_read)
    await cluster.make("t", (1, 2))
    assert left == 0
    assert await id_of(cluster) == WITH_ID.topic_id
    sent = [
        topic.topic_id
        for _, request in cluster.members[1].puppet.requests
        if isinstance(request, LeaderAndIsrRequest)
        for topic in request.topic_states
    ]
    assert set(sent) == {WITH_ID.topic_id}
    await cluster.close()


async def test_an_id_that_cannot_be_read_is_not_replaced() -> None:
    cluster = await opened(NEW)
    await cluster.make("t", (1, 2))
    given = await id_of(cluster)
    await cluster.kill(2)
    await cluster.settle()
    node, _ = await cluster.admin.session.get("/brokers/topics/t")
    assert node is not None
    start = node.index(b'"topic_id":"') + len(b'"topic_id":"')
    damaged = node[:start] + b"?" + node[start + 1 :]
    await cluster.admin.session.set("/brokers/topics/t", damaged)
    await cluster.admin.session.delete("/controller")

    def elections() -> int:
        return sum("elected" in text for text in cluster.happened(EntryKind.CONTROLLER))

    before = elections()
    while elections() < before + 3:
        await cluster._look()
        assert (await cluster.admin.session.get("/brokers/topics/t"))[0] == damaged
    await cluster.admin.session.set("/brokers/topics/t", node)
    while not cluster.controller(1).is_active:
        await cluster._look()
    await cluster.settle()
    assert await id_of(cluster) == given
    await cluster.close()


@pytest.mark.parametrize("by", ["the controller", "the next controller"])
async def test_a_damaged_node_is_left_as_it_is(by: str) -> None:
    """It reads as a topic without an id and without partitions: writing that would lose both."""
    cluster = await opened(NEW)
    await cluster.make("t", (1, 2))
    node, _ = await cluster.admin.session.get("/brokers/topics/t")
    assert node is not None
    damaged = node[:-5]
    if by == "the next controller":
        await cluster.kill(1)
    await cluster.admin.session.set("/brokers/topics/t", damaged)
    await cluster.settle()
    assert (await cluster.admin.session.get("/brokers/topics/t"))[0] == damaged
    await cluster.close()


async def test_a_controller_of_an_older_protocol_keeps_ids() -> None:
    """Acceptance 5: reassignment and failover below 2.8 neither make nor lose one."""
    cluster = await opened(OLD)
    await cluster.admin.create_topic("t", WITH_ID)
    await cluster.settle()
    outcome = await cluster.controller(1).alter_reassignments({T0: [3]})
    assert outcome[T0].error == 0
    await cluster.settle()
    moving = await cluster.admin.topic("t")
    assert moving is not None and moving.adding and moving.topic_id == WITH_ID.topic_id
    await restart_controller(cluster, 1)
    assert await id_of(cluster) == WITH_ID.topic_id
    await cluster.close()


@pytest.mark.parametrize("protocol", [OLD, NEW])
async def test_an_id_lost_from_the_node_is_written_back(
    protocol: ProtocolVersion, caplog: pytest.LogCaptureFixture
) -> None:
    """A tool that does not know ids rewrites the node: the next failover finds the same id."""
    cluster = await opened(protocol)
    await cluster.admin.create_topic("t", WITH_ID)
    await cluster.settle()
    await cluster.admin.set_topic("t", TopicNode({0: (1, 2), 1: (2, 1)}))
    await cluster.settle()
    node = await cluster.admin.topic("t")
    assert node == TopicNode({0: (1, 2), 1: (2, 1)}, topic_id=WITH_ID.topic_id)
    assert "rewritten without its id" in caplog.text
    await restart_controller(cluster, 1)
    assert await id_of(cluster) == WITH_ID.topic_id
    await cluster.close()


def test_one_id_has_one_topic() -> None:
    context = ControllerContext()
    one, other = UUID(int=2), UUID(int=3)
    context.add_topic("t", one)
    for topic, topic_id in (("u", one), ("t", other)):
        with pytest.raises(InconsistentTopicId):
            context.add_topic(topic, topic_id)
    assert (context.topic_ids.names, context.topic_ids.ids) == ({one: "t"}, {"t": one})
    context.remove_topic("t")
    assert not context.topic_ids.names and context.topic_ids.of("t") == NO_TOPIC_ID
    context.add_topic("u", one)
