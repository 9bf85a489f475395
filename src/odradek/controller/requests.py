"""Control requests: what an operation wants told to the brokers, gathered and sent as one batch.

Coalescing, docs/spec/controller-and-replication.md section 4.9. Per broker and partition the last
word wins, except that "is new" and "delete" stick once said. Whatever goes into a LeaderAndIsr also
goes into the UpdateMetadata of every broker. All brokers get the same partitions in UpdateMetadata,
so these are built once. They go out in the order LeaderAndIsr, UpdateMetadata, StopReplica, to
registered brokers only.

A batch that is opened while it still holds something means that an operation broke off between
deciding and telling. The store then knows more than the brokers do, and the only cure is to take
office anew.
"""

from collections.abc import Callable, Collection, Iterable

from odradek.controller import leadership as leaderships
from odradek.controller.assignment import ReplicaAssignment
from odradek.controller.context import ControllerContext, Partition
from odradek.controller.journal import EntryKind, Journal
from odradek.controller.leadership import Leadership
from odradek.store.payloads import SECURITY_PROTOCOLS
from odradek.wire.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from odradek.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from odradek.wire.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from odradek.wire.topics import TopicPartition

ControlRequest = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
Send = Callable[[int, ControlRequest], None]

# What a partition's replicas are told: leadership, assignment, and whether the replica is new.
_Told = tuple[Leadership, ReplicaAssignment, bool]


class BatchNotEmpty(Exception):
    """An earlier operation broke off before its requests were sent."""


