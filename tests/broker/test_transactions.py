"""Transactions through a whole broker, request by request: what Kafka answers."""

from pathlib import Path
from typing import Any

import pytest
from tests.broker import test_metrics as metrics
from tests.broker.clusters import Cluster, batch_of, cluster, fetch_request, produce_request, until
from tests.broker.test_produce_and_fetch import values_in

from odradek.broker import http_service
from odradek.coordinator.state_topic import partition_for
from odradek.coordinator.transaction_states import TransactionState
from odradek.wire.connection import Connection
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from odradek.wire.messages.controlled_shutdown import ControlledShutdownRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from odradek.wire.messages.describe_transactions import DescribeTransactionsRequest
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.fetch import PartitionData
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.wire.messages.list_transactions import ListTransactionsRequest
from odradek.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from odradek.wire.protocol_version import ProtocolVersion
from odradek.wire.records import Record, encode_batch
from odradek.wire.topics import TopicPartition

E = ErrorCode
TOPIC = "__transaction_state"
REPLICAS = "kafka_server_replicamanager"
LATEST, GREATEST = -1, -3


async def accepted(connection: Connection, request: FindCoordinatorRequest, version: int) -> None:
    """Ask until there is no error."""
    while True:
        response = await connection.request(request, version)
        if not response.error_code:
            return


class Transactional:
    """A producer that sends exactly the requests that the test says."""

    def __init__(self, made: Cluster, connection: Connection) -> None:
        self.made = made
        self.connection = connection
        self.producer_id = -1
        self.epoch = -1
        self.sequence = 0

    @classmethod
    async def open(cls, made: Cluster) -> "Transactional":
        connection = await made.connect(1)
        await accepted(connection, FindCoordinatorRequest(key="id", key_type=1), 3)
        producer = cls(made, connection)
        while True:
            response = await producer.init()
            if response.error_code != E.COORDINATOR_LOAD_IN_PROGRESS:
                return producer

    async def init(self, version: int = 4, **more: Any) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            transactional_id=more.pop("id", "id"),
            transaction_timeout_ms=more.pop("timeout_ms", 60_000),
            **more,
        )
        response = await self.connection.request(request, version)
        if not response.error_code:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self.sequence = 0
        return response

    async def add(self, *partitions: int, topic: str = "t", version: int = 3) -> list[ErrorCode]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="id",
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )
        response = await self.connection.request(request, version)
        return [
            ErrorCode(one.partition_error_code)
            for result in response.results_by_topic_v3_and_below
            for one in result.results_by_partition
        ]

    async def produce(
        self,
        value: bytes,
        partition: int = 0,
        version: int = 9,
        timestamp_ms: int | None = None,
    ) -> ErrorCode:
        batch = batch_of(
            value,
            timestamp_ms=timestamp_ms,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        request = produce_request("t", batch, partition=partition, acks=-1)
        request.transactional_id = "id"
        response = await self.connection.request(request, version)
        error = ErrorCode(response.responses[0].partition_responses[0].error_code)
        if not error:
            self.sequence += 1
        return error

    async def add_offsets(self, group: str = "g", version: int = 3) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id="id",
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )
        return ErrorCode((await self.connection.request(request, version)).error_code)

    async def commit_offset(self, offset: int, group: str = "g", version: int = 3) -> ErrorCode:
        request = TxnOffsetCommitRequest(
            transactional_id="id",
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=0, committed_offset=offset, committed_metadata=""
                        )
                    ],
                )
            ],
        )
        while True:
            response = await self.connection.request(request, version)
            error = ErrorCode(response.topics[0].partitions[0].error_code)
            if error is not E.COORDINATOR_LOAD_IN_PROGRESS:
                return error

    async def committed(self, require_stable: bool = True) -> tuple[ErrorCode, int]:
        request = OffsetFetchRequest(
            group_id="g",
            topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])],
            require_stable=require_stable,
        )
        response = await self.connection.request(request, 7)
        one = response.topics[0].partitions[0]
        return ErrorCode(one.error_code), one.committed_offset

    async def describe(self) -> ErrorCode:
        request = DescribeTransactionsRequest(transactional_ids=["id"])
        response = await self.connection.request(request, 0)
        return ErrorCode(response.transaction_states[0].error_code)

    async def end(self, is_commit: bool, version: int = 2) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id="id",
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=is_commit,
        )
        response = await self.connection.request(request, version)
        return ErrorCode(response.error_code)

    async def settle(self) -> None:
        """Until every marker is written."""
        transaction = self.made.brokers[1].transactions.describe("id")
        await until(lambda: transaction.state.is_complete)

    async def fetch(self, isolation: int = 1, offset: int = 0) -> PartitionData:
        request = fetch_request("t", offset, isolation_level=isolation)
        response = await self.connection.request(request, 11)
        return response.responses[0].partitions[0]


