"""All partitions this broker hosts: where a record enters and leaves a broker.

`append` and `fetch` serve producers, consumers and followers; the controller's requests go to
`ReplicaManager.control_requests`. docs/spec/controller-and-replication.md section 5.

Rules
1. What can be answered at once is answered at once: `append` with acks 0 and 1, and `fetch` that
   finds data, reply `Now`. A reply that is `Later` waits for another replica, or for records.
2. An append wakes the followers that wait for it, and a follower's fetch completes the produces it
   releases, before the call that did it returns (`Wakeups`).
3. Serving a fetch has one step with side effects, and only a follower's fetch has it
   (`FollowerFetches.observe`); reading changes nothing.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping

from odradek.log.manager import LogManager
from odradek.log.producers import NO_GUARD, Guard, Origin
from odradek.log.validation import InvalidRecords
from odradek.replica.checkpoints import HighWatermarkCheckpoints
from odradek.replica.cluster_metadata import ClusterMetadata
from odradek.replica.config import ReplicaConfig
from odradek.replica.control_requests import ControlRequests, TopicConfigs
from odradek.replica.controller_channel import ControllerChannel
from odradek.replica.controller_notifications import Notifications
from odradek.replica.delayed import TimeoutWheel
from odradek.replica.follower.fetcher import FetcherContext
from odradek.replica.follower.fetcher_manager import FetcherManager
from odradek.replica.hosted_partitions import HostedPartitions
from odradek.replica.leader.controller_isr_path import ControllerIsrPath
from odradek.replica.leader.delayed_produce import DelayedProduce, ProduceResult
from odradek.replica.leader.direct_isr_path import DirectIsrPath
from odradek.replica.leader.fetch_state import (
    DelayedFetch,
    FetchParams,
    FetchSet,
    PartitionAnswer,
    Wakeups,
)
from odradek.replica.leader.follower_fetches import FollowerFetches
from odradek.replica.leader.isr_change import IsrPath
from odradek.replica.leader.isr_change_queue import IsrChangeQueue
from odradek.replica.leader.partition_counts import LeaderCounts
from odradek.replica.leader.read import Reader
from odradek.replica.leader.role import LeaderContext, LeaderRole
from odradek.replica.log_dir_moves import LogDirMoves
from odradek.replica.replica_logs import ReplicaLogs
from odradek.replica.role_changes import RoleChanges
from odradek.replica.throttle import ReplicationQuota
from odradek.replica.traffic import TOPICS_MAX, Traffic
from odradek.store.cluster import ClusterStore
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.reply import Promise, Reply
from odradek.wire.topics import TopicPartition

__all__ = ["ReplicaManager"]

logger = logging.getLogger(__name__)

Produced = dict[TopicPartition, ProduceResult]

# A refused produce gets the log start offset from Kafka, except with one of these.
WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class ReplicaManager:
    """Makes the parts of the replica layer, and serves `append` and `fetch`.

    Made on the running loop.
    """

    def __init__(
        self,
        broker_id: int,
        logs: LogManager,
        store: ClusterStore,
        cluster: ClusterMetadata,
        config: ReplicaConfig = ReplicaConfig(),
        *,
        topic_configs: TopicConfigs,
        counted_topics_max: int = TOPICS_MAX,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._logs = logs
        self.now = now = self._loop.time
        self.wheel = TimeoutWheel(self._loop)
        self.leader_quota = ReplicationQuota(now)
        self.follower_quota = ReplicationQuota(now)
        self._wakeups = wakeups = Wakeups()
        self._notifications = Notifications(broker_id, store)
        self._controller = ControllerChannel(broker_id, cluster, config)
        self.isr_changes = IsrChangeQueue(store, self._isr_path(broker_id, store, config), wakeups)
        self._lag_max_s = config.replica_lag_time_max_ms / 1000
        self.counts = LeaderCounts()
        self.traffic = Traffic(counted_topics_max)
        context = LeaderContext(
            broker_id,
            self._lag_max_s,
            now,
            cluster.is_alive,
            self.isr_changes,
            self.counts,
            self.traffic,
        )
        self.partitions = HostedPartitions(cluster, context, wakeups)
        self._checkpoints = HighWatermarkCheckpoints(
            logs.checkpoints,
            self.partitions,
            config.replica_high_watermark_checkpoint_interval_ms / 1000,
        )
        self.log_dir_moves = LogDirMoves(logs, self.partitions, self._checkpoints, now)
        self.fetchers = FetcherManager(self._fetcher_context(broker_id, cluster, config))
        self.replica_logs = ReplicaLogs(logs, self._checkpoints, self.log_dir_moves)
        self.roles = RoleChanges(self.partitions, self.fetchers, self.log_dir_moves, wakeups)
        self.control_requests = ControlRequests(
            broker_id,
            cluster,
            self.partitions,
            self.replica_logs,
            self.roles,
            topic_configs,
            keeps_topic_ids=config.protocol.uses_topic_ids,
        )
        self.control_requests.metadata_listeners += [
            self.fetchers.brokers_changed,
            self._controller.controller_may_have_moved,
        ]
        self._follower_fetches = FollowerFetches(self.partitions, cluster.is_alive)
        self._reader = Reader(
            broker_id,
            self.partitions,
            cluster,
            self.leader_quota,
            select_by_rack=config.rack_aware_replica_selector,
        )
        self._shrinker: asyncio.TimerHandle | None = None
        self._appends = 0
        self._fetches = 0

    def _fetcher_context(
        self, broker_id: int, cluster: ClusterMetadata, config: ReplicaConfig
    ) -> FetcherContext:
        return FetcherContext(
            broker_id,
            config,
            self.follower_quota,
            self._wakeups,
            lambda id: cluster.endpoint(id, config.inter_broker_listener_name),
            self._checkpoints.write,
            self.traffic,
            lambda: self.control_requests.broker_epoch,
        )

    def _isr_path(self, broker_id: int, store: ClusterStore, config: ReplicaConfig) -> IsrPath:
        """Chosen once: a leader must not change its way within a leader epoch."""
        if not config.protocol.isr_through_controller:
            return DirectIsrPath(store, self._notifications)
        return ControllerIsrPath(
            broker_id,
            lambda: self.control_requests.broker_epoch,
            config.protocol,
            self._controller,
        )

    def start(self) -> None:
        """Begin to look for followers that lag."""
        self._shrinker = self._loop.call_later(self._lag_max_s / 2, self._shrink_isrs)

    def _shrink_isrs(self) -> None:
        self.start()
        for leader in self.partitions.led():
            leader.maybe_shrink_isr()
        self._wakeups.run()

    async def close(self) -> None:
        """Stop following, writing and checking; the logs stay open, their manager closes them."""
        if self._shrinker is not None:
            self._shrinker.cancel()
        self._checkpoints.close()
        await self.fetchers.close()
        await self.log_dir_moves.close()
        await self.isr_changes.close()
        self._controller.close()
        await self._notifications.close()
        for partition in self.partitions.values():
            partition.release(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._wakeups.run()
        self.wheel.close()
        self._checkpoints.write()

    # Producing

    def append(
        self,
        acks: int,
        timeout_ms: int,
        entries: Mapping[TopicPartition, bytearray | memoryview],
        *,
        origin: Origin = Origin.CLIENT,
        guards: Mapping[TopicPartition, Guard] | None = None,
    ) -> Reply[Produced]:
        """Append one batch to each partition. With acks=-1 the reply may wait for other replicas.

        With `guards`, transactions are verified: a batch opens one only under a valid guard.

        The buffers are the manager's from now on: fetches are answered from them.
        """
        if acks not in (-1, 0, 1):
            return Reply.now(
                {
                    tp: ProduceResult(ErrorCode.INVALID_REQUIRED_ACKS, message=f"acks={acks}")
                    for tp in entries
                }
            )
        self._appends += 1
        results: Produced = {}
        appended: list[tuple[LeaderRole, int]] = []
        for tp, buffer in entries.items():
            try:
                leader = self.partitions[tp].leader
                guard = None if guards is None else guards.get(tp, NO_GUARD)
                info = leader.append(buffer, acks, origin, guard)
            except KafkaError as error:
                results[tp] = self._refused(tp, error)
                self.traffic.produce_failed(tp.topic, len(buffer))
                continue
            results[tp] = ProduceResult(
                ErrorCode.NONE, info.first_offset, info.append_time_ms, info.log_start_offset
            )
            appended.append((leader, info.last_offset + 1))
            if info.size_bytes:
                leader.announce_append(info.size_bytes)
        if self._wakeups.pending:
            self._wakeups.run()
        if acks != -1 or not appended:
            return Reply.now(results)
        return self._wait_for_commit(results, appended, timeout_ms)

    def _refused(self, tp: TopicPartition, error: KafkaError) -> ProduceResult:
        """With the log start offset if the records, and not their partition, were at fault."""
        result = ProduceResult(error.error, message=error.message)
        partition = self.partitions.get(tp)
        if error.error not in WITHOUT_LOG_START and partition is not None:
            log = partition.log
            result.log_start_offset = -1 if log is None else log.start_offset
        if isinstance(error, InvalidRecords):
            result.record_errors = error.records
        return result

    def _wait_for_commit(
        self, results: Produced, appended: list[tuple[LeaderRole, int]], timeout_ms: int
    ) -> Reply[Produced]:
        future: Promise[Produced] = Promise(loop=self._loop)
        produce = DelayedProduce(results, future)
        for leader, offset in appended:
            leader.wait_for_commit(produce, offset)
        if not produce.queues:
            return Reply.now(results)
        self.wheel.add(produce, timeout_ms / 1000)
        return Reply.later(future)

    # Fetching

    def fetch(self, params: FetchParams, fetch_set: FetchSet) -> Reply[list[PartitionAnswer]]:
        """Records for a consumer or a follower; later if there are too few and it may wait."""
        assert fetch_set.parked is None, "the fetch that waits must be answered first"
        self._fetches += 1
        items = self._reader.items(fetch_set)
        is_being_proven = False
        if params.replica_id >= 0:
            is_being_proven = self._follower_fetches.observe(
                fetch_set, items, self.now(), params.replica_epoch
            )
            if (
                fetch_set.is_incremental
                and fetch_set.items
                and params.max_wait_ms > 0
                and params.min_bytes > 0
                and not is_being_proven
                and self._reader.is_at_end(params, items)
            ):
                # A follower that keeps up asks this way after each append.
                if self._wakeups.pending:
                    self._wakeups.run()
                return self._park(params, fetch_set, params.min_bytes, params.max_wait_ms / 1000)
        summary = self._reader.read(params, items)
        if self._wakeups.pending:
            self._wakeups.run()
        if (
            summary.byte_count >= params.min_bytes
            or summary.is_final
            or params.max_wait_ms <= 0
            or summary.unreadable == len(fetch_set.items)
            or is_being_proven
        ):
            return Reply.now(fetch_set.answer(summary.results))
        wait_s = params.max_wait_ms / 1000
        if params.is_follower and (exceeded_s := self.leader_quota.seconds_exceeded()):
            # What the throttle holds back is no news that would end the wait.
            wait_s = min(wait_s, exceeded_s)
        return self._park(params, fetch_set, params.min_bytes - summary.byte_count, wait_s)

    def _park(
        self, params: FetchParams, fetch_set: FetchSet, missing_bytes: int, wait_s: float
    ) -> Reply[list[PartitionAnswer]]:
        reader = self._reader

        def attempt(fetch: DelayedFetch, force: bool) -> list[PartitionAnswer] | None:
            summary = reader.read(params, reader.items(fetch_set))
            if force or summary.is_final or summary.byte_count >= params.min_bytes:
                return fetch_set.answer(summary.results)
            fetch.missing_bytes = params.min_bytes - summary.byte_count
            return None

        future: Promise[list[PartitionAnswer]] = Promise(loop=self._loop)
        fetch = DelayedFetch(fetch_set, missing_bytes, attempt, future)
        if not fetch_set.is_session:
            for item in fetch_set.items.values():
                if (partition := self.partitions.get(item.tp)) is not None:
                    partition.watch(item)
        self.wheel.add(fetch, wait_s)
        return Reply.later(future)

    # Directories

    def directory_failed(self, path: str, tps: Collection[TopicPartition]) -> None:
        """To be called by the log manager (`on_directory_failure`).

        docs/spec/controller-and-replication.md section 5.6.
        The partitions go offline, and the controller is notified. Listeners that act for them, as a
        coordinator does, end at once: no such partition comes back before a restart.
        """
        logger.error("log directory %s failed: %d partitions are offline", path, len(tps))
        gone = []
        for tp in tps:
            if self._logs.get(tp) is not None:
                self.log_dir_moves.stop(tp)  # only the copy was there
            elif (partition := self.roles.take_offline(tp)) is not None:
                gone.append(partition)
        self._notifications.log_dir_failed()
        self.roles.announce([], gone)

    def min_isr_changed(self) -> None:
        """To be called when `min.insync.replicas` of any topic has changed."""
        for leader in self.partitions.led():
            leader.recount()

    def statistics(self) -> dict[str, int]:
        isr = {**self.isr_changes.statistics(), **self._notifications.statistics()}
        return {
            "partitions": len(self.partitions),
            "offline": len(self.partitions.offline),
            **self.counts.statistics(),
            "appends": self._appends,
            "fetches": self._fetches,
            "waiting": len(self.wheel),
            **self.log_dir_moves.statistics(),
            **{f"isr_{name}": count for name, count in isr.items()},
            **{f"fetcher_{name}": count for name, count in self.fetchers.statistics().items()},
        }