class RequestBatch:
    """Gathers the control requests of one operation. `send` takes each finished request."""

    def __init__(
        self,
        controller_id: int,
        context: ControllerContext,
        *,
        listener: str,
        send: Send,
        journal: Journal,
    ) -> None:
        self._controller_id = controller_id
        self._context = context
        self._listener = listener
        self._send = send
        self._journal = journal
        self._leader_and_isr: dict[int, dict[TopicPartition, _Told]] = {}
        # (leader epoch when it was asked for, whether to delete)
        self._stop: dict[int, dict[TopicPartition, tuple[int, bool]]] = {}
        self._metadata_brokers: set[int] = set()
        self._metadata: dict[TopicPartition, Partition] = {}

    @property
    def is_empty(self) -> bool:
        return not (self._leader_and_isr or self._stop or self._metadata_brokers)

    def open(self) -> None:
        if not self.is_empty:
            raise BatchNotEmpty("control requests of an earlier operation were not sent")

    # Gathering

    def add_leader_and_isr(
        self, broker_ids: Iterable[int], partition: Partition, *, is_new: bool
    ) -> None:
        """Tell these brokers who leads, as the context has it now; and everybody, as metadata."""
        assert partition.leadership is not None, f"{partition.key} has no leader to tell of"
        key = partition.key
        told: _Told = (partition.leadership, partition.assignment, is_new)
        for broker_id in broker_ids:
            if broker_id < 0 or self._context.has_left(key, broker_id):
                continue
            to_broker = self._leader_and_isr.get(broker_id)
            if to_broker is None:
                to_broker = self._leader_and_isr[broker_id] = {}
            earlier = to_broker.get(key)
            if earlier is not None and earlier[2] and not is_new:
                to_broker[key] = (told[0], told[1], True)
            else:
                to_broker[key] = told
        self._metadata[key] = partition
        self._metadata_brokers.update(self._context.brokers)

    def add_stop_replica(self, broker_id: int, key: TopicPartition, *, delete: bool) -> None:
        if broker_id < 0:
            return
        to_broker = self._stop.setdefault(broker_id, {})
        earlier = to_broker.get(key)
        delete = delete or (earlier is not None and earlier[1])
        to_broker[key] = (self._context.leader_epoch_for_stop(key), delete)

    def add_update_metadata(
        self, broker_ids: Iterable[int], partitions: Iterable[Partition] = ()
    ) -> None:
        """Tell these brokers who is alive, and the state of these partitions."""
        self._metadata_brokers.update(broker_id for broker_id in broker_ids if broker_id >= 0)
        for partition in partitions:
            self._metadata[partition.key] = partition

    # Sending

    def send(self) -> None:
        """Hand all requests over and be empty again."""
        self._send_leader_and_isr()
        self._send_update_metadata()
        self._send_stop_replica()

    def _send_leader_and_isr(self) -> None:
        built: dict[tuple[int, int, bool], LeaderAndIsrPartitionState] = {}
        for broker_id, told in sorted(self._leader_and_isr.items()):
            broker = self._context.brokers.get(broker_id)
            if broker is None:
                continue
            topics: dict[str, list[LeaderAndIsrPartitionState]] = {}
            leaders: set[int] = set()
            for key, (leadership, assignment, is_new) in told.items():
                # The same words to several brokers are built once.
                name = (id(leadership), id(assignment), is_new)
                state = built.get(name)
                if state is None:
                    state = built[name] = _partition_state(key, leadership, assignment, is_new)
                leaders.add(leadership.leader)
                topics.setdefault(key.topic, []).append(state)
            request = LeaderAndIsrRequest(
                controller_id=self._controller_id,
                controller_epoch=self._context.epoch,
                broker_epoch=broker.epoch,
                topic_states=[
                    LeaderAndIsrTopicState(topic_name=topic, partition_states=states)
                    for topic, states in topics.items()
                ],
                live_leaders=self._live_leaders(leaders),
            )
            self._journal.record(
                EntryKind.REQUEST, after="LeaderAndIsr", broker=broker_id, partitions=tuple(told)
            )
            self._send(broker_id, request)
        self._leader_and_isr.clear()

    def _live_leaders(self, leaders: Collection[int]) -> list[LeaderAndIsrLiveLeader]:
        found = []
        for broker in self._context.brokers.values():
            endpoint = broker.endpoint(self._listener)
            if broker.id in leaders and endpoint is not None:
                found.append(
                    LeaderAndIsrLiveLeader(
                        broker_id=broker.id, host_name=endpoint.host, port=endpoint.port
                    )
                )
        return found

    def _send_update_metadata(self) -> None:
        brokers = sorted(self._metadata_brokers & self._context.brokers.keys())
        if brokers:
            topics: dict[str, list[UpdateMetadataPartitionState]] = {}
            for partition in self._metadata.values():
                if partition.leadership is not None:
                    topics.setdefault(partition.key.topic, []).append(self._metadata_of(partition))
            topic_states = [
                UpdateMetadataTopicState(topic_name=topic, partition_states=states)
                for topic, states in topics.items()
            ]
            live_brokers = [
                _live_broker(broker.id, broker.rack, broker.endpoints)
                for broker in self._context.brokers.values()
            ]
            to = ",".join(map(str, brokers))
            self._journal.record(
                EntryKind.REQUEST,
                after=f"UpdateMetadata to brokers {to}",
                partitions=tuple(self._metadata),
            )
            for broker_id in brokers:
                self._send(
                    broker_id,
                    UpdateMetadataRequest(
                        controller_id=self._controller_id,
                        controller_epoch=self._context.epoch,
                        broker_epoch=self._context.brokers[broker_id].epoch,
                        topic_states=topic_states,
                        live_brokers=live_brokers,
                    ),
                )
        self._metadata_brokers.clear()
        self._metadata.clear()

    def _metadata_of(self, partition: Partition) -> UpdateMetadataPartitionState:
        leadership = partition.leadership
        assert leadership is not None
        key, replicas = partition.key, partition.assignment.replicas
        deleting = self._context.is_queued_for_deletion(key.topic)
        return UpdateMetadataPartitionState(
            partition_index=key.partition,
            controller_epoch=leadership.controller_epoch,
            leader=leaderships.LEADER_DURING_DELETE if deleting else leadership.leader,
            leader_epoch=leaderships.EPOCH_DURING_DELETE if deleting else leadership.leader_epoch,
            isr=list(leadership.isr),
            zk_version=leadership.partition_epoch,
            replicas=list(replicas),
            offline_replicas=[
                replica for replica in replicas if not self._context.is_replica_online(key, replica)
            ],
        )

    def _send_stop_replica(self) -> None:
        for broker_id, stopped in sorted(self._stop.items()):
            broker = self._context.brokers.get(broker_id)
            if broker is None:
                continue
            topics: dict[str, list[StopReplicaPartitionState]] = {}
            for key, (leader_epoch, delete) in stopped.items():
                topics.setdefault(key.topic, []).append(
                    StopReplicaPartitionState(
                        partition_index=key.partition,
                        leader_epoch=leader_epoch,
                        delete_partition=delete,
                    )
                )
            self._journal.record(
                EntryKind.REQUEST, after="StopReplica", broker=broker_id, partitions=tuple(stopped)
            )
            self._send(
                broker_id,
                StopReplicaRequest(
                    controller_id=self._controller_id,
                    controller_epoch=self._context.epoch,
                    broker_epoch=broker.epoch,
                    topic_states=[
                        StopReplicaTopicState(topic_name=topic, partition_states=states)
                        for topic, states in topics.items()
                    ],
                ),
            )
        self._stop.clear()


def _partition_state(
    key: TopicPartition, leadership: Leadership, assignment: ReplicaAssignment, is_new: bool
) -> LeaderAndIsrPartitionState:
    return LeaderAndIsrPartitionState(
        partition_index=key.partition,
        controller_epoch=leadership.controller_epoch,
        leader=leadership.leader,
        leader_epoch=leadership.leader_epoch,
        isr=list(leadership.isr),
        partition_epoch=leadership.partition_epoch,
        replicas=list(assignment.replicas),
        adding_replicas=list(assignment.adding),
        removing_replicas=list(assignment.removing),
        is_new=is_new,
    )


def _live_broker(
    broker_id: int, rack: str | None, endpoints: Iterable[tuple[str, int, str, str]]
) -> UpdateMetadataBroker:
    return UpdateMetadataBroker(
        id=broker_id,
        endpoints=[
            UpdateMetadataEndpoint(
                port=port,
                host=host,
                listener=listener,
                security_protocol=SECURITY_PROTOCOLS.index(protocol),
            )
            for host, port, listener, protocol in endpoints
        ],
        rack=rack,
    )