def client_values(data: PartitionData) -> list[bytes | None]:
    """Without the markers, which a client skips."""
    return [value for value in values_in(data.records) if value and len(value) < 6]


def aborted_in(data: PartitionData) -> list[tuple[int, int]]:
    """The producer and first offset of each aborted transaction."""
    assert data.aborted_transactions is not None
    return [(one.producer_id, one.first_offset) for one in data.aborted_transactions]


async def test_the_topic_is_created_when_it_is_first_needed(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        producer = await Transactional.open(made)
        assert (producer.producer_id, producer.epoch) == (0, 0)
        request = DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=2, resource_name=TOPIC)]
        )
        response = await producer.connection.request(request, 1)
        found = {each.name: each.value for each in response.results[0].configs}
        assert {
            "unclean.leader.election.enable": "false",
            "compression.type": "uncompressed",
            "cleanup.policy": "compact",
            "min.insync.replicas": "1",
            "segment.bytes": "104857600",
        }.items() <= found.items()


async def test_without_enough_brokers_there_is_no_coordinator(tmp_path: Path) -> None:
    settings = {"transaction.state.log.replication.factor": "3"}
    async with cluster(tmp_path, brokers=2, **settings) as made:
        connection = await made.connect(1)
        for _ in range(2):
            response = await connection.request(FindCoordinatorRequest(key="id", key_type=1), 3)
            assert response.error_code == E.COORDINATOR_NOT_AVAILABLE
        assert not made.brokers[1].cache.has_topic(TOPIC)


