"""Control requests: the coalescing rules of docs/spec/controller-and-replication.md section
4.9, one by one."""

from uuid import UUID

import pytest

from odradek.controller.assignment import ReplicaAssignment
from odradek.controller.channels import versions_for
from odradek.controller.context import ControllerContext, Partition
from odradek.controller.control_request_batch import (
    ControlMessage,
    ControlRequest,
    RequestBatch,
    name_partitions,
)
from odradek.store.payloads import BrokerRegistration, Endpoint, LeaderAndIsr
from odradek.wire.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionError,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from odradek.wire.messages.stop_replica import StopReplicaRequest
from odradek.wire.messages.update_metadata import UpdateMetadataRequest
from odradek.wire.protocol_version import ProtocolVersion
from odradek.wire.topics import TopicPartition


class Desk:
    """A context with three brokers, a batch, and what it sent."""

    def __init__(self) -> None:
        self.context = ControllerContext()
        self.context.epoch = 6
        for id in (1, 2, 3):
            endpoints = (
                Endpoint("h", 9000 + id, "PLAINTEXT", "PLAINTEXT"),
                Endpoint("secure", 9100 + id, "CLIENTS", "SASL_SSL"),
            )
            rack = "r1" if id == 1 else None
            self.context.brokers[id] = BrokerRegistration(id, 100 + id, endpoints, rack)
        self.sent: list[tuple[int, ControlRequest]] = []
        self.messages: list[ControlMessage] = []
        self.batch = RequestBatch(1, self.context, "PLAINTEXT", ProtocolVersion.latest())

    def partition(self, topic: str = "t", number: int = 0, epoch: int = 4) -> Partition:
        partition = self.context.set_assignment(
            TopicPartition(topic, number), ReplicaAssignment([1, 2, 3], [3], [1])
        )
        leader_and_isr = LeaderAndIsr(1, epoch, (1, 2), controller_epoch=5, partition_epoch=9)
        self.context.set_leader_and_isr(partition, leader_and_isr)
        return partition

    def send(self) -> list[tuple[int, str]]:
        self.messages = list(self.batch.build())
        self.sent = [each for message in self.messages for each in message.requests]
        return [(id, type(request).__name__) for id, request in self.sent]

    def to(self, broker_id: int, kind: type[ControlRequest]) -> ControlRequest:
        (found,) = [r for id, r in self.sent if id == broker_id and isinstance(r, kind)]
        # What cannot be sent in the version of any dialect is no request.
        for protocol in ProtocolVersion:
            version = versions_for(protocol)[type(found)]
            assert type(found).decode(found.encode(version), version)
        return found


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_versions_are_those_of_the_protocol() -> None:
    def numbers(text: str) -> list[int]:
        return list(versions_for(ProtocolVersion.parse(text)).values())

    assert [numbers(text) for text in ("2.6", "2.8", "3.2", "3.4", "3.9")] == [
        [4, 6, 3],
        [5, 7, 3],
        [6, 7, 3],
        [7, 8, 4],
        [7, 8, 4],
    ]


def test_an_answer_by_topic_id_is_read_by_name() -> None:
    known, zero, unknown = UUID(int=7), UUID(int=0), UUID(int=9)
    states = [
        LeaderAndIsrTopicState(topic_name="t", topic_id=known),
        LeaderAndIsrTopicState(topic_name="u", topic_id=zero),
    ]
    errors = [LeaderAndIsrPartitionError(partition_index=3, error_code=56)]
    response = LeaderAndIsrResponse(
        topics=[
            LeaderAndIsrTopicError(topic_id=each, partition_errors=errors)
            for each in (known, unknown)
        ]
    )
    name_partitions(LeaderAndIsrRequest(topic_states=states), response)
    assert [(e.topic_name, e.partition_index, e.error_code) for e in response.partition_errors] == [
        ("t", 3, 56)
    ]


def test_ids_go_with_the_topics(desk: Desk) -> None:
    desk.context.add_topic("t", UUID(int=7))
    desk.batch.add_leader_and_isr([2], desk.partition(), is_new=True)
    desk.send()
    for kind in (LeaderAndIsrRequest, UpdateMetadataRequest):
        request = desk.to(2, kind)
        assert not isinstance(request, StopReplicaRequest)
        assert [topic.topic_id for topic in request.topic_states] == [UUID(int=7)], kind


