"""The control requests of one operation, collected per broker and sent as one batch.

Coalescing: docs/spec/controller-and-replication.md section 4.9. Per broker and partition the last
update wins, except that "is new" and "delete" stay set. Whatever goes into a LeaderAndIsr also goes
into the UpdateMetadata of every broker. All brokers get the same partitions in UpdateMetadata, so
these are built once. They go out in the order LeaderAndIsr, UpdateMetadata, StopReplica, to
registered brokers only.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from odradek.controller.assignment import ReplicaAssignment
from odradek.controller.context import ControllerContext, Partition
from odradek.store.payloads import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    SECURITY_PROTOCOLS,
    LeaderAndIsr,
)
from odradek.wire.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
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
from odradek.wire.protocol_version import ProtocolVersion
from odradek.wire.topics import TopicPartition, group_by_topic

ControlRequest = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


class ReplicaUpdate(NamedTuple):
    """What a LeaderAndIsr says of one partition."""

    state: LeaderAndIsr
    assignment: ReplicaAssignment
    is_new: bool
    is_unclean: bool


class ControlMessage(NamedTuple):
    """One decision on its way: the same words to one broker, or to many."""

    description: str
    broker_id: int | None  # None where many get it
    partitions: tuple[TopicPartition, ...]
    requests: list[tuple[int, ControlRequest]]


class RequestBatch:
    """Gathers the control requests of one operation. See `Term.control_requests`."""

    def __init__(
        self,
        controller_id: int,
        context: ControllerContext,
        listener: str,
        protocol: ProtocolVersion,
    ) -> None:
        self._controller_id = controller_id
        self._context = context
        self._listener = listener
        self._protocol = protocol
        self._leader_and_isr: dict[int, dict[TopicPartition, ReplicaUpdate]] = {}
        # (leader epoch when it was requested, whether to delete)
        self._stop: dict[int, dict[TopicPartition, tuple[int, bool]]] = {}
        self._metadata_brokers: set[int] = set()
        self._metadata: dict[TopicPartition, Partition] = {}

    @property
    def is_empty(self) -> bool:
        return not (self._leader_and_isr or self._stop or self._metadata_brokers)

    # Gathering

    def add_leader_and_isr(
        self,
        broker_ids: Iterable[int],
        partition: Partition,
        *,
        is_new: bool,
        is_unclean: bool = False,
    ) -> None:
        """Send these brokers the leader that the context has, and every broker as metadata."""
        assert partition.leader_and_isr is not None, f"{partition.tp} has no leader to announce"
        tp = partition.tp
        update = ReplicaUpdate(partition.leader_and_isr, partition.assignment, is_new, is_unclean)
        for broker_id in broker_ids:
            if broker_id < 0 or self._context.has_left(tp, broker_id):
                continue
            to_broker = self._leader_and_isr.get(broker_id)
            if to_broker is None:
                to_broker = self._leader_and_isr[broker_id] = {}
            earlier = to_broker.get(tp)
            if earlier is not None and earlier.is_new and not is_new:
                to_broker[tp] = update._replace(is_new=True)
            else:
                to_broker[tp] = update
        self._metadata[tp] = partition
        self._metadata_brokers.update(self._context.brokers)

    def add_stop_replica(self, broker_id: int, tp: TopicPartition, *, delete: bool) -> None:
        if broker_id < 0:
            return
        to_broker = self._stop.setdefault(broker_id, {})
        earlier = to_broker.get(tp)
        delete = delete or (earlier is not None and earlier[1])
        to_broker[tp] = (self._context.leader_epoch_for_stop(tp), delete)

    def add_update_metadata(
        self, broker_ids: Iterable[int], partitions: Iterable[Partition] = ()
    ) -> None:
        """Send these brokers the live brokers, and the state of these partitions."""
        self._metadata_brokers.update(broker_id for broker_id in broker_ids if broker_id >= 0)
        for partition in partitions:
            self._metadata[partition.tp] = partition

    # Building

    def build(self) -> Iterator[ControlMessage]:
        """All requests, in the order they must go out."""
        yield from self._build_leader_and_isr()
        yield from self._build_update_metadata()
        yield from self._build_stop_replica()

    def _build_leader_and_isr(self) -> Iterator[ControlMessage]:
        built: dict[tuple[int, int, bool, bool], LeaderAndIsrPartitionState] = {}
        for broker_id, updates in sorted(self._leader_and_isr.items()):
            broker = self._context.brokers.get(broker_id)
            if broker is None:
                continue
            topics: dict[str, list[LeaderAndIsrPartitionState]] = {}
            leaders: set[int] = set()
            for tp, update in updates.items():
                # The same state for several brokers is built once.
                name = (id(update.state), id(update.assignment), update.is_new, update.is_unclean)
                state = built.get(name)
                if state is None:
                    state = built[name] = self._partition_state(tp, update)
                leaders.add(update.state.leader)
                topics.setdefault(tp.topic, []).append(state)
            request = LeaderAndIsrRequest(
                controller_id=self._controller_id,
                controller_epoch=self._context.epoch,
                broker_epoch=broker.epoch,
                topic_states=[
                    LeaderAndIsrTopicState(
                        topic_name=topic,
                        topic_id=self._context.topic_ids.of(topic),
                        partition_states=states,
                    )
                    for topic, states in topics.items()
                ],
                live_leaders=self._live_leaders(leaders),
            )
            yield ControlMessage("LeaderAndIsr", broker_id, tuple(updates), [(broker_id, request)])

    def _partition_state(
        self, tp: TopicPartition, update: ReplicaUpdate
    ) -> LeaderAndIsrPartitionState:
        state, assignment = update.state, update.assignment
        recovering = state.recovering and self._protocol.writes_leader_recovery_state
        return LeaderAndIsrPartitionState(
            partition_index=tp.partition,
            controller_epoch=state.controller_epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=list(state.isr),
            partition_epoch=state.partition_epoch,
            replicas=list(assignment.replicas),
            adding_replicas=list(assignment.adding),
            removing_replicas=list(assignment.removing),
            is_new=update.is_new,
            leader_recovery_state=int(recovering),
            is_unclean=update.is_unclean,
        )

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

    def _build_update_metadata(self) -> Iterator[ControlMessage]:
        brokers = sorted(self._metadata_brokers & self._context.brokers.keys())
        if not brokers:
            return
        topics = group_by_topic(
            (partition.tp, self._metadata_of(partition))
            for partition in self._metadata.values()
            if partition.leader_and_isr is not None
        )
        topic_states = [
            UpdateMetadataTopicState(
                topic_name=topic,
                topic_id=self._context.topic_ids.of(topic),
                partition_states=states,
            )
            for topic, states in topics.items()
        ]
        live_brokers = [
            _live_broker(broker.id, broker.rack, broker.endpoints)
            for broker in self._context.brokers.values()
        ]
        requests: list[tuple[int, ControlRequest]] = [
            (
                broker_id,
                UpdateMetadataRequest(
                    controller_id=self._controller_id,
                    controller_epoch=self._context.epoch,
                    broker_epoch=self._context.brokers[broker_id].epoch,
                    topic_states=topic_states,
                    live_brokers=live_brokers,
                ),
            )
            for broker_id in brokers
        ]
        description = f"UpdateMetadata to brokers {','.join(map(str, brokers))}"
        yield ControlMessage(description, None, tuple(self._metadata), requests)

    def _metadata_of(self, partition: Partition) -> UpdateMetadataPartitionState:
        leader_and_isr = partition.leader_and_isr
        assert leader_and_isr is not None
        tp, replicas = partition.tp, partition.assignment.replicas
        deleting = self._context.is_queued_for_deletion(tp.topic)
        return UpdateMetadataPartitionState(
            partition_index=tp.partition,
            controller_epoch=leader_and_isr.controller_epoch,
            leader=LEADER_DURING_DELETE if deleting else leader_and_isr.leader,
            leader_epoch=EPOCH_DURING_DELETE if deleting else leader_and_isr.leader_epoch,
            isr=list(leader_and_isr.isr),
            zk_version=leader_and_isr.partition_epoch,
            replicas=list(replicas),
            offline_replicas=[
                replica
                for replica in replicas
                if not self._context.brokers.is_replica_online(tp, replica)
            ],
        )

    def _build_stop_replica(self) -> Iterator[ControlMessage]:
        for broker_id, stopped in sorted(self._stop.items()):
            broker = self._context.brokers.get(broker_id)
            if broker is None:
                continue
            topics = group_by_topic(
                (
                    tp,
                    StopReplicaPartitionState(
                        partition_index=tp.partition,
                        leader_epoch=leader_epoch,
                        delete_partition=delete,
                    ),
                )
                for tp, (leader_epoch, delete) in stopped.items()
            )
            request = StopReplicaRequest(
                controller_id=self._controller_id,
                controller_epoch=self._context.epoch,
                broker_epoch=broker.epoch,
                topic_states=[
                    StopReplicaTopicState(topic_name=topic, partition_states=states)
                    for topic, states in topics.items()
                ],
            )
            yield ControlMessage("StopReplica", broker_id, tuple(stopped), [(broker_id, request)])


def name_partitions(request: LeaderAndIsrRequest, response: LeaderAndIsrResponse) -> None:
    """Put names into an answer that has only topic ids (v5 and later). Ids that were not asked
    about are left out, as in Kafka."""
    names = {topic.topic_id: topic.topic_name for topic in request.topic_states}
    response.partition_errors += [
        LeaderAndIsrPartitionError(
            topic_name=names[topic.topic_id],
            partition_index=error.partition_index,
            error_code=error.error_code,
        )
        for topic in response.topics
        if topic.topic_id in names
        for error in topic.partition_errors
    ]


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
