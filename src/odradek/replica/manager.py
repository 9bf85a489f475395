"""All partitions this broker hosts, and everything that is asked of them.

The replica manager is where a record enters and leaves a broker (`append`, `fetch`), and where the
controller's decisions arrive (`leader_and_isr`, `stop_replica`, `update_metadata`; see
replica/state_changes.py). docs/spec/controller-and-replication.md section 5.

Rules
1. What can be answered at once is answered at once: `append` with acks 0 and 1, and `fetch` that
   finds data, return their answer, not a future. A future means that something is waited for.
2. An append wakes the followers that wait for it, and a follower's fetch completes the produces it
   releases, before the call that did it returns. Wake-ups are collected while partitions are
   touched and run once at the end, so that a fetch waiting for many partitions is read once.
3. A partition is hosted, offline (its directory failed), or unknown; each has Kafka's error.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping

from odradek.log.config import LogConfig
from odradek.log.log import Log
from odradek.log.manager import LogManager
from odradek.log.producers import Origin
from odradek.replica.checkpoints import HighWatermarkCheckpoints
from odradek.replica.config import ReplicaConfig
from odradek.replica.delayed import TimeoutWheel
from odradek.replica.fetchers import FetcherManager
from odradek.replica.fetching import (
    DelayedFetch,
    FetchParams,
    FetchSet,
    FollowerLink,
    PartitionAnswer,
)
from odradek.replica.membership import Membership
from odradek.replica.metadata_cache import MetadataCache
from odradek.replica.moving import Mover
from odradek.replica.partition import Partition
from odradek.replica.producing import DelayedProduce, ProduceResult
from odradek.replica.proposal import IsrProposal
from odradek.replica.reading import Reader
from odradek.replica.state_changes import StateChanges
from odradek.replica.throttle import ReplicationQuota
from odradek.store.cluster import ClusterStore
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from odradek.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from odradek.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from odradek.wire.topics import TopicPartition

__all__ = ["ReplicaManager", "TopicConfigs"]

logger = logging.getLogger(__name__)

TopicConfigs = Callable[[Collection[str]], Awaitable[Mapping[str, LogConfig]]]
Produced = dict[TopicPartition, ProduceResult]
LeadershipListener = Callable[[list[Partition], list[Partition]], None]
DeletionListener = Callable[[list[TopicPartition]], None]


class ReplicaManager:
    """See the module's text. Made on the running loop."""

    def __init__(
        self,
        broker_id: int,
        logs: LogManager,
        store: ClusterStore,
        cache: MetadataCache,
        config: ReplicaConfig = ReplicaConfig(),
        *,
        topic_configs: TopicConfigs,
    ) -> None:
        """`topic_configs` reads the settings of topics, from the store, before a log is made.

        `broker_epoch` must be set once the broker has registered: control requests meant for an
        earlier incarnation are refused by it.
        """
        self.broker_id = broker_id
        self.broker_epoch = -1
        self.logs = logs
        self.cache = cache
        self.config = config
        self.lag_max_s = config.replica_lag_time_max_ms / 1000
        self.partitions: dict[TopicPartition, Partition] = {}
        self.offline: set[TopicPartition] = set()
        # Partitions of which this broker is the last in-sync replica, and found no log at start.
        self.lost_logs: set[TopicPartition] = set()
        # Told of every change of role, after it: (now led, now followed or no longer here).
        self.leadership_listeners: list[LeadershipListener] = []
        # Told of partitions that were deleted, here or elsewhere.
        self.deletion_listeners: list[DeletionListener] = []
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        self.wheel = TimeoutWheel(self._loop)
        self.leader_quota = ReplicationQuota(self.now)
        self.follower_quota = ReplicationQuota(self.now)
        self._links: dict[int, FollowerLink] = {}
        self._to_wake: dict[DelayedFetch, bool] = {}
        self._reader = Reader(
            broker_id,
            self.hosted,
            cache,
            self.leader_quota,
            select_by_rack=config.rack_aware_replica_selector,
            rack=self._rack_of,
        )
        self._membership = Membership(
            broker_id,
            store,
            on_change=self.run_wakeups,
            on_identified=self._link_identified,
        )
        self.fetchers = FetcherManager(self)
        self.mover = Mover(self)
        self._changes = StateChanges(self, topic_configs)
        self._checkpoints = HighWatermarkCheckpoints(logs, self.partitions)
        self._shrinker: asyncio.TimerHandle | None = None
        self._checkpointer: asyncio.TimerHandle | None = None
        self._appends = 0
        self._fetches = 0
        self._failed_partitions = 0

    def start(self) -> None:
        """Begin to look for followers that lag."""
        self._shrinker = self._loop.call_later(self.lag_max_s / 2, self._shrink_isrs)

    async def close(self) -> None:
        """Stop following, writing and checking; the logs stay open, their manager closes them."""
        for timer in (self._shrinker, self._checkpointer):
            if timer is not None:
                timer.cancel()
        await self.fetchers.close()
        await self.mover.close()
        await self._membership.close()
        for partition in self.partitions.values():
            partition.release(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.run_wakeups()
        self.wheel.close()
        self._checkpoints.write()

    # Finding partitions

    def partition(self, topic_partition: TopicPartition) -> Partition | None:
        """The hosted partition, if its directory is well."""
        return self.partitions.get(topic_partition)

    def hosted(self, topic_partition: TopicPartition) -> Partition:
        """The hosted partition, or the KafkaError to answer with."""
        partition = self.partitions.get(topic_partition)
        if partition is not None:
            return partition
        if topic_partition in self.offline:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition} is on a failed directory"
            )
        if topic_partition in self.cache:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {self.broker_id} has no replica of {topic_partition}",
            )
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic_partition} is not known here"
        )

    def led(self) -> Iterator[Partition]:
        return (partition for partition in self.partitions.values() if partition.is_leader)

    def is_alive(self, broker_id: int) -> bool:
        return self.cache.is_alive(broker_id)

    def _rack_of(self, broker_id: int) -> str | None:
        broker = self.cache.broker(broker_id)
        return None if broker is None else broker.rack

    # Producing

    def append(
        self,
        acks: int,
        timeout_ms: int,
        entries: Mapping[TopicPartition, bytearray | memoryview],
        *,
        origin: Origin = Origin.CLIENT,
    ) -> "Produced | asyncio.Future[Produced]":
        """Append one batch to each partition. A future if acks=-1 must wait for other replicas.

        The buffers are the manager's from now on: fetches that wait are answered from them.
        """
        if acks not in (-1, 0, 1):
            return {
                of: ProduceResult(ErrorCode.INVALID_REQUIRED_ACKS, message=f"acks={acks}")
                for of in entries
            }
        self._appends += 1
        results: Produced = {}
        appended: list[tuple[Partition, int]] = []
        for of, buffer in entries.items():
            try:
                partition = self.partitions.get(of) or self.hosted(of)
                info = partition.append(buffer, acks, origin)
            except KafkaError as error:
                results[of] = ProduceResult(error.error, message=error.message)
                continue
            results[of] = ProduceResult(
                ErrorCode.NONE, info.first_offset, info.append_time_ms, info.log_start_offset
            )
            appended.append((partition, info.last_offset + 1))
            if info.size_bytes:
                partition.announce_append(info.size_bytes)
        if self._to_wake:
            self.run_wakeups()
        for partition, _ in appended:
            partition.fresh = None
        if acks != -1 or not appended:
            return results
        return self._wait_for_commit(results, appended, timeout_ms)

    def _wait_for_commit(
        self, results: Produced, appended: list[tuple[Partition, int]], timeout_ms: int
    ) -> "Produced | asyncio.Future[Produced]":
        future: asyncio.Future[Produced] = self._loop.create_future()
        waiting: dict[TopicPartition, Partition] = {}
        produce = DelayedProduce(results, waiting, future)
        for partition, offset in appended:
            if partition.wait_for_commit(produce, offset):
                waiting[partition.topic_partition] = partition
        if not waiting:
            return results
        self.wheel.add(produce, timeout_ms / 1000)
        return future

    # Fetching

    def fetch(
        self, params: FetchParams, fetch_set: FetchSet
    ) -> "list[PartitionAnswer] | asyncio.Future[list[PartitionAnswer]]":
        """Records for a consumer or a follower; a future if there is too little and it may wait."""
        assert fetch_set.parked is None, "the fetch that waits must be answered first"
        self._fetches += 1
        now = self.now()
        is_being_proven = False
        if params.replica_id >= 0:
            is_being_proven = self._follower_fetches(params, fetch_set, now)
        summary = self._reader.read(params, fetch_set, now)
        if self._to_wake:
            self.run_wakeups()
        if (
            summary.byte_count >= params.min_bytes
            or summary.is_final
            or params.max_wait_ms <= 0
            or not fetch_set.items
            or is_being_proven
        ):
            return fetch_set.answer(summary.results)
        return self._park(params, fetch_set, params.min_bytes - summary.byte_count)

    def _park(
        self, params: FetchParams, fetch_set: FetchSet, missing_bytes: int
    ) -> "asyncio.Future[list[PartitionAnswer]]":
        def attempt(fetch: DelayedFetch, force: bool) -> list[PartitionAnswer] | None:
            summary = self._reader.read(params, fetch_set, None)
            if force or summary.is_final or summary.byte_count >= params.min_bytes:
                return fetch_set.answer(summary.results)
            fetch.missing_bytes = params.min_bytes - summary.byte_count
            return None

        future: asyncio.Future[list[PartitionAnswer]] = self._loop.create_future()
        fetch = DelayedFetch(fetch_set, missing_bytes, attempt, future)
        if not fetch_set.is_session:
            for item in fetch_set.items.values():
                self.partitions[item.topic_partition].watch(item)
        self.wheel.add(fetch, params.max_wait_ms / 1000)
        return future

    def _follower_fetches(self, params: FetchParams, fetch_set: FetchSet, now: float) -> bool:
        """Note a follower's fetch. True if it should be answered at once to prove who is there."""
        link = fetch_set.link
        if link is None:
            if fetch_set.is_session or not self.is_alive(params.replica_id):
                # Anybody may invent an id: of one that is no broker's nothing is kept. Nor is more
                # needed of a broker that we do not know yet, for it may not join before we do.
                link = FollowerLink(params.replica_id)
            else:
                link = self._links.setdefault(params.replica_id, FollowerLink(params.replica_id))
            fetch_set.link = link
        link.fetch_arrived(now)
        for item in list(fetch_set.outsiders):
            partition = item.partition
            if item.moved or partition is None or not partition.is_leader:
                continue
            follower = partition.followers.get(link.broker_id)
            if follower is None or follower.id in partition.isr.committed:
                del fetch_set.outsiders[item]
            elif follower.source is not link and item.leader_epoch == partition.leader_epoch:
                # What it had told us was forgotten with a proposal, and it names the partition no
                # more until it moves: not naming it says that it is where it was.
                partition.record_fetch(follower, item, now)
            else:
                partition.consider(follower, link)
        return link.epoch is not None and not link.is_proven

    def wake(self, fetch: DelayedFetch, *, force: bool) -> None:
        self._to_wake[fetch] = force or self._to_wake.get(fetch, False)

    def run_wakeups(self) -> None:
        while self._to_wake:
            to_wake, self._to_wake = self._to_wake, {}
            for fetch, force in to_wake.items():
                fetch.try_complete(force=force)

    # The ISR

    def propose(self, proposal: IsrProposal) -> None:
        self._membership.propose(proposal)

    def identify(self, link: FollowerLink) -> None:
        self._membership.identify(link)

    def _link_identified(self, link: FollowerLink) -> None:
        if link.parked is not None:
            link.parked.try_complete(force=True)

    def _shrink_isrs(self) -> None:
        self._shrinker = self._loop.call_later(self.lag_max_s / 2, self._shrink_isrs)
        for partition in self.partitions.values():
            partition.shrink()
        self.run_wakeups()

    # Logs, directories and checkpoints

    def open_log(
        self, partition: Partition, configs: Mapping[str, LogConfig], *, is_new: bool
    ) -> Log:
        """The partition's log, made if need be, with its high watermark as it was last known."""
        of = partition.topic_partition
        mark = self._checkpoints.at_load(of) if self.logs.get(of) is not None else 0
        if of in self.lost_logs and not is_new:
            mark = 1  # at least; what matters is that it is more than nothing
        log = self.logs.get_or_create(of, configs.get(of.topic), is_new=is_new)
        damage = self.logs.damaged.pop(of, None)
        known = mark if damage is None or is_new else max(mark, damage.reached)
        partition.lost_mark = known if known > log.end_offset else None
        log.set_high_watermark(mark)
        # Opened once, also by who then refuses to lead: an empty log looks like any other.
        partition.log = log
        self.lost_logs.discard(of)
        return log

    def delete_log(self, of: TopicPartition) -> None:
        self._checkpoints.forget(of)
        self.mover.cancel(of)
        self.logs.async_delete(of)

    def set_log_aside(self, of: TopicPartition) -> None:
        """Out of use, and left on disk: it is not known to be of the partition of this name now."""
        self._checkpoints.forget(of)
        self.mover.cancel(of)
        log = self.logs.async_delete(of, stray=True)
        assert log is not None
        logger.warning(
            "%s begins anew: what an earlier replica of this name left here is now in %s, and is"
            " yours to keep or delete",
            of,
            log.directory,
        )

    def begin_checkpoints(self) -> None:
        """From the first LeaderAndIsr on, so that no partition is missing from the file."""
        if self._checkpointer is None:
            interval_s = self.config.replica_high_watermark_checkpoint_interval_ms / 1000
            self._checkpointer = self._loop.call_later(interval_s, self._checkpoint)

    def _checkpoint(self) -> None:
        self._checkpointer = None
        self.checkpoint_high_watermarks()
        self.begin_checkpoints()

    def checkpoint_high_watermarks(self) -> None:
        self._checkpoints.write()

    def mark_offline(self, of: TopicPartition) -> Partition | None:
        """The partition's directory has failed: answer KAFKA_STORAGE_ERROR from now on."""
        self.offline.add(of)
        self.fetchers.remove([of])
        self.mover.stop(of)
        partition = self.partitions.pop(of, None)
        if partition is not None:
            partition.release(ErrorCode.KAFKA_STORAGE_ERROR)
        return partition

    def directory_failed(self, path: str, partitions: Collection[TopicPartition]) -> None:
        """To be called by the log manager (`on_directory_failure`):

        docs/spec/controller-and-replication.md section 5.6.

        The partitions go offline and the controller is told, who finds out which by asking. Whoever
        acts for them here, as a coordinator does, ends at once: none comes back before a restart.
        """
        logger.error("directory %s is offline with %d partitions", path, len(partitions))
        gone = []
        for of in partitions:
            if self.logs.get(of) is not None:
                self.mover.stop(of)  # only the copy was there
            elif (partition := self.mark_offline(of)) is not None:
                gone.append(partition)
        self._membership.announce_directory_failure()
        self.roles_changed([], gone)

    def alter_replica_log_dirs(
        self, targets: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, ErrorCode]:
        """Move replicas to other directories of this broker; answers when that has begun."""
        return self.mover.alter(targets)

    # Following

    def endpoint(self, broker_id: int) -> tuple[str, int] | None:
        return self.cache.endpoint(broker_id, self.config.inter_broker_listener_name)

    def partition_failed(self, partition: Partition, error: Exception) -> None:
        """A fetcher has given up: nothing more until the controller speaks."""
        # A leader that is ahead of us in epochs is ordinary: the controller's word is on its way.
        fenced = isinstance(error, KafkaError) and error.error is ErrorCode.FENCED_LEADER_EPOCH
        level = logging.INFO if fenced else logging.ERROR
        logger.log(level, "%s is not followed for now: %s", partition.topic_partition, error)
        self.fetchers.forget(partition.topic_partition)
        self._failed_partitions += 1

    # What the controller says

    async def leader_and_isr(
        self, request: LeaderAndIsrRequest, version: int = 4
    ) -> LeaderAndIsrResponse:
        return await self._changes.leader_and_isr(request, version)

    def stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        return self._changes.stop_replica(request)

    def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        return self._changes.update_metadata(request)

    def roles_changed(self, led: list[Partition], followed: list[Partition]) -> None:
        """After a batch of changes: run what they woke, then tell whoever listens."""
        self.run_wakeups()
        self.fetchers.close_idle()
        if led or followed:
            for listener in self.leadership_listeners:
                listener(led, followed)

    @property
    def controller_epoch(self) -> int:
        """The latest controller that this broker has heard of."""
        return self._changes.controller_epoch

    def statistics(self) -> dict[str, int]:
        led = list(self.led())
        return {
            "partitions": len(self.partitions),
            "leaders": len(led),
            "offline": len(self.offline),
            "under_replicated": sum(partition.is_under_replicated for partition in led),
            "under_min_isr": sum(partition.is_under_min_isr for partition in led),
            "appends": self._appends,
            "fetches": self._fetches,
            "failed_partitions": self._failed_partitions,
            "waiting": len(self.wheel),
            **self.mover.statistics(),
            **{f"isr_{name}": count for name, count in self._membership.statistics().items()},
            **{f"fetcher_{name}": count for name, count in self.fetchers.statistics().items()},
        }