def test_leader_and_isr_says_everything(desk: Desk) -> None:
    desk.batch.add_leader_and_isr([2], desk.partition(), is_new=True)
    desk.send()
    request = desk.to(2, LeaderAndIsrRequest)
    assert isinstance(request, LeaderAndIsrRequest)
    assert (request.controller_id, request.controller_epoch, request.broker_epoch) == (1, 6, 102)
    (topic,) = request.topic_states
    (state,) = topic.partition_states
    assert (topic.topic_name, state.partition_index) == ("t", 0)
    assert (state.controller_epoch, state.leader, state.leader_epoch) == (5, 1, 4)
    assert (state.isr, state.partition_epoch) == ([1, 2], 9)
    assert (state.replicas, state.adding_replicas, state.removing_replicas) == (
        [1, 2, 3],
        [3],
        [1],
    )
    assert state.is_new
    leader = LeaderAndIsrLiveLeader(broker_id=1, host_name="h", port=9001)
    assert request.live_leaders == [leader]


def test_every_leader_and_isr_is_also_metadata_for_everybody(desk: Desk) -> None:
    desk.batch.add_leader_and_isr([2], desk.partition(), is_new=False)
    assert desk.send() == [
        (2, "LeaderAndIsrRequest"),
        (1, "UpdateMetadataRequest"),
        (2, "UpdateMetadataRequest"),
        (3, "UpdateMetadataRequest"),
    ]


def test_the_last_word_wins(desk: Desk) -> None:
    partition = desk.partition(epoch=4)
    desk.batch.add_leader_and_isr([2], partition, is_new=False)
    desk.context.set_leader_and_isr(partition, LeaderAndIsr(2, 5, (2,), 6, 10))
    desk.batch.add_leader_and_isr([2], partition, is_new=False)
    desk.send()
    request = desk.to(2, LeaderAndIsrRequest)
    assert isinstance(request, LeaderAndIsrRequest)
    (state,) = request.topic_states[0].partition_states
    assert (state.leader, state.leader_epoch, state.isr) == (2, 5, [2])


@pytest.mark.parametrize(("first", "second"), [(True, False), (False, True)])
def test_is_new_sticks(desk: Desk, first: bool, second: bool) -> None:
    partition = desk.partition()
    desk.batch.add_leader_and_isr([2], partition, is_new=first)
    desk.batch.add_leader_and_isr([2, 3], partition, is_new=second)
    desk.send()
    for broker_id, is_new in ((2, True), (3, second)):
        request = desk.to(broker_id, LeaderAndIsrRequest)
        assert isinstance(request, LeaderAndIsrRequest)
        assert request.topic_states[0].partition_states[0].is_new is is_new


@pytest.mark.parametrize(("first", "second"), [(True, False), (False, True)])
def test_delete_sticks(desk: Desk, first: bool, second: bool) -> None:
    tp = desk.partition().tp
    desk.batch.add_stop_replica(3, tp, delete=first)
    desk.batch.add_stop_replica(3, tp, delete=second)
    desk.send()
    request = desk.to(3, StopReplicaRequest)
    assert isinstance(request, StopReplicaRequest)
    (state,) = request.topic_states[0].partition_states
    assert (state.partition_index, state.leader_epoch, state.delete_partition) == (0, 4, True)


def test_the_epoch_of_a_stop_is_the_one_at_the_time(desk: Desk) -> None:
    known, unknown = desk.partition(), TopicPartition("elsewhere", 0)
    doomed = desk.partition("doomed")
    desk.context.queue_deletion("doomed")
    for tp in (known.tp, unknown, doomed.tp):
        desk.batch.add_stop_replica(2, tp, delete=True)
    desk.context.set_leader_and_isr(known, LeaderAndIsr(2, 5, (2,), 6, 10))
    desk.send()
    request = desk.to(2, StopReplicaRequest)
    assert isinstance(request, StopReplicaRequest)
    epochs = {t.topic_name: t.partition_states[0].leader_epoch for t in request.topic_states}
    assert epochs == {"t": 4, "elsewhere": -1, "doomed": -2}


