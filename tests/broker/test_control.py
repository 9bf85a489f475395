"""Requests between brokers, sent by somebody who is none."""

import json
from pathlib import Path
from uuid import UUID

import pytest
from tests.broker.clusters import Cluster, cluster, produce, until

from odradek.broker import control
from odradek.wire.connection import Connection
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from odradek.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    BrokerState,
)
from odradek.wire.messages.controlled_shutdown import ControlledShutdownRequest
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest
from odradek.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from odradek.wire.messages.update_metadata import UpdateMetadataRequest
from odradek.wire.topics import TopicPartition


async def current(made: Cluster) -> tuple[int, int]:
    """The controller's epoch and broker 1's own, which a client should not know."""
    term = await made.brokers[1].store.controller.term()
    assert term is not None
    return term.epoch, made.brokers[1].epoch


def stop_replica(controller_epoch: int, broker_epoch: int) -> StopReplicaRequest:
    state = StopReplicaPartitionState(partition_index=0, leader_epoch=-2, delete_partition=True)
    return StopReplicaRequest(
        controller_id=1,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        topic_states=[StopReplicaTopicState(topic_name="t", partition_states=[state])],
    )


async def still_works(made: Cluster) -> None:
    connection = await made.connect(1)
    assert (await produce(connection, "t", b"value")).error_code == ErrorCode.NONE
    assert TopicPartition("t", 0) in made.brokers[1].replicas.partitions
    await made.create_topic("another")


async def test_a_request_without_the_brokers_epoch_is_refused_and_its_sender_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        controller_epoch, broker_epoch = await current(made)
        connection = await made.connect(1, client_id="mallory")
        for epoch in (-1, broker_epoch + 1, 2**62):
            response = await connection.request(stop_replica(controller_epoch, epoch), 3)
            assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
        # The first versions have no place for it.
        old = LeaderAndIsrRequest(controller_id=1, controller_epoch=controller_epoch)
        refused = await connection.request(old, 0)
        assert refused.error_code == ErrorCode.STALE_BROKER_EPOCH
        assert "refused" in caplog.text
        assert "'mallory'" in caplog.text
        assert "127.0.0.1" in caplog.text
        await still_works(made)
        caplog.clear()


async def test_an_epoch_that_no_controller_has_had_fences_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(control, "ELECTION_WAIT_S", 0.1)
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        _, broker_epoch = await current(made)
        for request, version in (
            (stop_replica(1_000_000, broker_epoch), 3),
            (UpdateMetadataRequest(controller_epoch=1_000_000, broker_epoch=broker_epoch), 6),
            (LeaderAndIsrRequest(controller_epoch=1_000_000, broker_epoch=broker_epoch), 4),
        ):
            connection = await made.connect(1)
            pending = connection.start(request, version)
            with pytest.raises(ConnectionError):
                await pending
        assert "epoch 1000000, but the store has" in caplog.text
        assert made.brokers[1].controller.is_active
        await still_works(made)
        caplog.clear()


async def test_a_request_that_is_ahead_of_the_store_waits_for_it(tmp_path: Path) -> None:
    """A broker may see an election after the first request of the controller it was."""
    async with cluster(tmp_path, brokers=2) as made:
        await made.create_topic("t", replicas=2)
        first = made.controller.id
        other = 3 - first
        await made.stop(first)
        await until(lambda: made.brokers[other].controller.is_active)
        await until(lambda: made.brokers[other].cache.controller_id == other)


async def test_where_brokers_have_a_listener_clients_of_another_are_not_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(
        tmp_path,
        listeners="CLIENTS://127.0.0.1:0,INTERNAL://127.0.0.1:0",
        inter_broker_listener_name="INTERNAL",
        listener_security_protocol_map="CLIENTS:PLAINTEXT,INTERNAL:PLAINTEXT",
    ) as made:
        await made.create_topic("t")
        epochs = await current(made)
        client = await made.connect(1)
        response = await client.request(stop_replica(*epochs), 3)
        assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        await still_works(made)
        internal = made.brokers[1].endpoints[1]
        peer = await Connection.open(internal.host, internal.port, client_id="1", timeout=60)
        response = await peer.request(stop_replica(*epochs), 3)
        assert response.error_code == ErrorCode.NONE
        peer.close()
        caplog.clear()


async def test_a_shutdown_of_another_incarnation_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path, brokers=2) as made:
        await made.create_topic("t", replicas=2)
        connection = await made.connect(made.controller.id)
        for epoch in (-1, 2**62):
            request = ControlledShutdownRequest(broker_id=1, broker_epoch=epoch)
            response = await connection.request(request, 3)
            assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
        caplog.clear()


