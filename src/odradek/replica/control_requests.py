"""Control requests, from the controller to a broker: LeaderAndIsr, StopReplica, UpdateMetadata.

docs/spec/controller-and-replication.md sections 4.9 (receiving side), 5.1 and 5.6. A LeaderAndIsr
is decided first, over values (control_decisions.py), and then applied.

Rules
1. A request for an earlier incarnation of this broker, or from an earlier controller, changes
   nothing and is answered with STALE_BROKER_EPOCH or STALE_CONTROLLER_EPOCH.
2. A partition takes a state only with a leader epoch higher than the one it has.
3. A follower needs to know where its leader is. If the leader is not among the live brokers yet,
   only the log is made, and the state waits: the UpdateMetadata that names the leader completes it.
4. A replica that finds at load that it has fewer records than it had reported as committed does not
   become leader (KIP-966): it answers KAFKA_STORAGE_ERROR, the controller takes it for offline, and
   electing it, or another, needs an unclean election. As a follower it is welcome, and once it has
   caught up it is as good as any.
5. A partition that was moved away while this broker was paused or disconnected is never stopped by
   the controller, which has forgotten that it was here. The metadata shows it: a later epoch, and
   replicas without this broker. It is released then, and clients that still ask look elsewhere.
6. Its log is set aside when the topic was deleted and created again (`STALE_LOGS`).
7. A state at the leader epoch that is known already can still bring the topic's id, or take it
   back: so a controller that was upgraded gives ids to partitions that nothing else happens to.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from uuid import UUID

from odradek.log.config import LogConfig
from odradek.replica.cluster_metadata import ClusterMetadata
from odradek.replica.control_decisions import (
    AwaitLeader,
    Decision,
    Follow,
    ForgetId,
    Lead,
    LearnId,
    LocalFacts,
    LogHere,
    Refuse,
    SetAside,
    decide,
    is_stale_log,
    must_not_lead,
)
from odradek.replica.follower.role import FollowerRole
from odradek.replica.hosted_partitions import HostedPartitions
from odradek.replica.partition import Partition
from odradek.replica.replica_logs import ReplicaLogs
from odradek.replica.role_changes import RoleChanges
from odradek.store.payloads import EPOCH_DURING_DELETE, NO_EPOCH, NO_LEADER
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from odradek.wire.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from odradek.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from odradek.wire.topic_ids import NO_TOPIC_ID, format_topic_id
from odradek.wire.topics import TopicPartition, group_by_topic, is_legal_topic_name

__all__ = ["ControlRequests", "TopicConfigs"]

logger = logging.getLogger(__name__)

EPOCH_UNKNOWN = -1
TOPIC_IDS_FROM_VERSION = 5

TopicIds = Mapping[str, UUID]
States = dict[TopicPartition, LeaderAndIsrPartitionState]
Errors = dict[TopicPartition, ErrorCode]
TopicConfigs = Callable[[Collection[str]], Awaitable[Mapping[str, LogConfig]]]


class ControlRequests:
    """Applies control requests to the partitions of one broker."""

    def __init__(
        self,
        broker_id: int,
        cluster: ClusterMetadata,
        partitions: HostedPartitions,
        logs: ReplicaLogs,
        roles: RoleChanges,
        topic_configs: TopicConfigs,
        *,
        keeps_topic_ids: bool = True,
    ) -> None:
        """`topic_configs` reads the settings of topics, from the store, before a log is made.
        Without `keeps_topic_ids` those of requests are passed over: partitions go by name."""
        self._broker_id = broker_id
        self._cluster = cluster
        self._partitions = partitions
        self._logs = logs
        self._roles = roles
        self._topic_configs = topic_configs
        self._keeps_topic_ids = keeps_topic_ids
        # Set once the broker has registered: requests for an earlier incarnation are refused by it.
        self.broker_epoch = -1
        # That of the latest controller that this broker has heard of.
        self.controller_epoch = 0
        # Called with partitions that were deleted, here or elsewhere.
        self.deletion_listeners: list[Callable[[list[TopicPartition]], None]] = []
        # Called when metadata has come: brokers and the controller may be elsewhere now.
        self.metadata_listeners: list[Callable[[], None]] = []
        # States whose leader is not among the live brokers yet.
        self._awaiting_leader: dict[TopicPartition, tuple[LeaderAndIsrPartitionState, UUID]] = {}

    def _stale(self, broker_epoch: int, controller_epoch: int) -> ErrorCode:
        if broker_epoch != EPOCH_UNKNOWN and broker_epoch < self.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        return ErrorCode.NONE

    # LeaderAndIsr

    async def leader_and_isr(
        self, request: LeaderAndIsrRequest, version: int = 4
    ) -> LeaderAndIsrResponse:
        """Settings are read first: from the first check to the last change nothing waits."""
        states = _states(request)
        ids = _topic_ids(request) if self._keeps_topic_ids else {}
        topics = {tp.topic for tp, state in states.items() if self._needs_config(tp, state, ids)}
        illegal = {topic for topic in topics if not is_legal_topic_name(topic)}
        configs = await self._topic_configs(topics - illegal) if topics - illegal else {}
        error = self._stale(request.broker_epoch, request.controller_epoch)
        if error != ErrorCode.NONE:
            logger.warning(
                "LeaderAndIsr from controller %d refused: %s", request.controller_id, error.name
            )
            return _response(request, version, error, dict.fromkeys(states, error))
        self.controller_epoch = request.controller_epoch
        decisions = decide(
            self._broker_id,
            {tp: state for tp, state in states.items() if tp.topic not in illegal},
            self._facts,
            is_alive=self._cluster.is_alive,
            names_incarnation=request.broker_epoch != EPOCH_UNKNOWN,
            topic_ids=ids,
        )
        errors = self._apply(decisions, configs, ids)
        if illegal:
            # It would become a path: a controller that sends it is none, or is damaged.
            logger.error("LeaderAndIsr with topics that cannot exist: %s", sorted(illegal))
            code = ErrorCode.INVALID_TOPIC_EXCEPTION
            errors |= {tp: code for tp in states if tp.topic in illegal}
        return _response(request, version, ErrorCode.NONE, errors)

    def _facts(self, tp: TopicPartition) -> LocalFacts:
        partition = self._partitions.get(tp)
        log = self._logs.get(tp)
        if log is None:
            log_here = LogHere.NONE
        elif partition is None:
            log_here = LogHere.LOADED
        else:
            log_here = LogHere.RELEASED if partition.moved_away else LogHere.IN_USE
        return LocalFacts(
            log_here,
            None if log is None else log.epochs.latest_epoch,
            NO_EPOCH if partition is None else partition.leader_epoch,
            tp in self._partitions.offline,
            NO_TOPIC_ID if log is None else log.metadata.topic_id,
            partition is not None and isinstance(partition.role, FollowerRole),
        )

    def _needs_config(
        self, tp: TopicPartition, state: LeaderAndIsrPartitionState, ids: TopicIds
    ) -> bool:
        """Whether a log will be made for this partition."""
        facts = self._facts(tp)
        topic_id = ids.get(tp.topic, NO_TOPIC_ID)
        return facts.log is LogHere.NONE or is_stale_log(self._broker_id, state, facts, topic_id)

    def _apply(
        self, decisions: Sequence[Decision], configs: Mapping[str, LogConfig], ids: TopicIds
    ) -> Errors:
        errors: Errors = {}
        opened: list[Partition] = []
        led: list[Partition] = []
        followed: list[Partition] = []
        for decision in decisions:
            if isinstance(decision, SetAside):
                self._set_aside(decision.tp)
            elif isinstance(decision, Refuse):
                errors[decision.tp] = self._refuse(decision, ids)
            elif isinstance(decision, LearnId | ForgetId):
                errors[decision.tp] = self._change_id(decision, ids)
        self._roles.fetchers.remove(each.tp for each in decisions if isinstance(each, Lead))
        for decision in decisions:
            if not isinstance(decision, Lead | Follow | AwaitLeader):
                continue
            topic_id = ids.get(decision.tp.topic, NO_TOPIC_ID)
            partition = self._opened(decision.tp, decision.state, configs, topic_id)
            if partition is None:
                errors[decision.tp] = ErrorCode.KAFKA_STORAGE_ERROR
                continue
            opened.append(partition)
            errors[decision.tp] = ErrorCode.NONE
            if isinstance(decision, Lead):
                errors[decision.tp] = self._lead(partition, decision.state, led)
            elif isinstance(decision, Follow):
                self._follow(partition, decision.state, topic_id, followed)
            else:
                self._await_leader(partition, decision.state, topic_id)
        self._roles.follow(followed)
        opened = [each for each in opened if not each.local_log.offline]
        for partition in opened:
            partition.moved_away = False
            self._roles.moves.resume(partition)
        if any(partition.lost_tail for partition in opened):
            # Now, or a crash hides the loss; and only now, with every partition of the request.
            self._logs.checkpoints.write()
        self._logs.checkpoints.start()
        self._roles.announce(led, followed)
        return errors

    def _refuse(self, refusal: Refuse, ids: TopicIds) -> ErrorCode:
        if refusal.error is ErrorCode.INCONSISTENT_TOPIC_ID:
            log = self._logs.get(refusal.tp)
            logger.warning(
                "%s: refused, its topic has id %s and the log in %s is of id %s. If the topic was"
                " deleted and created again, stop this broker, move the directory away, start it",
                refusal.tp,
                format_topic_id(ids[refusal.tp.topic]),
                None if log is None else log.directory,
                None if log is None else format_topic_id(log.metadata.topic_id),
            )
        return refusal.error

    def _change_id(self, change: LearnId | ForgetId, ids: TopicIds) -> ErrorCode:
        """The partition stays what it is; only what its topic is called by changes."""
        partition = self._partitions[change.tp]
        topic_id = ids.get(change.tp.topic, NO_TOPIC_ID)
        self._logs.assign_topic_id(partition.local_log, topic_id)
        if isinstance(partition.role, FollowerRole):
            partition.role.topic_id = topic_id
            self._roles.fetchers.topic_id_changed(change.tp)
        return ErrorCode.NONE

    def _set_aside(self, tp: TopicPartition) -> None:
        """If the disk fails at it, the partition is offline from here on."""
        released = self._partitions.pop(tp, None)
        if released is not None:
            # Requests that came since it was released go to the new one from here on.
            released.release(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        try:
            self._logs.set_aside(tp)
        except KafkaError as error:
            logger.error("%s: cannot set its log aside, taken offline: %s", tp, error)
            self._roles.take_offline(tp)

    def _opened(
        self,
        tp: TopicPartition,
        state: LeaderAndIsrPartitionState,
        configs: Mapping[str, LogConfig],
        topic_id: UUID,
    ) -> Partition | None:
        """The partition with its log; None if it is offline."""
        if tp in self._partitions.offline:
            return None
        partition = self._partitions.host(tp)
        try:
            self._logs.open(partition, configs, is_new=state.is_new, topic_id=topic_id)
        except KafkaError as error:
            logger.error("%s: cannot open its log, taken offline: %s", tp, error)
            self._roles.take_offline(tp)
            return None
        return partition

    def _lead(
        self, partition: Partition, state: LeaderAndIsrPartitionState, led: list[Partition]
    ) -> ErrorCode:
        log = partition.local_log
        if must_not_lead(
            lost_tail=partition.lost_tail,
            replica_count=len(state.replicas),
            unclean_allowed=log.config.unclean_leader_election_enable or state.is_unclean,
        ):
            logger.error(
                "%s: refuses to lead in leader epoch %d: its log ends at %d, before offset %s that"
                " was committed; accept the loss with an unclean election",
                partition.tp,
                state.leader_epoch,
                log.end_offset,
                partition.replica.high_watermark_before_loss,
            )
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._awaiting_leader.pop(partition.tp, None)
        try:
            if partition.make_leader(state):
                led.append(partition)
        except KafkaError as error:
            # Its directory has failed: with that it goes offline, and listeners are told.
            logger.error("%s: cannot become leader: %s", partition.tp, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def _follow(
        self,
        partition: Partition,
        state: LeaderAndIsrPartitionState,
        topic_id: UUID,
        followed: list[Partition],
    ) -> None:
        self._awaiting_leader.pop(partition.tp, None)
        if partition.make_follower(state, topic_id):
            followed.append(partition)

    def _await_leader(
        self, partition: Partition, state: LeaderAndIsrPartitionState, topic_id: UUID
    ) -> None:
        tp = partition.tp
        partition.note_isr(state.isr)
        if state.leader == NO_LEADER:
            logger.info("%s: no leader in leader epoch %d", tp, state.leader_epoch)
        else:
            logger.warning(
                "%s: leader %d of leader epoch %d is not known yet, waiting for UpdateMetadata",
                tp,
                state.leader,
                state.leader_epoch,
            )
            self._awaiting_leader[tp] = state, topic_id

    # StopReplica

    def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        stops = _stops(request)
        error = self._stale(request.broker_epoch, request.controller_epoch)
        if error != ErrorCode.NONE:
            logger.warning(
                "StopReplica from controller %d refused: %s", request.controller_id, error.name
            )
            return _stopped(error, {})
        self.controller_epoch = request.controller_epoch
        errors = {tp: self._stop_error(tp, epoch) for tp, (epoch, _) in stops.items()}
        to_stop = [tp for tp, error in errors.items() if error == ErrorCode.NONE]
        self._roles.fetchers.remove(to_stop)
        stopped = []
        for tp in to_stop:
            partition = self._partitions.get(tp)
            if partition is not None:
                stopped.append(partition)
            try:
                errors[tp] = self._stop(tp, partition, delete=stops[tp][1])
            except Exception:
                # The controller tries this one again; the others of the request are stopped.
                logger.exception("%s: cannot be stopped", tp)
                errors[tp] = ErrorCode.UNKNOWN_SERVER_ERROR
        self._roles.announce([], stopped)
        return _stopped(ErrorCode.NONE, errors)

    def _stop_error(self, tp: TopicPartition, epoch: int) -> ErrorCode:
        if tp in self._partitions.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition = self._partitions.get(tp)
        if (
            partition is None
            or epoch in (EPOCH_UNKNOWN, EPOCH_DURING_DELETE)
            or epoch >= partition.leader_epoch
        ):
            return ErrorCode.NONE
        return ErrorCode.FENCED_LEADER_EPOCH

    def _stop(self, tp: TopicPartition, partition: Partition | None, *, delete: bool) -> ErrorCode:
        self._awaiting_leader.pop(tp, None)
        if partition is not None:
            partition.moved_away = False
            partition.release(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self._delete(tp) if delete else ErrorCode.NONE

    def _delete(self, tp: TopicPartition) -> ErrorCode:
        self._partitions.pop(tp, None)
        try:
            self._logs.delete(tp)
        except KafkaError as error:
            logger.error("%s: cannot be deleted, taken offline: %s", tp, error)
            self._roles.take_offline(tp)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    # UpdateMetadata

    def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        error = self._stale(request.broker_epoch, request.controller_epoch)
        if error != ErrorCode.NONE:
            logger.warning(
                "UpdateMetadata from controller %d refused: %s", request.controller_id, error.name
            )
            return UpdateMetadataResponse(error_code=error)
        self.controller_epoch = request.controller_epoch
        if deleted := self._cluster.update(request):
            for listener in self.deletion_listeners:
                listener(deleted)
        self._release_moved(request)
        self._follow_known_leaders()
        for changed in self.metadata_listeners:
            changed()
        return UpdateMetadataResponse(error_code=ErrorCode.NONE)

    def _release_moved(self, request: UpdateMetadataRequest) -> None:
        """Rule 5."""
        moved = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                partition = self._partitions.get(
                    TopicPartition(topic.topic_name, state.partition_index)
                )
                if (
                    partition is not None
                    and partition.role is not None
                    and partition.leader_epoch < state.leader_epoch
                    and self._broker_id not in state.replicas
                ):
                    logger.info(
                        "%s: moved to brokers %s by leader epoch %d, released here",
                        partition.tp,
                        list(state.replicas),
                        state.leader_epoch,
                    )
                    moved.append(partition)
        if moved:
            self._roles.fetchers.remove(partition.tp for partition in moved)
            for partition in moved:
                self._awaiting_leader.pop(partition.tp, None)
                partition.moved_away = True
                partition.release(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._roles.announce([], moved)

    def _follow_known_leaders(self) -> None:
        """Rule 3: complete the states whose leaders are among the live brokers by now."""
        followed: list[Partition] = []
        for tp, (state, topic_id) in list(self._awaiting_leader.items()):
            if not self._cluster.is_alive(state.leader):
                continue
            del self._awaiting_leader[tp]
            partition = self._partitions.get(tp)
            if partition is not None and state.leader_epoch > partition.leader_epoch:
                self._follow(partition, state, topic_id, followed)
        if followed:
            self._roles.follow(followed)
            self._roles.announce([], followed)


def _states(request: LeaderAndIsrRequest) -> States:
    states = {
        TopicPartition(topic.topic_name, state.partition_index): state
        for topic in request.topic_states
        for state in topic.partition_states
    }
    for state in request.ungrouped_partition_states:
        states[TopicPartition(state.topic_name, state.partition_index)] = state
    return states


def _topic_ids(request: LeaderAndIsrRequest) -> dict[str, UUID]:
    return {
        topic.topic_name: topic.topic_id
        for topic in request.topic_states
        if topic.topic_id != NO_TOPIC_ID
    }


def _stops(request: StopReplicaRequest) -> dict[TopicPartition, tuple[int, bool]]:
    """(leader epoch, delete) by partition, whatever the version of the request."""
    stops = {
        TopicPartition(topic.topic_name, state.partition_index): (
            state.leader_epoch,
            state.delete_partition,
        )
        for topic in request.topic_states
        for state in topic.partition_states
    }
    delete = request.delete_partitions
    for old in request.topics:
        for partition in old.partition_indexes:
            stops[TopicPartition(old.name, partition)] = (EPOCH_UNKNOWN, delete)
    for oldest in request.ungrouped_partitions:
        tp = TopicPartition(oldest.topic_name, oldest.partition_index)
        stops[tp] = (EPOCH_UNKNOWN, delete)
    return stops


def _response(
    request: LeaderAndIsrRequest,
    version: int,
    error: ErrorCode,
    errors: Mapping[TopicPartition, ErrorCode],
) -> LeaderAndIsrResponse:
    if version < TOPIC_IDS_FROM_VERSION:
        return LeaderAndIsrResponse(
            error_code=error,
            partition_errors=[
                LeaderAndIsrPartitionError(
                    topic_name=tp.topic, partition_index=tp.partition, error_code=code
                )
                for tp, code in errors.items()
            ],
        )
    by_topic = group_by_topic(
        (tp, LeaderAndIsrPartitionError(partition_index=tp.partition, error_code=code))
        for tp, code in errors.items()
    )
    return LeaderAndIsrResponse(
        error_code=error,
        topics=[
            LeaderAndIsrTopicError(
                topic_id=topic.topic_id, partition_errors=by_topic.get(topic.topic_name, [])
            )
            for topic in request.topic_states
        ],
    )


def _stopped(error: ErrorCode, errors: Mapping[TopicPartition, ErrorCode]) -> StopReplicaResponse:
    return StopReplicaResponse(
        error_code=error,
        partition_errors=[
            StopReplicaPartitionError(
                topic_name=tp.topic, partition_index=tp.partition, error_code=code
            )
            for tp, code in errors.items()
        ],
    )
