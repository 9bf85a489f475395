"""What the controller tells a broker: LeaderAndIsr, StopReplica, UpdateMetadata.

docs/spec/controller-and-replication.md sections 4.9 (receiving side), 5.1 and 5.6.

Rules
1. A request for an earlier incarnation of this broker, or from an earlier controller, changes
   nothing and is answered with STALE_BROKER_EPOCH or STALE_CONTROLLER_EPOCH.
2. A partition takes a state only with a leader epoch higher than the one it has.
3. A follower needs to know where its leader is. If the leader is not among the live brokers yet,
   only the log is made, and the state waits: the UpdateMetadata that names the leader completes it.
4. A replica that finds at load that it has fewer records than it had told others were committed
   does not become leader (KIP-966): it answers KAFKA_STORAGE_ERROR, the controller takes it for
   offline, and electing it, or another, is left to whoever permits an unclean election. As a
   follower it is welcome, and once it has caught up it is as good as any.
5. A partition that was moved away while this broker was paused or cut off is never stopped by the
   controller, which has forgotten that it was here. The metadata says so: a later epoch, and
   replicas without us. We give it up then, and clients that still ask us look elsewhere.
6. Nobody deletes such a log either. Once the topic is deleted and made again, it is a log of
   another partition: the same name, the same epochs, other records. So a log that is here before
   the first word about its partition, or was given up, is set aside, and the partition begins anew
   - if the controller calls our replica new, and it is not in the ISR. All that is committed is
     elsewhere; if the log was good, copying it again costs only time.
   - if the controller calls it new at leader epoch 0. Then the partition is new, and its ISR is
     whoever was alive. This is said to the incarnation that was there when the partition was made,
     before it has a record: a later one, or one that has a new controller, hears first of all
     where it stands, without isNew.
   - if it has records of a later leader epoch than the partition's, and is not in the ISR.
   It is kept while nobody leads, for it may be the best that is left, and where the request does
   not say which incarnation it means. It is renamed (`-stray`), not deleted: to whoever has lost
   the store and makes the topics again over their logs, the controller says the same.
"""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from odradek.log.config import LogConfig
from odradek.log.log import Log
from odradek.replica.metadata_cache import NO_LEADER
from odradek.replica.partition import Partition
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
from odradek.wire.topics import TopicPartition

if TYPE_CHECKING:
    from odradek.replica.manager import ReplicaManager, TopicConfigs

__all__ = ["StateChanges"]

logger = logging.getLogger(__name__)

EPOCH_UNKNOWN = -1
EPOCH_DURING_DELETE = -2
TOPIC_IDS_FROM_VERSION = 5

States = dict[TopicPartition, LeaderAndIsrPartitionState]
Errors = dict[TopicPartition, ErrorCode]


