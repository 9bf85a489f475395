"""The controller as others see it: who may ask, what is answered, and what an error leads to."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable

import pytest
from tests.controller.scenarios.cluster import PuppetCluster

from odradek.controller import dispatch
from odradek.controller.active_controller import ActiveController
from odradek.controller.brokers import Changes, compare
from odradek.controller.controller import Controller
from odradek.controller.elections import ElectionType
from odradek.controller.events import (
    BrokerChange,
    TermEvent,
    TopicChange,
    TopicDeletionStopReplicaResponseReceived,
)
from odradek.controller.journal import EntryKind
from odradek.controller.term import RequestsNotSent
from odradek.store import payloads
from odradek.store.api import Store, StoreUnavailable
from odradek.store.memory import MemoryServer, MemoryStore
from odradek.store.nodes import ControllerMoved
from odradek.store.payloads import BrokerRegistration, Endpoint, TopicNode
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest
from odradek.wire.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from odradek.wire.messages.update_metadata import UpdateMetadataRequest
from odradek.wire.protocol_version import ProtocolVersion
from odradek.wire.topics import TopicPartition

T0 = TopicPartition("t", 0)


class Cluster(PuppetCluster):
    """Puppets on the store in memory."""

    def __init__(self, **config: int | bool | ProtocolVersion) -> None:
        self.server = MemoryServer()
        super().__init__(self._session, config)

    async def _session(self) -> Store:
        store = MemoryStore(self.server)
        await store.start()
        return store

    async def make(self, topic: str, *replicas: tuple[int, ...]) -> None:
        await self.admin.create_topic(topic, TopicNode(dict(enumerate(replicas))))
        await self.settle()

    def happened(self, kind: EntryKind) -> list[str]:
        return [entry.after for _, entry in self.entries if entry.kind is kind]


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    made = Cluster()
    await made.open([1, 2, 3], [1, 2])
    yield made
    await made.close()


async def refusal(question: Awaitable[object]) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        await question
    return refused.value.error


def questions(controller: Controller) -> list[tuple[Awaitable[object], ErrorCode]]:
    return [
        (controller.controlled_shutdown(3, -1), ErrorCode.STALE_CONTROLLER_EPOCH),
        (controller.elect_leaders(ElectionType.PREFERRED, None), ErrorCode.NOT_CONTROLLER),
        (controller.alter_reassignments({T0: [1]}), ErrorCode.NOT_CONTROLLER),
        (controller.list_reassignments(None), ErrorCode.NOT_CONTROLLER),
        (controller.alter_partitions(3, -1, []), ErrorCode.NOT_CONTROLLER),
        (controller.allocate_producer_ids(3, -1), ErrorCode.NOT_CONTROLLER),
    ]


async def test_a_standby_controller_refuses(cluster: Cluster) -> None:
    standby = cluster.controller(2)
    assert (standby.is_active, standby.epoch) == (False, 0)
    for question, expected in questions(standby):
        assert await refusal(question) is expected
    assert standby.statistics()["active"] is False


async def test_questions_that_wait_when_the_session_ends_are_answered(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller, gate = cluster.controller(1), asyncio.Event()

    async def wait(active: ActiveController, event: TermEvent) -> None:
        await gate.wait()

    monkeypatch.setattr(dispatch, "process", wait)
    controller.put_for_term(BrokerChange(), controller.epoch)
    asked = [(asyncio.ensure_future(q), expected) for q, expected in questions(controller)]
    await asyncio.sleep(0)
    store = cluster.members[1].held.store
    assert isinstance(store, MemoryStore)
    cluster.server.expire(store)
    for question, expected in asked:
        assert await refusal(question) is expected
    monkeypatch.undo()
    gate.set()
    await cluster.settle()
    assert cluster.active == [2]


async def test_a_controller_whose_process_has_ended_is_replaced_before_its_session_has(
    cluster: Cluster,
) -> None:
    await cluster.make("t", (1, 2, 3))
    await until_followed(cluster, 1)
    await cluster.controller(1).stop()
    await cluster.members[1].puppet.stop()
    while cluster.active != [2]:  # noqa: ASYNC110  # of another member
        await asyncio.sleep(0)  # a turn of the loop
    await cluster.settle()
    state = await cluster.admin.partition_state(T0)
    assert state is not None
    assert (state.leader, 1 in state.isr) == (2, False)
    assert cluster.members[3].puppet.live_brokers == [2, 3]
    assert 1 in await cluster.admin.brokers(), "its session goes on"


async def test_a_controller_that_listens_again_is_not_deposed(cluster: Cluster) -> None:
    await until_followed(cluster, 1)
    for connection in list(cluster.members[1].puppet.connections):
        connection.close()
    await until_followed(cluster, 1)
    await cluster.settle()
    assert cluster.active == [1]
    assert cluster.controller(2).election.won == 0


async def until_followed(cluster: Cluster, broker_id: int) -> None:
    """Its own controller, and that of the standby, hold a connection to the broker."""
    while len(cluster.members[broker_id].puppet.connections) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0)  # a turn of the loop


async def test_a_stopped_controller_refuses(cluster: Cluster) -> None:
    controller = cluster.controller(1)
    await controller.stop()
    for question, expected in questions(controller):
        assert await refusal(question) is expected


async def test_controlled_shutdown_of_an_unknown_or_an_earlier_broker(cluster: Cluster) -> None:
    controller = cluster.controller(1)
    epoch = cluster.members[3].puppet.epoch
    unknown = controller.controlled_shutdown(9, -1)
    assert await refusal(unknown) is ErrorCode.BROKER_NOT_AVAILABLE
    stale = controller.controlled_shutdown(3, epoch - 1)
    assert await refusal(stale) is ErrorCode.STALE_BROKER_EPOCH
    assert await controller.controlled_shutdown(3, epoch) == set()
    assert await controller.controlled_shutdown(2, -1) == set()


async def test_reassignment_answers_for_each_partition(cluster: Cluster) -> None:
    await cluster.make("t", (1,), (2,))
    await cluster.make("doomed", (3,))
    cluster.members[3].puppet.undeletable.add(TopicPartition("doomed", 0))
    await cluster.admin.requests.request_deletion("doomed")
    await cluster.settle()
    answers = await cluster.controller(1).alter_reassignments(
        {
            T0: [2],
            TopicPartition("t", 1): None,
            TopicPartition("t", 7): [1],
            TopicPartition("doomed", 0): [1],
            TopicPartition("gone", 0): [1],
        }
    )
    assert {str(tp): answer.error.name for tp, answer in answers.items()} == {
        "t-0": "NONE",
        "t-1": "NO_REASSIGNMENT_IN_PROGRESS",
        "t-7": "UNKNOWN_TOPIC_OR_PARTITION",
        "doomed-0": "UNKNOWN_TOPIC_OR_PARTITION",
        "gone-0": "UNKNOWN_TOPIC_OR_PARTITION",
    }
    listed = await cluster.controller(1).list_reassignments([T0, TopicPartition("t", 1)])
    assert {str(tp): str(assignment) for tp, assignment in listed.items()} == {
        "t-0": "replicas=[2,1] adding=[2] removing=[1]"
    }
    assert cluster.controller(1).is_queued_for_deletion("doomed")
    assert not cluster.controller(2).is_queued_for_deletion("doomed")


async def test_electing_everywhere_mentions_only_what_changed(cluster: Cluster) -> None:
    await cluster.make("t", (3, 2), (2, 3))
    await cluster.kill(3)
    await cluster.settle()
    answers = await cluster.controller(1).elect_leaders(ElectionType.PREFERRED, None)
    assert {str(tp): answer.error.name for tp, answer in answers.items()} == {
        "t-0": "PREFERRED_LEADER_NOT_AVAILABLE"
    }
    await cluster.start(3)
    await cluster.settle()
    await cluster.leader_of(T0).change_isr(T0, [2, 3])
    await cluster.settle()
    answers = await cluster.controller(1).elect_leaders(ElectionType.PREFERRED, None)
    assert {str(tp): (a.error.name, a.leader) for tp, a in answers.items()} == {"t-0": ("NONE", 3)}


async def test_unclean_by_default(cluster: Cluster) -> None:
    await cluster.make("t", (3, 2))
    await cluster.leader_of(T0).change_isr(T0, [3])
    await cluster.settle()
    await cluster.kill(3)
    await cluster.settle()
    state = await cluster.admin.partition_state(T0)
    assert state is not None
    assert (state.leader, state.isr) == (-1, (3,))
    cluster.controller(1).enable_unclean_leader_election()
    await cluster.settle()
    state = await cluster.admin.partition_state(T0)
    assert state is not None
    assert (state.leader, state.isr) == (2, (2,))


async def test_leadership_goes_home_by_itself() -> None:
    """The first check comes soon after an election, the next ones at their interval."""
    cluster = Cluster(auto_leader_rebalance_enable=True, leader_imbalance_first_check_seconds=0)
    await cluster.open([1, 2, 3], [1, 2])
    await cluster.make("t", (3, 2))
    await cluster.kill(3)
    await cluster.settle()
    await cluster.start(3)
    await cluster.settle()
    assert await cluster.leader_of(T0).change_isr(T0, [2, 3])
    await cluster.settle()
    assert cluster.leader_of(T0).id == 2
    await cluster.kill(1)
    await cluster.settle()
    while not any("AutoPreferred" in text for text in cluster.happened(EntryKind.CONTROLLER)):
        await cluster._look()
    await cluster.settle()
    assert cluster.leader_of(T0).id == 3
    await cluster.close()


async def test_endpoints_that_change_are_announced(cluster: Cluster) -> None:
    before = len(cluster.members[1].puppet.requests)
    known = await cluster.admin.broker(3)
    assert known is not None
    endpoints = (*known.endpoints, Endpoint("elsewhere", 1234, "CLIENTS"))
    data = payloads.encode_broker(BrokerRegistration(3, known.epoch, endpoints), 0)
    await cluster.admin.session.set("/brokers/ids/3", data)
    await cluster.settle()
    assert "BrokerModifications broker=3" in cluster.happened(EntryKind.CONTROLLER)
    _, request = cluster.members[1].puppet.requests[-1]
    assert len(cluster.members[1].puppet.requests) == before + 1
    (broker,) = [b for b in request.live_brokers if b.id == 3]  # type: ignore[union-attr]
    assert [endpoint.host for endpoint in broker.endpoints] == ["127.0.0.1", "elsewhere"]


async def test_topics_are_not_deleted_where_that_is_disabled() -> None:
    cluster = Cluster(delete_topic_enable=False)
    await cluster.open([1, 2], [1])
    await cluster.make("t", (1, 2))
    await cluster.admin.requests.request_deletion("t")
    await cluster.settle()
    assert await cluster.admin.requests.deletions() == []
    assert await cluster.admin.topics() == ["t"]
    await cluster.admin.requests.request_deletion("t")
    await cluster.close()


async def test_a_broker_that_listens_no_more_is_not_waited_for(cluster: Cluster) -> None:
    await cluster.make("t", (3, 2))
    known = await cluster.admin.broker(3)
    assert known is not None
    puppet = cluster.members[3].puppet
    await puppet.stop()
    while (state := await cluster.admin.partition_state(T0)) is None or state.leader != 2:
        await cluster._look()
    assert state.isr == (2,)
    assert await cluster.admin.broker(3) == known  # still registered
    await cluster.settle()
    assert 3 not in cluster.members[2].puppet.live_brokers
    await puppet.start_again(known.endpoints[0].port)
    while 3 not in cluster.members[2].puppet.live_brokers:
        await cluster._look()
    await cluster.settle()
    assert puppet.replicas[T0].leader == 2
    happened = cluster.happened(EntryKind.CONTROLLER)[-2:]
    assert happened == ["BrokerChange dead=[3]", "BrokerChange new=[3]"]


async def test_what_a_broker_answers_to_an_earlier_registration_does_not_count(
    cluster: Cluster,
) -> None:
    await cluster.make("t", (3,))
    puppet = cluster.members[3].puppet
    puppet.silence()
    await cluster.admin.requests.request_deletion("t")
    await cluster.settle()
    late = StopReplicaRequest(
        broker_epoch=puppet.epoch - 1,
        topic_states=[
            StopReplicaTopicState(
                topic_name="t",
                partition_states=[
                    StopReplicaPartitionState(partition_index=0, delete_partition=True)
                ],
            )
        ],
    )
    done = StopReplicaPartitionError(topic_name="t", partition_index=0, error_code=ErrorCode.NONE)
    controller = cluster.controller()
    for response in (
        StopReplicaResponse(error_code=ErrorCode.STALE_BROKER_EPOCH, partition_errors=[]),
        StopReplicaResponse(partition_errors=[done]),
    ):
        event = TopicDeletionStopReplicaResponseReceived(3, late, response)
        controller.put_for_term(event, controller.epoch)
    await cluster.settle()
    assert cluster.happened(EntryKind.DELETION) == ["queued", "started"]
    puppet.speak()
    await cluster.settle()
    assert cluster.happened(EntryKind.DELETION) == ["queued", "started", "completed"]


async def test_what_failed_to_lead_can_be_deleted(cluster: Cluster) -> None:
    await cluster.make("t", (3,))
    puppet = cluster.members[3].puppet
    await puppet.fail_directory(T0)
    await cluster.settle()
    await cluster.admin.requests.request_deletion("t")
    await cluster.settle()
    assert cluster.happened(EntryKind.DELETION) == ["queued", "started", "halted"]
    assert await cluster.admin.topics() == ["t"]
    puppet.mend_directory(T0)
    await cluster.make("u", (3,))
    await puppet.fail_directory(T0._replace(topic="u"))
    await cluster.settle()
    puppet.mend_directory(T0._replace(topic="u"))
    await cluster.admin.requests.request_deletion("u")
    await cluster.settle()
    assert await cluster.admin.topics() == ["t"]


async def test_a_topic_id_is_kept_when_a_partition_moves(cluster: Cluster) -> None:
    topic_id = uuid.UUID(int=7)
    await cluster.admin.create_topic("t", TopicNode({0: (1,)}, topic_id=topic_id))
    await cluster.settle()
    await cluster.controller(1).alter_reassignments({T0: [2]})
    node = await cluster.admin.topic("t")
    assert node is not None
    assert (node.topic_id, node.adding) == (topic_id, {0: (2,)})


@pytest.mark.parametrize("protocol", ProtocolVersion, ids=str)
async def test_control_requests_leave_at_the_versions_of_the_protocol(
    protocol: ProtocolVersion,
) -> None:
    cluster = Cluster(protocol=protocol)
    await cluster.open([1, 2], [1])
    await cluster.make("t", (1, 2))
    await cluster.admin.requests.request_deletion("t")
    await cluster.settle()
    for member in cluster.members.values():
        sent = {(type(request), version) for version, request in member.puppet.requests}
        assert sent == {
            (LeaderAndIsrRequest, protocol.leader_and_isr_version),
            (UpdateMetadataRequest, protocol.update_metadata_version),
            (StopReplicaRequest, protocol.stop_replica_version),
        }
    await cluster.close()


@pytest.mark.parametrize(
    ("earlier", "protocol", "expected"),
    [
        ("3.9", "2.6", b'{"version":1,"status":0,"features":{}}'),
        ("2.6", "2.8", b'{"version":1,"status":1,"features":{}}'),
        ("2.8", "3.3", b'{"version":2,"status":1,"features":{}}'),
        ("2.6", "3.9", b'{"version":2,"status":1,"features":{}}'),
    ],
)
async def test_features_are_written_once_after_a_change_of_protocol(
    earlier: str, protocol: str, expected: bytes
) -> None:
    """The first controller of the new protocol writes them, and the next leaves them alone."""
    cluster = Cluster(protocol=ProtocolVersion.parse(earlier))
    await cluster.open([1, 2], [1, 2])
    created, before = await cluster.admin.session.get("/feature")
    assert created != expected
    cluster.config["protocol"] = ProtocolVersion.parse(protocol)
    await cluster.kill(2)
    await cluster.start(2)
    await cluster.kill(1)
    await cluster.settle()
    assert cluster.active == [2]
    written, stat = await cluster.admin.session.get("/feature")
    assert (written, stat.version) == (expected, before.version + 1)
    assert stat.created == before.created, "not deleted and made again"
    await cluster.start(1)
    await cluster.kill(2)
    await cluster.settle()
    assert cluster.active == [1]
    assert await cluster.admin.session.get("/feature") == (written, stat)
    await cluster.close()


async def test_a_failed_failover_resigns_and_is_tried_again(cluster: Cluster) -> None:
    await cluster.admin.session.set("/feature", b"{}")
    await cluster.kill(2)
    await cluster.admin.session.delete("/controller")
    attempts = [text for text in cluster.happened(EntryKind.CONTROLLER) if "elected" in text]
    while len(attempts) < 3:
        await cluster._look()
        attempts = [text for text in cluster.happened(EntryKind.CONTROLLER) if "elected" in text]
    await cluster.admin.session.set("/feature", b'{"version":1,"status":0,"features":{}}')
    while not cluster.controller(1).is_active:
        await cluster._look()
    await cluster.settle()
    assert cluster.controller(1).epoch > 2


async def test_an_operation_that_breaks_off_leads_to_a_new_term(cluster: Cluster) -> None:
    """The store fails between deciding and telling: the brokers would know less than the store."""
    await cluster.make("t", (2, 3))
    held = cluster.members[1].held
    whole = held.multi_many
    left = [1]

    async def failing(multis: object) -> object:
        if left and left.pop():
            raise StoreUnavailable("", "disk full")
        return await whole(multis)  # type: ignore[arg-type]

    held.multi_many = failing  # type: ignore[method-assign, assignment]
    await cluster.kill(3)
    await cluster.settle()
    await cluster.make("u", (1,))
    while not cluster.active:
        await cluster._look()
    await cluster.settle()
    assert cluster.controller().epoch == 2
    state = await cluster.admin.partition_state(T0)
    assert state is not None
    assert (state.leader, state.isr) == (2, (2,))
    assert cluster.members[2].puppet.replicas[T0].isr == (2,)


async def test_resigning_when_the_node_is_gone_already_is_harmless(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = cluster.controller(1)

    async def fail(active: ActiveController, event: TermEvent) -> None:
        monkeypatch.undo()
        await cluster.admin.session.delete("/controller")
        raise RequestsNotSent("planted")

    monkeypatch.setattr(dispatch, "process", fail)
    controller.put_for_term(TopicChange(), controller.epoch)
    while not (cluster.active and cluster.controller().epoch > 1):
        await cluster._look()
    await cluster.make("t", (2, 3))
    assert (await cluster.admin.partition_state(T0)) is not None
    assert all(
        member.controller is None or not member.controller._queue._task.done()  # type: ignore[union-attr]
        for member in cluster.members.values()
    )


async def test_an_error_while_an_error_is_dealt_with_is_not_the_end(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = cluster.controller(1)
    seen = []

    async def look() -> None:
        seen.append("look")
        raise StoreUnavailable("", "disk full")

    async def process(active: ActiveController, event: TermEvent) -> None:
        if isinstance(event, TopicChange):
            raise ControllerMoved("planted")
        seen.append("next")

    monkeypatch.setattr(controller.election, "check_controller_node", look)
    monkeypatch.setattr(dispatch, "process", process)
    controller.put_for_term(TopicChange(), controller.epoch)
    controller.put_for_term(BrokerChange(), controller.epoch)
    await cluster.settle()
    assert seen == ["look", "next"]


async def test_statistics_name_every_kind_of_event_with_its_times(cluster: Cluster) -> None:
    await cluster.make("t", (1, 2))
    statistics = cluster.controller(1).statistics()
    events = statistics["events"]
    assert isinstance(events, dict)
    assert {"Startup", "BrokerChange", "TopicChange", "LeaderAndIsrResponseReceived"} <= set(events)
    assert set(events["TopicChange"]) == {
        "count",
        "queue_ms_mean",
        "queue_ms_max",
        "processing_ms_mean",
        "processing_ms_max",
    }
    assert (statistics["active"], statistics["epoch"], statistics["partitions"]) == (True, 1, 1)


async def test_the_journal_alone_explains_a_partition(cluster: Cluster) -> None:
    await cluster.make("t", (3, 2))
    await cluster.kill(3)
    await cluster.settle()
    history = cluster.controller(1).journal.history(T0)
    leader_and_isr = [e for e in history if e.kind is EntryKind.LEADERSHIP]
    assert [(e.before, e.after, e.why) for e in leader_and_isr] == [
        ("", "leader=3 epoch=0 isr=[3,2]", "TopicChange new=['t'] gone=[]"),
        (
            "leader=3 epoch=0 isr=[3,2]",
            "leader=2 epoch=1 isr=[2]",
            "BrokerChange dead=[3]: election (offline)",
        ),
    ]
    assert {e.controller_epoch for e in history} == {1}


def brokers(**epochs: int) -> dict[int, BrokerRegistration]:
    return {
        int(name[1:]): BrokerRegistration(int(name[1:]), epoch, ())
        for name, epoch in epochs.items()
    }


@pytest.mark.parametrize(
    ("known", "registered", "expected"),
    [
        (brokers(b1=1), brokers(b1=1), Changes()),
        (brokers(b1=1), brokers(b1=1, b3=9, b2=8), Changes(new=(2, 3))),
        (brokers(b1=1, b2=2), brokers(b1=5, b2=2), Changes(bounced=(1,))),
        (brokers(b1=1, b2=2), brokers(b2=2), Changes(dead=(1,))),
        (brokers(b1=1, b2=2), brokers(b2=7, b3=8), Changes((3,), (2,), (1,))),
        (brokers(b1=5), brokers(b1=4), Changes()),  # an epoch never falls
    ],
)
def test_how_registrations_differ(
    known: dict[int, BrokerRegistration],
    registered: dict[int, BrokerRegistration],
    expected: Changes,
) -> None:
    assert compare(known, registered) == expected


def test_changes_are_summarized() -> None:
    assert str(Changes((3,), (2,), (1, 4))) == "new=[3] bounced=[2] dead=[1, 4]"
    assert not Changes()


async def test_the_journal_names_the_client_that_asked(cluster: Cluster) -> None:
    await cluster.make("t", (2, 3))
    client = "127.0.0.1:5000 (client id 'admin')"
    await cluster.controller(1).alter_reassignments({T0: [3]}, requester=client)
    await cluster.settle()
    asked = f"ApiPartitionReassignment t-0:[3] ({client})"
    assert asked in cluster.happened(EntryKind.CONTROLLER)
    journal = cluster.controller(1).journal
    assert asked in {entry.why for entry in journal.history(T0)}
    assert all(client not in entry.why for entry in journal.entries() if "IsrChange" in entry.why)