async def test_alter_partition_over_the_wire_in_every_version(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Topics by name up to v1 and by id from v2; epochs of the members from v3."""
    async with cluster(tmp_path, brokers=3) as made:
        await made.create_topic("t", replicas=3)
        leader = made.brokers[made.controller.cache.partitions("t")[0].leader]
        role = leader.replicas.partitions[TopicPartition("t", 0)].leader
        await until(lambda: set(role.isr.committed) == {1, 2, 3})
        connection = await made.connect(made.controller.id)
        others = [id for id in made.brokers if id != leader.id]

        async def ask(version: int, isr: list[int], **fields: int) -> AlterPartitionResponse:
            with_epochs = [BrokerState(broker_id=id, broker_epoch=-1) for id in isr]
            partition = AlterPartitionRequestPartitionData(
                new_isr=isr if version < 3 else [],
                new_isr_with_epochs=with_epochs if version >= 3 else [],
                leader_epoch=role.epoch,
                **{"partition_epoch": role.partition_epoch, **fields},
            )
            topic = AlterPartitionRequestTopicData(
                topic_name="t", topic_id=made.controller.cache.topic_id("t"), partitions=[partition]
            )
            request = AlterPartitionRequest(
                broker_id=leader.id, broker_epoch=leader.epoch, topics=[topic]
            )
            return await connection.request(request, version)

        def error(response: AlterPartitionResponse) -> ErrorCode:
            return ErrorCode(response.topics[0].partitions[0].error_code)

        made.controller.controller._active.term.context.brokers.shutting_down.add(others[0])  # type: ignore[union-attr]
        has_ids = made.controller.cache.topic_id("t") != UUID(int=0)
        for version in range(4 if has_ids else 2):
            unsafe = await ask(version, [leader.id, others[0]])
            shutting_down = (
                ErrorCode.OPERATION_NOT_ATTEMPTED if version < 2 else ErrorCode.INELIGIBLE_REPLICA
            )
            assert error(unsafe) is shutting_down, version
        for version in range(4):
            if version:  # the first has no recovery state
                odd = await ask(version, [leader.id], leader_recovery_state=7)
                assert odd.error_code == ErrorCode.UNKNOWN_SERVER_ERROR, version
            refused = await ask(version, [leader.id], partition_epoch=99)
            unknown = version >= 2 and not has_ids
            known = ErrorCode.UNKNOWN_TOPIC_ID if unknown else ErrorCode.NOT_CONTROLLER
            assert error(refused) is known, version
        epoch = role.partition_epoch
        accepted = (await ask(1, [leader.id, others[1]])).topics[0].partitions[0]
        assert (accepted.error_code, accepted.isr) == (0, [leader.id, others[1]])
        assert (accepted.leader_id, accepted.partition_epoch) == (leader.id, epoch + 1)
        standby = await made.connect(next(id for id in made.brokers if id != made.controller.id))
        altered = await standby.request(AlterPartitionRequest(broker_id=1), 0)
        assert altered.error_code == ErrorCode.NOT_CONTROLLER
        allocated = await standby.request(AllocateProducerIdsRequest(), 0)
        assert allocated.error_code == ErrorCode.NOT_CONTROLLER
        block = await connection.request(
            AllocateProducerIdsRequest(broker_id=leader.id, broker_epoch=leader.epoch), 0
        )
        assert (block.error_code, block.producer_id_len) == (0, 1000)
        caplog.clear()


async def test_the_leader_of_an_unclean_election_is_recovered_by_its_next_isr_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(
        tmp_path,
        brokers=3,
        inter_broker_protocol_version="3.2",
        unclean_leader_election_enable="true",
    ) as made:
        first, second = sorted(set(made.brokers) - {made.controller.id})
        connection = await made.connect(made.controller.id)
        placed = [CreatableReplicaAssignment(partition_index=0, broker_ids=[first, second])]
        topic = CreatableTopic(
            name="t", num_partitions=-1, replication_factor=-1, assignments=placed
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        assert (await connection.request(request, 5)).topics[0].error_code == 0
        store = made.controller.store

        async def node_when(isr: set[int]) -> bytes:
            """The partition's node, once these are its in-sync replicas."""
            while True:
                data, _ = await store.session.get("/brokers/topics/t/partitions/0/state")
                assert data is not None
                if set(json.loads(data)["isr"]) == isr:
                    return data

        assert b"leader_recovery_state" not in await node_when({first, second})
        await made.stop(second)
        await node_when({first})
        await made.stop(first)
        await made.start(second)
        assert (await node_when({second})).endswith(b',"leader_recovery_state":1}')
        await made.start(first)
        assert b"leader_recovery_state" not in await node_when({first, second})
        caplog.clear()