async def test_a_commit_and_an_abort_as_readers_see_them(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        producer = await Transactional.open(made)
        assert await producer.add(0) == [E.NONE]
        assert await producer.produce(b"a") is E.NONE
        data = await producer.fetch()
        assert (data.last_stable_offset, data.high_watermark) == (0, 1)
        assert (client_values(data), data.aborted_transactions) == ([], [])
        assert client_values(await producer.fetch(isolation=0)) == [b"a"]
        assert await producer.end(True) is E.NONE
        await producer.settle()
        data = await producer.fetch()
        assert (client_values(data), data.last_stable_offset) == ([b"a"], 2)
        assert await producer.add(0) == [E.NONE]
        assert await producer.produce(b"b") is E.NONE
        assert await listed(producer, isolation=1) == 2
        assert await producer.end(False) is E.NONE
        await producer.settle()
        data = await producer.fetch()
        assert aborted_in(data) == [(producer.producer_id, 2)]
        assert await listed(producer, isolation=1) == 4
        assert (await producer.fetch(isolation=0)).aborted_transactions is None


@pytest.mark.parametrize("protocol", ProtocolVersion, ids=str)
async def test_what_a_broker_sends_of_itself_leaves_at_the_versions_of_the_protocol(
    tmp_path: Path, protocol: ProtocolVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Markers and the announcement of a shutdown are sent unasked; only the versions of a request
    for producer ids are negotiated, and there is none below 3.0."""
    sent: set[tuple[type, int]] = set()
    start = Connection.start

    def record(self: Connection, message: Any, version: int, **options: Any) -> Any:
        sent.add((type(message), version))
        return start(self, message, version, **options)

    monkeypatch.setattr(Connection, "start", record)
    async with cluster(tmp_path, inter_broker_protocol_version=str(protocol)) as made:
        await made.create_topic("t")
        producer = await Transactional.open(made)
        assert await producer.add(0) == [E.NONE]
        assert await producer.produce(b"a") is E.NONE
        assert await producer.end(True) is E.NONE
        await producer.settle()
    expected = {
        (WriteTxnMarkersRequest, protocol.write_txn_markers_version),
        (ControlledShutdownRequest, 3),
    }
    if protocol.allocates_producer_ids_through_controller:
        expected.add((AllocateProducerIdsRequest, 0))
    kinds = (WriteTxnMarkersRequest, ControlledShutdownRequest, AllocateProducerIdsRequest)
    assert {each for each in sent if each[0] in kinds} == expected


async def test_aborted_transactions_are_named_up_to_what_is_returned(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        producer = await Transactional.open(made)
        for _ in range(5):
            await producer.add(0)
            await producer.produce(b"v")
            await producer.end(False)
            await producer.settle()
        request = fetch_request("t", 0, isolation_level=1)
        request.topics[0].partitions[0].partition_max_bytes = 1
        response = await producer.connection.request(request, 11)
        data = response.responses[0].partitions[0]
        assert aborted_in(data) == [(producer.producer_id, 0)]


async def test_a_fetch_that_waits_ends_with_the_transaction_before_it(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        producer = await Transactional.open(made)
        reader = await made.connect(1)
        request = fetch_request("t", 0, isolation_level=1, max_wait_ms=60_000)
        fetching = reader.start(request, 11)
        assert await producer.add(0) == [E.NONE]
        assert await producer.produce(b"a") is E.NONE
        assert client_values(await producer.fetch(isolation=0)) == [b"a"]
        assert not fetching.done()
        assert await producer.end(False) is E.NONE
        data = (await fetching).responses[0].partitions[0]
        assert aborted_in(data) == [(producer.producer_id, 0)]
        assert data.last_stable_offset == data.high_watermark == 2
        assert len(values_in(data.records)) == 2, "the record, and the marker"


async def test_a_follower_serves_what_is_committed(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        producer = await Transactional.open(made)  # the coordinator is the only broker so far
        await made.start(2)
        await until(lambda: len(made.controller.cache.brokers()) == 2)
        await made.create_topic("t", replicas=2)
        leader = made.controller.cache.partitions("t")[0].leader
        to_coordinator, to_leader = producer.connection, await made.connect(leader)
        follower = Transactional(made, await made.connect(3 - leader))

        async def transact(value: bytes, is_commit: bool | None = None) -> None:
            producer.connection = to_coordinator
            assert await producer.add(0) == [E.NONE]
            producer.connection = to_leader
            assert await producer.produce(value) is E.NONE
            producer.connection = to_coordinator
            if is_commit is not None:
                assert await producer.end(is_commit) is E.NONE
                await producer.settle()

        await transact(b"a", True)
        await transact(b"b", False)
        await transact(b"c", True)
        await transact(b"open")
        log = made.brokers[3 - leader].logs.logs[TopicPartition("t", 0)]
        await until(lambda: log.high_watermark == 7)
        data = await follower.fetch()
        assert (data.error_code, data.high_watermark, data.last_stable_offset) == (0, 7, 6)
        assert client_values(data) == [b"a", b"b", b"c"]
        assert aborted_in(data) == [(producer.producer_id, 2)]
        assert client_values(await follower.fetch(isolation=0))[-1] == b"open"
        # Either knows from its own log which transaction is open.
        request = DescribeProducersRequest(topics=[TopicRequest(name="t", partition_indexes=[0])])
        for connection in (to_leader, follower.connection):
            response = await connection.request(request, 0)
            (known,) = response.topics[0].partitions[0].active_producers
            assert (known.producer_id, known.producer_epoch) == (producer.producer_id, 0)
            assert (known.last_sequence, known.current_txn_start_offset) == (3, 6)
            assert known.coordinator_epoch >= 0, "of the last marker"


async def test_offsets_by_time_end_before_the_open_transaction(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        producer = await Transactional.open(made)
        now_ms = made.brokers[1].clock()
        later_ms = now_ms + 60_000  # than the marker
        assert await producer.add(0) == [E.NONE]
        assert await producer.produce(b"a", timestamp_ms=now_ms) is E.NONE
        assert await producer.end(True) is E.NONE
        await producer.settle()
        assert await producer.add(0) == [E.NONE]
        assert await producer.produce(b"b", timestamp_ms=later_ms) is E.NONE

        async def found(timestamp: int) -> tuple[int, int]:
            """What readers of committed records are told, and others."""
            committed = await listed(producer, isolation=1, timestamp=timestamp)
            return committed, await listed(producer, isolation=0, timestamp=timestamp)

        assert await found(now_ms) == (0, 0)
        assert await found(LATEST) == (2, 3)
        assert await found(later_ms) == await found(GREATEST) == (-1, 2)
        assert await producer.end(True) is E.NONE
        await producer.settle()
        assert await found(later_ms) == await found(GREATEST) == (2, 2)


async def listed(producer: Transactional, isolation: int, timestamp: int = LATEST) -> int:
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[
            ListOffsetsTopic(
                name="t",
                partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)],
            )
        ],
    )
    response = await producer.connection.request(request, 7)
    return int(response.topics[0].partitions[0].offset)


async def test_what_is_wrong_with_partitions(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        producer = await Transactional.open(made)
        assert await producer.add(0, 7) == [
            E.OPERATION_NOT_ATTEMPTED,
            E.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert await producer.add(0, topic=TOPIC) == [E.TOPIC_AUTHORIZATION_FAILED]
        producer.epoch += 1
        assert await producer.add(0) == [E.PRODUCER_FENCED]
        assert await producer.add(0, version=1) == [E.INVALID_PRODUCER_EPOCH]
        assert await producer.end(True) is E.PRODUCER_FENCED
        assert await producer.end(True, version=1) is E.INVALID_PRODUCER_EPOCH


async def test_a_predecessor_is_fenced_by_the_coordinator_and_by_partitions(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        first = await Transactional.open(made)
        assert (await first.add(0), await first.produce(b"a")) == ([E.NONE], E.NONE)
        assert await first.end(True) is E.NONE
        await first.settle()
        second = Transactional(made, first.connection)
        assert not (await second.init()).error_code
        assert (second.producer_id, second.epoch) == (first.producer_id, first.epoch + 1)
        assert (await second.add(0), await second.produce(b"b")) == ([E.NONE], E.NONE)
        assert await first.produce(b"c") is E.INVALID_PRODUCER_EPOCH
        given = {"producer_id": first.producer_id, "producer_epoch": first.epoch}
        for error, version, init_version in (
            (E.INVALID_PRODUCER_EPOCH, 1, 3),
            (E.PRODUCER_FENCED, 2, 4),
        ):
            assert await first.add(0, version=version) == [error]
            assert await first.add_offsets(version=version) is error
            assert await first.end(True, version=version) is error
            assert (await first.init(init_version, **given)).error_code == error
        assert await second.end(True) is E.NONE
        await second.settle()
        assert client_values(await second.fetch()) == [b"a", b"b"]


async def test_a_topic_that_is_deleted_in_a_transaction_does_not_keep_it_undecided(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as made:
        for topic in ("t", "deleted"):
            await made.create_topic(topic)
        producer = await Transactional.open(made)
        assert await producer.add(0, topic="deleted") == [E.NONE]
        assert (await producer.add(0), await producer.produce(b"a")) == ([E.NONE], E.NONE)
        request = DeleteTopicsRequest(topic_names=["deleted"], timeout_ms=10_000)
        response = await producer.connection.request(request, 5)
        assert response.responses[0].error_code == E.NONE
        await until(lambda: not made.brokers[1].cache.has_topic("deleted"))
        assert await producer.end(True) is E.NONE
        await producer.settle()
        assert client_values(await producer.fetch()) == [b"a"]


async def test_without_enough_replicas_of_its_topic_nothing_is_begun_or_ended(
    tmp_path: Path,
) -> None:
    settings = {
        "transaction.state.log.replication.factor": "2",
        "transaction.state.log.min.isr": "2",
        "transaction.state.log.num.partitions": "1",
        "offsets.topic.num.partitions": "1",
    }
    async with cluster(tmp_path, brokers=2, **settings) as made:
        await made.create_topic("t", partitions=2)
        connection = await made.connect(1)
        for key, kind in (("id", 1), ("g", 0)):
            await accepted(connection, FindCoordinatorRequest(key=key, key_type=kind), 3)
        storage = made.brokers[1].transactions.storage
        producer = Transactional(made, connection)
        unavailable = E.COORDINATOR_NOT_AVAILABLE

        async def lose_a_replica() -> None:
            await made.stop(2)
            await until(lambda: storage.owned and not storage.is_loading)

        async def replicas() -> None:
            await made.start(2)
            cache = made.brokers[1].cache
            await until(lambda: len(cache.partitions(TOPIC)[0].isr) == 2)

        await lose_a_replica()
        assert (await producer.init()).error_code == unavailable
        await replicas()
        assert (await producer.init()).error_code == E.NONE
        assert await producer.add(0) == [E.NONE]
        await lose_a_replica()
        assert await producer.add(1) == [unavailable]
        assert await producer.add_offsets() is unavailable
        for is_commit in (True, False):
            assert await producer.end(is_commit) is unavailable
        epoch = producer.epoch
        for _ in range(3):
            assert (await producer.init()).error_code == unavailable
            assert storage.entries()[0].epoch == epoch + 1
        assert await producer.end(True) is E.PRODUCER_FENCED


async def test_who_counts_on_other_partitions_of_the_topic_coordinates_nothing(
    tmp_path: Path,
) -> None:
    """It would answer for ids that have another coordinator. Restarted, it counts what is there."""
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        await made.create_topic(TOPIC, partitions=3)  # the setting says 2
        producer = Transactional(made, await made.connect(1))
        await until(lambda: len(made.brokers[1].transactions.storage.owned) == 3)
        for id in ("a", "b", "c", "id"):
            assert (await producer.init(id=id)).error_code == E.COORDINATOR_LOAD_IN_PROGRESS
        await made.stop(1)
        await made.start(1)
        producer.connection = await made.connect(1)
        storage = made.brokers[1].transactions.storage
        await until(lambda: len(storage.owned) == 3 and not storage.is_loading)
        assert (await producer.init()).error_code == E.NONE


async def asked(producer: Transactional) -> set[ErrorCode]:
    """The answers to everything that a coordinator is asked about one id."""
    return {
        ErrorCode((await producer.init()).error_code),
        *(await producer.add(0)),
        await producer.add_offsets(),
        await producer.end(True),
        await producer.describe(),
    }


async def test_who_does_not_lead_an_ids_partition_is_not_its_coordinator(tmp_path: Path) -> None:
    async with cluster(tmp_path, brokers=2) as made:
        await made.create_topic("t")
        connection = await made.connect(1)
        for key, kind in (("id", 1), ("g", 0)):
            await accepted(connection, FindCoordinatorRequest(key=key, key_type=kind), 3)
        response = await connection.request(FindCoordinatorRequest(key="id", key_type=1), 3)
        other = Transactional(made, await made.connect(3 - response.node_id))
        assert await asked(other) == {E.NOT_COORDINATOR}


async def test_a_partition_that_is_not_loaded_is_waited_for(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        producer = await Transactional.open(made)
        await accepted(producer.connection, FindCoordinatorRequest(key="g"), 3)
        partition = partition_for("id", 2)
        loaded = next(id for id in ("a", "b", "c") if partition_for(id, 2) != partition)
        # What cannot be read keeps its partition from being loaded.
        unreadable = encode_batch([Record(0, 0, b"\0\0\0\2id", b"\0\7")])
        tool = await made.connect(1, client_id="__admin_client")
        response = await tool.request(produce_request(TOPIC, unreadable, partition=partition), 9)
        assert response.responses[0].partition_responses[0].error_code == E.NONE
        await made.stop(1)
        await made.start(1)
        producer.connection = await made.connect(1)
        await until(lambda: len(made.brokers[1].transactions.storage.owned) == 2)
        while (error := (await producer.init(id=loaded)).error_code) != E.NONE:
            assert error == E.COORDINATOR_LOAD_IN_PROGRESS
        assert await asked(producer) == {E.COORDINATOR_LOAD_IN_PROGRESS}
        found = await producer.connection.request(ListTransactionsRequest(), 0)
        assert found.error_code == E.COORDINATOR_LOAD_IN_PROGRESS
        assert found.transaction_states == []


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"producer_id": 5}, E.INVALID_REQUEST),
        ({"producer_epoch": 5}, E.INVALID_REQUEST),
        ({"id": ""}, E.INVALID_REQUEST),
        ({"timeout_ms": 0}, E.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": 900_001}, E.INVALID_TRANSACTION_TIMEOUT),
    ],
)
async def test_what_is_wrong_with_a_producer(
    tmp_path: Path, fields: dict[str, Any], error: ErrorCode
) -> None:
    async with cluster(tmp_path) as made:
        producer = await Transactional.open(made)
        response = await producer.init(**fields)
        assert (response.error_code, response.producer_id, response.producer_epoch) == (
            error,
            -1,
            -1,
        )


class TestVerification:
    async def test_a_batch_of_a_partition_that_was_not_added(self, tmp_path: Path) -> None:
        async with cluster(tmp_path) as made:
            await made.create_topic("t", partitions=2)
            producer = await Transactional.open(made)
            assert await producer.produce(b"v", version=10) is E.INVALID_TXN_STATE
            assert await producer.produce(b"v", version=11) is E.TRANSACTION_ABORTABLE
            await producer.add(1)
            assert await producer.produce(b"v") is E.INVALID_TXN_STATE
            assert await producer.produce(b"v", partition=1) is E.NONE

    async def test_a_batch_that_comes_after_the_abort(self, tmp_path: Path) -> None:
        async with cluster(tmp_path) as made:
            await made.create_topic("t")
            producer = await Transactional.open(made)
            await producer.add(0)
            await producer.end(False)
            await producer.settle()
            assert await producer.produce(b"late") is E.INVALID_TXN_STATE
            data = await producer.fetch()
            assert data.last_stable_offset == data.high_watermark == 1

    @pytest.mark.parametrize("commits_offsets", [False, True], ids=["records", "offsets"])
    async def test_an_abort_that_comes_between_the_answer_and_the_batch(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commits_offsets: bool
    ) -> None:
        """It would open a transaction that no coordinator knows, and that nothing ends."""
        settings = {"offsets.topic.num.partitions": "1"}
        async with cluster(tmp_path, 1, **settings) as made:
            await made.create_topic("t")
            producer = await Transactional.open(made)
            await accepted(producer.connection, FindCoordinatorRequest(key="g"), 3)
            other = Transactional(made, await made.connect(1))
            other.producer_id, other.epoch = producer.producer_id, producer.epoch
            verification = made.brokers[1].verification
            verify = verification.verify

            async def late(*question: Any) -> dict[TopicPartition, ErrorCode]:
                found = await verify(*question)
                assert set(found.values()) == {E.NONE}
                assert await other.end(False) is E.NONE
                await other.settle()
                return found

            monkeypatch.setattr(verification, "verify", late)
            logs = made.brokers[1].logs.logs
            if commits_offsets:
                assert await producer.add_offsets() is E.NONE
                assert await producer.commit_offset(5) is E.INVALID_TXN_STATE
                log = logs[TopicPartition("__consumer_offsets", 0)]
                assert await producer.committed() == (E.NONE, -1), "nothing is pending"
            else:
                assert await producer.add(0) == [E.NONE]
                assert await producer.produce(b"late") is E.INVALID_TXN_STATE
                log = logs[TopicPartition("t", 0)]
            assert log.last_stable_offset == log.end_offset > 0

    async def test_it_can_be_switched_off(self, tmp_path: Path) -> None:
        settings = {"transaction.partition.verification.enable": "false"}
        async with cluster(tmp_path, 1, **settings) as made:
            await made.create_topic("t")
            producer = await Transactional.open(made)
            assert await producer.produce(b"v") is E.NONE

    async def test_every_id_and_partition_that_is_asked_about_is_answered(
        self, tmp_path: Path
    ) -> None:
        async with cluster(tmp_path) as made:
            await made.create_topic("t", partitions=2)
            producer = await Transactional.open(made)
            await producer.add(0)
            request = AddPartitionsToTxnRequest(
                transactions=[
                    AddPartitionsToTxnTransaction(
                        transactional_id=id,
                        producer_id=producer.producer_id,
                        producer_epoch=producer.epoch,
                        verify_only=True,
                        topics=[AddPartitionsToTxnTopic(name="t", partitions=[0, 1])],
                    )
                    for id in ("id", "unknown")
                ]
            )
            while True:  # until the other id's partition is loaded too
                response = await producer.connection.request(request, 5)
                found = {
                    (result.transactional_id, one.partition_index): one.partition_error_code
                    for result in response.results_by_transaction
                    for topic in result.topic_results
                    for one in topic.results_by_partition
                }
                if E.COORDINATOR_LOAD_IN_PROGRESS not in found.values():
                    break
            assert found == {
                ("id", 0): E.NONE,
                ("id", 1): E.TRANSACTION_ABORTABLE,
                ("unknown", 0): E.INVALID_PRODUCER_ID_MAPPING,
                ("unknown", 1): E.INVALID_PRODUCER_ID_MAPPING,
            }


async def test_a_transaction_that_is_never_ended_is_counted_as_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/spec/transactions.md section 3.7, behaviour 31."""
    monkeypatch.setattr(http_service, "SAMPLE_INTERVAL_S", 0.01)
    async with metrics.cluster(tmp_path, 1, **{"transaction.max.timeout.ms": "60000"}) as made:
        await made.create_topic("t")
        producer = await Transactional.open(made)
        broker = made.brokers[1]

        async def sampled(name: str, value: float) -> metrics.Values:
            """A scrape once the metric has this value."""
            while True:
                values = await metrics.scrape(broker)
                if metrics.of(values, name) == value:
                    return values

        def lag(values: metrics.Values) -> float:
            name = "kafka_cluster_partition_laststableoffsetlag"
            return metrics.of(values, name, topic="t", partition="0")

        late = f"{REPLICAS}_partitionswithlatetransactionscount"
        longest_ms = 60_000 + http_service.LATE_TRANSACTION_MS
        assert await producer.add(0) == [E.NONE]
        now_ms = broker.clock()
        assert await producer.produce(b"a", timestamp_ms=now_ms - longest_ms + 60_000) is E.NONE
        values = await sampled(f"{REPLICAS}_produceridcount", 1)
        assert metrics.of(values, late) == 0, "not late yet"
        assert await producer.produce(b"b", timestamp_ms=now_ms - longest_ms - 1) is E.NONE
        assert lag(await sampled(late, 1)) == 2
        await sampled("odradek_transactions_open", 1)
        assert await producer.end(is_commit=False) is E.NONE
        await producer.settle()
        assert lag(await sampled(late, 0)) == 0


async def test_markers_are_answered_for_every_partition(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        connection = await made.connect(1)

        def marker(epoch: int, coordinator_epoch: int, *partitions: int) -> WritableTxnMarker:
            return WritableTxnMarker(
                producer_id=7,
                producer_epoch=epoch,
                transaction_result=True,
                topics=[WritableTxnMarkerTopic(name="t", partition_indexes=list(partitions))],
                coordinator_epoch=coordinator_epoch,
            )

        async def codes(*markers: WritableTxnMarker, version: int = 0) -> dict[int, int]:
            request = WriteTxnMarkersRequest(markers=list(markers))
            response = await connection.request(request, version)
            (result,) = response.markers
            return {
                one.partition_index: one.error_code
                for topic in result.topics
                for one in topic.partitions
            }

        assert await codes(marker(1, 4, 0), marker(1, 4, 9)) == {
            0: E.NONE,
            9: E.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert await codes(marker(1, 4, 0), version=1) == {0: E.NONE}, "repeated"
        assert await codes(marker(0, 4, 0)) == {0: E.INVALID_PRODUCER_EPOCH}
        assert await codes(marker(1, 3, 0)) == {0: E.TRANSACTION_COORDINATOR_FENCED}


async def test_offsets_in_a_transaction(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        producer = await Transactional.open(made)
        await accepted(producer.connection, FindCoordinatorRequest(key="g"), 3)
        assert await producer.commit_offset(5) is E.INVALID_TXN_STATE, "the group was not added"
        assert await producer.commit_offset(5, version=4) is E.TRANSACTION_ABORTABLE
        assert await producer.add_offsets("g") is E.NONE
        assert await producer.commit_offset(5) is E.NONE
        assert await producer.committed() == (E.UNSTABLE_OFFSET_COMMIT, -1)
        assert await producer.committed(require_stable=False) == (E.NONE, -1)
        assert await producer.end(True) is E.NONE
        await producer.settle()
        assert await producer.committed() == (E.NONE, 5)


async def test_listing_and_describing(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create_topic("t")
        producer = await Transactional.open(made)
        await producer.add(0)
        connection = producer.connection
        await until(lambda: not made.brokers[1].transactions.storage.is_loading)
        request = ListTransactionsRequest(
            state_filters=["Ongoing", "Strange"], producer_id_filters=[], duration_filter=-1
        )
        response = await connection.request(request, 1)
        assert response.unknown_state_filters == ["Strange"]
        (found,) = response.transaction_states
        assert (found.transactional_id, found.transaction_state) == ("id", "Ongoing")
        transaction = made.brokers[1].transactions.describe("id")
        assert not (await producer.init(id="other")).error_code
        producer_id = found.producer_id

        async def shown(version: int = 1, **filters: Any) -> list[tuple[str, str]]:
            response = await connection.request(ListTransactionsRequest(**filters), version)
            assert not response.error_code
            return sorted(
                (each.transactional_id, each.transaction_state)
                for each in response.transaction_states
            )

        ongoing, other = ("id", "Ongoing"), ("other", "Empty")
        await until(lambda: not made.brokers[1].transactions.storage.is_loading)
        assert await shown() == await shown(version=0) == [ongoing, other]
        assert await shown(producer_id_filters=[producer_id]) == [ongoing]
        assert await shown(producer_id_filters=[producer_id, producer_id + 1]) == [ongoing, other]
        assert await shown(producer_id_filters=[producer_id], state_filters=["Empty"]) == []
        assert await shown(state_filters=["Strange"]) == []
        assert await shown(state_filters=["Ongoing"], duration_filter=3_600_000) == []
        transaction.started_ms -= 3_700_000
        assert await shown(state_filters=["Ongoing"], duration_filter=3_600_000) == [ongoing]
        transaction.pending = TransactionState.DEAD
        assert await shown() == [other], "expiring"
        transaction.pending = None
        describing = DescribeTransactionsRequest(transactional_ids=["id", "", "unknown"])
        described = await connection.request(describing, 0)
        known, *others = described.transaction_states
        assert (known.transaction_state, known.transaction_timeout_ms) == ("Ongoing", 60_000)
        assert [(each.topic, each.partitions) for each in known.topics] == [("t", [0])]
        assert [each.error_code for each in others] == [
            E.INVALID_REQUEST,
            E.TRANSACTIONAL_ID_NOT_FOUND,
        ]