def test_one_partition_map_for_all_brokers(desk: Desk) -> None:
    first, second = desk.partition(number=0), desk.partition(number=1)
    desk.batch.add_update_metadata([1], [first])
    desk.batch.add_update_metadata([2], [second])
    desk.send()
    for broker_id in (1, 2):
        request = desk.to(broker_id, UpdateMetadataRequest)
        assert isinstance(request, UpdateMetadataRequest)
        states = request.topic_states[0].partition_states
        assert [state.partition_index for state in states] == [0, 1]
        assert request.broker_epoch == 100 + broker_id


def test_metadata_says_who_is_alive_and_which_replicas_are_not(desk: Desk) -> None:
    partition = desk.partition()
    desk.context.brokers.shutting_down.add(2)
    desk.context.brokers.offline_dirs[3] = {partition.tp}
    desk.batch.add_update_metadata([1], [partition])
    desk.send()
    request = desk.to(1, UpdateMetadataRequest)
    assert isinstance(request, UpdateMetadataRequest)
    (state,) = request.topic_states[0].partition_states
    assert (state.leader, state.leader_epoch, state.zk_version, state.controller_epoch) == (
        1,
        4,
        9,
        5,
    )
    assert (state.isr, state.replicas, state.offline_replicas) == ([1, 2], [1, 2, 3], [2, 3])
    assert [broker.id for broker in request.live_brokers] == [1, 2, 3]
    first = request.live_brokers[0]
    assert first.rack == "r1"
    assert [(e.host, e.port, e.listener, e.security_protocol) for e in first.endpoints] == [
        ("h", 9001, "PLAINTEXT", 0),
        ("secure", 9101, "CLIENTS", 3),
    ]


def test_partitions_without_leadership_are_left_out_of_metadata(desk: Desk) -> None:
    fresh = desk.context.set_assignment(TopicPartition("new", 0), ReplicaAssignment([1]))
    desk.batch.add_update_metadata([1], [fresh])
    desk.send()
    request = desk.to(1, UpdateMetadataRequest)
    assert isinstance(request, UpdateMetadataRequest)
    assert request.topic_states == []


def test_a_topic_being_deleted_has_no_leader(desk: Desk) -> None:
    partition = desk.partition()
    desk.context.queue_deletion("t")
    desk.batch.add_update_metadata([1], [partition])
    desk.send()
    request = desk.to(1, UpdateMetadataRequest)
    assert isinstance(request, UpdateMetadataRequest)
    (state,) = request.topic_states[0].partition_states
    assert (state.leader, state.leader_epoch, state.isr) == (-2, -2, [1, 2])


def test_order_is_leadership_metadata_stop(desk: Desk) -> None:
    partition = desk.partition()
    desk.batch.add_stop_replica(1, partition.tp, delete=False)
    desk.batch.add_update_metadata([1])
    desk.batch.add_leader_and_isr([1], partition, is_new=False)
    del desk.context.brokers[2], desk.context.brokers[3]
    assert desk.send() == [
        (1, "LeaderAndIsrRequest"),
        (1, "UpdateMetadataRequest"),
        (1, "StopReplicaRequest"),
    ]


def test_only_registered_brokers_and_no_negative_ids(desk: Desk) -> None:
    partition = desk.partition()
    desk.context.brokers.shutting_down.add(2)
    desk.batch.add_leader_and_isr([-1, 2, 9], partition, is_new=False)
    desk.batch.add_stop_replica(-1, partition.tp, delete=True)
    desk.batch.add_stop_replica(9, partition.tp, delete=True)
    desk.batch.add_update_metadata([-1, 9])
    assert [id for id, name in desk.send() if name != "UpdateMetadataRequest"] == [2]
    assert sorted(id for id, r in desk.sent if isinstance(r, UpdateMetadataRequest)) == [1, 2, 3]


def test_a_batch_is_empty_until_something_is_gathered(desk: Desk) -> None:
    assert desk.batch.is_empty
    desk.batch.add_update_metadata([1])
    assert not desk.batch.is_empty


def test_each_message_says_what_the_journal_needs(desk: Desk) -> None:
    partition = desk.partition()
    desk.batch.add_leader_and_isr([2], partition, is_new=False)
    desk.batch.add_stop_replica(3, partition.tp, delete=False)
    desk.send()
    assert [(m.description, m.broker_id, m.partitions) for m in desk.messages] == [
        ("LeaderAndIsr", 2, (partition.tp,)),
        ("UpdateMetadata to brokers 1,2,3", None, (partition.tp,)),
        ("StopReplica", 3, (partition.tp,)),
    ]