class StateChanges:
    """Applies control requests to the partitions of one replica manager."""

    def __init__(self, manager: "ReplicaManager", topic_configs: "TopicConfigs") -> None:
        self._manager = manager
        self._topic_configs = topic_configs
        self.controller_epoch = 0
        # States whose leader is not among the live brokers yet, and the settings for their logs.
        self._postponed: States = {}

    def _stale(self, broker_epoch: int, controller_epoch: int) -> ErrorCode:
        if broker_epoch != -1 and broker_epoch < self._manager.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        return ErrorCode.NONE

    # LeaderAndIsr

    async def leader_and_isr(
        self, request: LeaderAndIsrRequest, version: int
    ) -> LeaderAndIsrResponse:
        """Settings are read first: from the first check to the last change nothing waits."""
        states = _states(request)
        topics = {
            of.topic
            for of, state in states.items()
            if self._manager.logs.get(of) is None or self._is_leftover(of, state)
        }
        configs = await self._topic_configs(topics) if topics else {}
        error = self._stale(request.broker_epoch, request.controller_epoch)
        if error != ErrorCode.NONE:
            logger.warning("LeaderAndIsr of controller %d: %s", request.controller_id, error.name)
            return _response(request, version, error, dict.fromkeys(states, error))
        self.controller_epoch = request.controller_epoch
        if request.broker_epoch != EPOCH_UNKNOWN:
            self._set_leftovers_aside(states)
        errors: Errors = {}
        to_lead: dict[Partition, LeaderAndIsrPartitionState] = {}
        to_follow: dict[Partition, LeaderAndIsrPartitionState] = {}
        for of, state in states.items():
            partition = self._acceptable(of, state, errors)
            if partition is not None:
                leads = state.leader == self._manager.broker_id
                (to_lead if leads else to_follow)[partition] = state
        led = self._make_leaders(to_lead, configs, errors)
        followed = self._make_followers(to_follow, configs, errors)
        for partition in (*to_lead, *to_follow):
            partition.moved_away = False
            self._manager.mover.resume(partition)
        if any(partition.lost_tail for partition in (*to_lead, *to_follow)):
            # Now, or a crash makes us forget; and only now, with every partition of the request.
            self._manager.checkpoint_high_watermarks()
        self._manager.begin_checkpoints()
        self._manager.roles_changed(led, followed)
        return _response(request, version, ErrorCode.NONE, errors)

    def _set_leftovers_aside(self, states: States) -> None:
        """Rule 6. Where the disk will not let it go, the partition is offline from here on."""
        for of, state in states.items():
            if not self._is_leftover(of, state):
                continue
            given_up = self._manager.partitions.pop(of, None)
            if given_up is not None:
                # Whoever has asked since it was given up asks the new one from here on.
                given_up.release(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            try:
                self._manager.set_log_aside(of)
            except KafkaError as error:
                logger.error("cannot set the log of %s aside: %s", of, error)
                self._manager.mark_offline(of)

    def _is_leftover(self, of: TopicPartition, state: LeaderAndIsrPartitionState) -> bool:
        manager = self._manager
        log = manager.logs.get(of)
        if log is None or of in manager.offline or manager.broker_id not in state.replicas:
            return False
        partition = manager.partitions.get(of)
        if partition is not None and not (state.is_new and partition.moved_away):
            return False
        if manager.broker_id in state.isr:
            return state.is_new and state.leader_epoch == 0
        latest = log.epochs.latest_epoch
        return state.leader != NO_LEADER and (
            state.is_new or (latest is not None and latest > state.leader_epoch)
        )

    def _acceptable(
        self, of: TopicPartition, state: LeaderAndIsrPartitionState, errors: Errors
    ) -> Partition | None:
        manager = self._manager
        if of in manager.offline:
            errors[of] = ErrorCode.KAFKA_STORAGE_ERROR
            return None
        partition = manager.partitions.get(of)
        if partition is None:
            partition = manager.partitions[of] = Partition(of, manager)
        if state.leader_epoch <= partition.leader_epoch:
            errors[of] = ErrorCode.STALE_CONTROLLER_EPOCH
            return None
        if manager.broker_id not in state.replicas:
            errors[of] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if partition.log is None:
                del manager.partitions[of]
            return None
        return partition

    def _make_leaders(
        self,
        states: Mapping[Partition, LeaderAndIsrPartitionState],
        configs: Mapping[str, LogConfig],
        errors: Errors,
    ) -> list[Partition]:
        manager = self._manager
        manager.fetchers.remove(partition.topic_partition for partition in states)
        led = []
        for partition, state in states.items():
            of = partition.topic_partition
            log = self._log(partition, state, configs, errors)
            if log is None:
                continue
            if self._must_not_lead(partition, state, log):
                logger.error(
                    "%s ends at %d, before what was committed: it lost records, and does not lead"
                    " unless unclean.leader.election.enable says so",
                    of,
                    log.end_offset,
                )
                errors[of] = ErrorCode.KAFKA_STORAGE_ERROR
                continue
            self._postponed.pop(of, None)
            if partition.make_leader(state, log):
                led.append(partition)
            errors[of] = ErrorCode.NONE
        return led

    @staticmethod
    def _must_not_lead(partition: Partition, state: LeaderAndIsrPartitionState, log: Log) -> bool:
        """Rule 4. With no other replica there is nobody to lose anything to."""
        return (
            partition.lost_tail
            and len(state.replicas) > 1
            and not log.config.unclean_leader_election_enable
        )

    def _make_followers(
        self,
        states: Mapping[Partition, LeaderAndIsrPartitionState],
        configs: Mapping[str, LogConfig],
        errors: Errors,
    ) -> list[Partition]:
        manager = self._manager
        followed = []
        for partition, state in states.items():
            of = partition.topic_partition
            log = self._log(partition, state, configs, errors)
            if log is None:
                continue
            errors[of] = ErrorCode.NONE
            if not manager.cache.is_alive(state.leader):
                partition.log = log
                partition.note_isr(state.isr)
                if state.leader == NO_LEADER:
                    logger.info("%s has no leader in epoch %d", of, state.leader_epoch)
                else:
                    logger.warning("%s waits: leader %d is not known yet", of, state.leader)
                    self._postponed[of] = state
                continue
            self._postponed.pop(of, None)
            if partition.make_follower(state, log):
                followed.append(partition)
        manager.fetchers.remove(partition.topic_partition for partition in followed)
        manager.fetchers.add(followed)
        return followed

    def _log(
        self,
        partition: Partition,
        state: LeaderAndIsrPartitionState,
        configs: Mapping[str, LogConfig],
        errors: Errors,
    ) -> Log | None:
        of = partition.topic_partition
        try:
            return partition.log or self._manager.open_log(partition, configs, is_new=state.is_new)
        except KafkaError as error:
            logger.error("no log for %s: %s", of, error)
            errors[of] = ErrorCode.KAFKA_STORAGE_ERROR
            self._manager.mark_offline(of)
            return None

    # StopReplica

    def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        stops = _stops(request)
        error = self._stale(request.broker_epoch, request.controller_epoch)
        if error != ErrorCode.NONE:
            logger.warning("StopReplica of controller %d: %s", request.controller_id, error.name)
            return _stopped(error, {})
        self.controller_epoch = request.controller_epoch
        errors = {of: self._stop_error(of, epoch) for of, (epoch, _) in stops.items()}
        to_stop = [of for of, error in errors.items() if error == ErrorCode.NONE]
        self._manager.fetchers.remove(to_stop)
        stopped = []
        for of in to_stop:
            partition = self._manager.partitions.get(of)
            if partition is not None:
                stopped.append(partition)
            try:
                errors[of] = self._stop(of, partition, delete=stops[of][1])
            except Exception:
                # The controller tries this one again; the others of the request are stopped.
                logger.exception("cannot stop %s", of)
                errors[of] = ErrorCode.UNKNOWN_SERVER_ERROR
        self._manager.roles_changed([], stopped)
        return _stopped(ErrorCode.NONE, errors)

    def _stop_error(self, of: TopicPartition, epoch: int) -> ErrorCode:
        if of in self._manager.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition = self._manager.partitions.get(of)
        if (
            partition is None
            or epoch in (EPOCH_UNKNOWN, EPOCH_DURING_DELETE)
            or epoch >= partition.leader_epoch
        ):
            return ErrorCode.NONE
        return ErrorCode.FENCED_LEADER_EPOCH

    def _stop(self, of: TopicPartition, partition: Partition | None, *, delete: bool) -> ErrorCode:
        self._postponed.pop(of, None)
        if partition is not None:
            partition.moved_away = False
            partition.release(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self._delete(of) if delete else ErrorCode.NONE

    def _delete(self, of: TopicPartition) -> ErrorCode:
        self._manager.partitions.pop(of, None)
        try:
            self._manager.delete_log(of)
        except KafkaError as error:
            logger.error("cannot delete %s: %s", of, error)
            self._manager.mark_offline(of)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    # UpdateMetadata

    def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        error = self._stale(request.broker_epoch, request.controller_epoch)
        if error != ErrorCode.NONE:
            logger.warning("UpdateMetadata of controller %d: %s", request.controller_id, error.name)
            return UpdateMetadataResponse(error_code=error)
        self.controller_epoch = request.controller_epoch
        if deleted := self._manager.cache.update(request):
            for listener in self._manager.deletion_listeners:
                listener(deleted)
        self._give_up_moved(request)
        self._follow_postponed()
        self._manager.fetchers.brokers_changed()
        return UpdateMetadataResponse(error_code=ErrorCode.NONE)

    def _give_up_moved(self, request: UpdateMetadataRequest) -> None:
        """Rule 5."""
        manager = self._manager
        moved = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                of = TopicPartition(topic.topic_name, state.partition_index)
                partition = manager.partitions.get(of)
                if (
                    partition is not None
                    and partition.leader_id is not None
                    and partition.leader_epoch < state.leader_epoch
                    and manager.broker_id not in state.replicas
                ):
                    logger.info("%s has been moved away from here", of)
                    moved.append(partition)
        if moved:
            manager.fetchers.remove(partition.topic_partition for partition in moved)
            for partition in moved:
                self._postponed.pop(partition.topic_partition, None)
                partition.moved_away = True
                partition.release(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            manager.roles_changed([], moved)

    def _follow_postponed(self) -> None:
        manager = self._manager
        followed = []
        for of, state in list(self._postponed.items()):
            if not manager.cache.is_alive(state.leader):
                continue
            del self._postponed[of]
            partition = manager.partitions.get(of)
            if partition is None or partition.log is None:
                continue
            if state.leader_epoch > partition.leader_epoch and partition.make_follower(
                state, partition.log
            ):
                followed.append(partition)
        if followed:
            manager.fetchers.remove(partition.topic_partition for partition in followed)
            manager.fetchers.add(followed)
            manager.roles_changed([], followed)


def _states(request: LeaderAndIsrRequest) -> States:
    states = {
        TopicPartition(topic.topic_name, state.partition_index): state
        for topic in request.topic_states
        for state in topic.partition_states
    }
    for state in request.ungrouped_partition_states:
        states[TopicPartition(state.topic_name, state.partition_index)] = state
    return states


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
        of = TopicPartition(oldest.topic_name, oldest.partition_index)
        stops[of] = (EPOCH_UNKNOWN, delete)
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
                    topic_name=of.topic, partition_index=of.partition, error_code=code
                )
                for of, code in errors.items()
            ],
        )
    by_topic: dict[str, list[LeaderAndIsrPartitionError]] = {}
    for of, code in errors.items():
        by_topic.setdefault(of.topic, []).append(
            LeaderAndIsrPartitionError(partition_index=of.partition, error_code=code)
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
                topic_name=of.topic, partition_index=of.partition, error_code=code
            )
            for of, code in errors.items()
        ],
    )
