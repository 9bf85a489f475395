"""Leading one partition for one leader epoch: its followers, its ISR, its high watermark.

A `LeaderRole` is made for one leader epoch and dropped with it. See
docs/spec/controller-and-replication.md section 5.3.

Rules
1. Only the leader decides which followers are in sync, and it decides by fetches alone: a fetch
   from offset F says that the follower has everything before F (leader/isr.py).
2. A change of the ISR is pending until it has been written under the version of the state known
   here. Rejected because the controller was faster, it stays pending, and no other is begun, until
   the controller sends the next leader epoch (leader/isr_change_queue.py). Whether this leader or
   the controller writes it makes no difference here.
3. Whatever moves, what waits for it is woken before this broker does anything else: produces by the
   high watermark, followers' fetches by the log's end, consumers' fetches by the high watermark.

A follower joins the ISR only through a link whose other end is proven to be a living incarnation,
and the change names that incarnation's epoch: a broker that restarted with an empty disk does not
join by what its predecessor had fetched (KIP-903, a hole of ZooKeeper mode).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

from odradek.log.log import AppendInfo, Log
from odradek.log.producers import Guard, Origin
from odradek.replica.leader.delayed_produce import DelayedProduce, ProduceQueue
from odradek.replica.leader.divergence import diverges
from odradek.replica.leader.fetch_state import FetchItem, FollowerLink
from odradek.replica.leader.isr import (
    Committed,
    Follower,
    IsrState,
    PendingExpand,
    PendingShrink,
    high_watermark,
    may_join,
    out_of_sync,
)
from odradek.replica.leader.isr_change import Accepted, IsrChange, IsrResult, NotApplied
from odradek.replica.leader.isr_change_queue import IsrChangeQueue
from odradek.replica.leader.partition_counts import Condition, LeaderCounts
from odradek.replica.local_replica import LocalReplica
from odradek.replica.traffic import Traffic
from odradek.store.payloads import NO_EPOCH, LeaderAndIsr
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.leader_and_isr import LeaderAndIsrPartitionState

__all__ = ["LeaderContext", "LeaderRole"]

# How long a follower that the controller did not let in is not proposed again.
INELIGIBLE_S = 0.5


@dataclass(frozen=True, slots=True)
class LeaderContext:
    """What all leader roles of one broker share."""

    broker_id: int
    lag_max_s: float
    now: Callable[[], float]
    is_alive: Callable[[int], bool]
    isr_changes: IsrChangeQueue
    counts: LeaderCounts = field(default_factory=LeaderCounts)
    traffic: Traffic = field(default_factory=Traffic)


class LeaderRole:
    """One leader epoch. Synchronous throughout: only the store is ever waited for."""

    is_leader: ClassVar[bool] = True

    def __init__(
        self,
        context: LeaderContext,
        replica: LocalReplica,
        state: LeaderAndIsrPartitionState,
        predecessor: "LeaderRole | None",
    ) -> None:
        """`predecessor` is this broker's own role in an earlier epoch, if it led until now: what
        waits there goes on waiting here, and what it knew of its followers is still so."""
        self._context = context
        self.replica = replica
        self.leader_id = context.broker_id
        self.epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self._controller_epoch = state.controller_epoch
        self.replicas = tuple(state.replicas)
        # A replica that is being added is not missing yet, as in Kafka.
        self._replication_factor = len(set(self.replicas) - set(state.adding_replicas))
        self._is_reassigning = bool(state.adding_replicas or state.removing_replicas)
        self._counted = Condition.NOT_LED
        self.isr: IsrState = Committed(tuple(state.isr))
        self._pending: IsrChange | None = None
        log = replica.open_log
        self.epoch_start = log.end_offset
        log.assign_epoch(self.epoch, log.end_offset)
        self.followers: dict[int, Follower] = {}
        if predecessor is None:
            self.produce_queue = ProduceQueue(replica.tp)
            self._low_watermark_watchers: dict[Callable[[], None], None] = {}
        else:
            predecessor._withdraw()
            predecessor._count_as(Condition.NOT_LED)
            self.followers.update(predecessor.followers)
            self.produce_queue = predecessor.produce_queue
            self._low_watermark_watchers = predecessor._low_watermark_watchers
        now = context.now()
        self.followers = {
            id: self.followers.get(id) or Follower(id)
            for id in self.replicas
            if id != context.broker_id
        }
        for follower in self.followers.values():
            follower.new_epoch(
                log.end_offset,
                now,
                in_sync=follower.id in self.isr.committed,
                new_leader=predecessor is None,
            )

    def start(self) -> None:
        """To be called once the partition has this role."""
        self.recount()
        self._raise_high_watermark(self._context.now())
        self.replica.watchers.wake_all()

    def close(self, error: ErrorCode) -> None:
        """The role is lost, and with it what only a leader can see: commits and low watermarks."""
        self._withdraw()
        self._count_as(Condition.NOT_LED)
        self.produce_queue.fail(error)
        for watcher in list(self._low_watermark_watchers):
            watcher()

    def _withdraw(self) -> None:
        if self._pending is not None:
            self._pending.is_withdrawn = True
            self._pending = None

    @property
    def min_isr(self) -> int:
        """`min.insync.replicas`, but never more than there are replicas."""
        return min(self.replica.open_log.config.min_insync_replicas, len(self.replicas))

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr.committed) < self._replication_factor

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.isr.committed) < self.min_isr

    @property
    def is_at_min_isr(self) -> bool:
        return len(self.isr.committed) == self.min_isr

    def condition(self) -> Condition:
        """What this partition counts as."""
        condition = Condition.LED
        if self.is_under_replicated:
            condition |= Condition.UNDER_REPLICATED
        if self.is_under_min_isr:
            condition |= Condition.UNDER_MIN_ISR
        elif self.is_at_min_isr:
            condition |= Condition.AT_MIN_ISR
        if self._is_reassigning:
            condition |= Condition.REASSIGNING
        return condition

    def recount(self) -> None:
        """To be called whenever the condition may have changed."""
        self._count_as(self.condition())

    def _count_as(self, condition: Condition) -> None:
        self._context.counts.change(self._counted, condition)
        self._counted = condition

    # Appending

    def append(
        self,
        buffer: bytearray | memoryview,
        acks: int,
        origin: Origin,
        guard: Guard | None = None,
    ) -> AppendInfo:
        """Append to the log. The caller calls `announce_append` when it has appended all it has.
        With a `guard`, the batch opens a transaction only if that is still valid."""
        replica = self.replica
        log = replica.open_log
        self.admit(log, acks)
        old_end = log.end_offset
        info = log.append_as_leader(buffer, self.epoch, origin=origin, guard=guard)
        counters = replica.counters
        if counters is None:
            counters = replica.counters = self._context.traffic.of(replica.tp.topic)
        load = replica.load
        counters.produces += 1
        load.requests += 1
        if info.size_bytes:
            records = info.last_offset - info.first_offset + 1
            counters.bytes_in += info.size_bytes
            counters.records_in += records
            load.bytes_in += info.size_bytes
            load.messages += records
        for follower in self.followers.values():
            if follower.log_end == old_end:
                follower.leader_moves_on()
        if replica.watchers.items and info.size_bytes and log.config.compression_type == "producer":
            batch = memoryview(buffer)[: info.size_bytes]
            log.tail.put(info.first_offset, info.last_offset + 1, batch)
        return info

    def admit(self, log: Log, acks: int) -> None:
        """Everything that refuses an append before the log sees it."""
        if acks == -1:
            in_sync = len(self.isr.committed)
            required = min(log.config.min_insync_replicas, len(self.replicas))
            if in_sync < required:
                raise KafkaError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    f"{self.replica.tp} has {in_sync} in-sync replicas, {required} are required",
                )

    def announce_append(self, byte_count: int) -> None:
        """Wake the followers' fetches; move the high watermark if no follower is waited for."""
        self.replica.watchers.appended(byte_count)
        if len(self.isr.maximal) == 1:
            self._raise_high_watermark(self._context.now())

    def wait_for_commit(self, produce: DelayedProduce, offset: int) -> None:
        """Queue a produce until the high watermark reaches `offset`, unless it has already."""
        if self.replica.open_log.high_watermark >= offset:
            produce.results[self.replica.tp].error = self._commit_error()
        else:
            self.produce_queue.add(produce, offset)

    def _commit_error(self) -> ErrorCode:
        if len(self.isr.maximal) < self.min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    # Followers

    def unknown_follower(self, replica_id: int, *, has_epoch: bool) -> KafkaError:
        """The error for a fetch of a broker that is no replica, as far as this epoch knows."""
        return KafkaError(
            ErrorCode.UNKNOWN_LEADER_EPOCH if has_epoch else ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"broker {replica_id} is no replica of {self.replica.tp}",
        )

    def observe(self, item: FetchItem, now: float) -> bool:
        """A follower's fetch names this partition: note how far it has come.

        Returns False, and notes nothing, if the fetch cannot be served as it is: then it says
        nothing about the follower's log. The read that follows says why.
        """
        owner, log = item.owner, self.replica.open_log
        follower = self.followers.get(owner.replica_id)
        if (
            follower is None
            or item.leader_epoch not in (NO_EPOCH, self.epoch)
            or not log.start_offset <= item.offset <= log.end_offset
            or (item.last_fetched_epoch >= 0 and diverges(item, log))
        ):
            return False
        self._record_fetch(follower, item, log, now)
        return True

    def observe_unnamed(self, item: FetchItem, link: FollowerLink, now: float) -> None:
        """A follower that was outside the ISR fetches, and does not name this partition: it is
        where it was."""
        follower = self.followers.get(link.broker_id)
        if follower is None or follower.id in self.isr.committed:
            del item.owner.outside_isr[item]
        elif follower.source is not link and item.leader_epoch == self.epoch:
            # What was known of it was dropped with a change of the ISR, and is known again now.
            self._record_fetch(follower, item, self.replica.open_log, now)
        else:
            self.maybe_expand_isr(follower, link)

    def _record_fetch(self, follower: Follower, item: FetchItem, log: Log, now: float) -> None:
        owner, link = item.owner, item.owner.link
        old_end, old_start = follower.log_end, follower.log_start
        follower.source = link
        follower.record_fetch(item.offset, item.log_start_offset, log.end_offset, now)
        if follower.id not in self.isr.maximal:
            owner.outside_isr[item] = None
            if link is not None:
                self.maybe_expand_isr(follower, link)
        else:
            owner.outside_isr.pop(item, None)
        if follower.log_end != old_end:
            self._raise_high_watermark(now)
        if follower.log_start != old_start and self._low_watermark_watchers:
            for watcher in list(self._low_watermark_watchers):
                watcher()

    def forget_source(self, link: FollowerLink) -> None:
        """This link no longer asks for the partition: its later fetches say nothing about it."""
        follower = self.followers.get(link.broker_id)
        if follower is not None and follower.source is link:
            if follower.log_end == self.replica.open_log.end_offset:
                follower.leader_moves_on()
            follower.source = None

    # The ISR

    def maybe_expand_isr(self, follower: Follower, link: FollowerLink) -> None:
        """Let this follower join if it has what a member must have."""
        log = self.replica.open_log
        if not may_join(follower, self.isr, log.high_watermark, self.epoch_start):
            return
        context = self._context
        if not context.is_alive(follower.id) or context.now() < follower.ineligible_until:
            return
        if not link.is_proven:
            self._context.isr_changes.identify(link)
            return
        assert isinstance(self.isr, Committed)  # or it may not join
        assert follower.id in self.replicas, (follower, self.replicas)
        self._submit(self.isr.expand(follower.id), link)

    def maybe_shrink_isr(self) -> None:
        """Let members go that are not caught up. Called every half lag time."""
        context, log = self._context, self.replica.open_log
        now = context.now()
        if log.high_watermark < log.end_offset:
            # A follower outside the ISR may have been waited for, and be no longer.
            self._raise_high_watermark(now)
        gone = out_of_sync(
            log.end_offset, self.followers.values(), self.isr, now=now, lag_max_s=context.lag_max_s
        )
        if gone:
            assert isinstance(self.isr, Committed)  # or none is out of sync
            self._submit(self.isr.shrink(gone), None)

    def _submit(self, isr: PendingExpand | PendingShrink, link: FollowerLink | None) -> None:
        self.isr = isr
        state = LeaderAndIsr(
            leader=self.leader_id,
            leader_epoch=self.epoch,
            isr=isr.proposed,
            controller_epoch=self._controller_epoch,
            partition_epoch=self.partition_epoch,
        )
        topic_id = self.replica.open_log.metadata.topic_id
        self._pending = IsrChange(
            self.replica.tp, topic_id, isr.committed, state, link, self._on_result
        )
        self._context.isr_changes.submit(self._pending)

    def _on_result(self, change: IsrChange, result: IsrResult) -> None:
        if change is not self._pending:
            return
        if isinstance(result, Accepted):
            self._pending = None
            self.isr = Committed(change.state.isr)
            self.partition_epoch = result.partition_epoch
            self.recount()
            self._note_followers_outside_isr()
            self._raise_high_watermark(self._context.now())
        elif isinstance(result, NotApplied):
            self._pending = None
            self.isr = Committed(self.isr.committed)
            if result.partition_epoch is not None:
                self.partition_epoch = result.partition_epoch
            if change.joining in self.followers:
                if result.is_other_incarnation:
                    self.followers[change.joining] = Follower(change.joining)
                else:
                    # It is shutting down, for example: what it fetches meanwhile asks no more, and
                    # does not keep another follower from joining.
                    until = self._context.now() + INELIGIBLE_S
                    self.followers[change.joining].ineligible_until = until
            self._note_followers_outside_isr()

    def _note_followers_outside_isr(self) -> None:
        """A follower outside the ISR that was in it, or about to be, when it last named this
        partition may have caught up since, and then does not name it again."""
        for item in self.replica.watchers.items:
            if item.owner.replica_id >= 0 and item.owner.replica_id not in self.isr.committed:
                item.owner.outside_isr[item] = None

    def _raise_high_watermark(self, now: float) -> None:
        """The last stable offset moves with it and never by itself."""
        replica, context = self.replica, self._context
        log = replica.open_log
        if len(self.isr.committed) < min(log.config.min_insync_replicas, len(self.replicas)):
            return
        mark = high_watermark(
            log.end_offset,
            self.followers.values(),
            self.isr,
            now=now,
            lag_max_s=context.lag_max_s,
            is_alive=context.is_alive,
        )
        if mark <= log.high_watermark:
            return
        assert mark <= log.end_offset, (replica.tp, mark, log.end_offset)
        log.set_high_watermark(mark)
        self.produce_queue.release(mark, self._commit_error)
        replica.watchers.high_watermark_moved(log.appended_bytes)

    # The start of the log

    @property
    def low_watermark(self) -> int:
        """The greatest log start that every live replica has reached."""
        mark = self.replica.open_log.start_offset
        for follower in self.followers.values():
            if follower.log_start < mark and self._context.is_alive(follower.id):
                mark = follower.log_start
        return mark

    def delete_records(self, before: int) -> int:
        """Raise the start of the log; -1 asks for the high watermark. Returns the new start."""
        replica, log = self.replica, self.replica.open_log
        if not log.config.delete:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{replica.tp} is compacted: records cannot be deleted by offset",
            )
        offset = log.high_watermark if before == -1 else before
        if offset < 0 or offset > log.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{offset} is not between 0 and the high watermark {log.high_watermark}",
            )
        if offset > log.start_offset:
            log.advance_start_offset(offset)
            replica.watchers.wake_all()
            replica.wakeups.run()
        return offset

    def watch_low_watermark(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` when it may have moved, and when this broker no longer leads."""
        self._low_watermark_watchers[watcher] = None

    def unwatch_low_watermark(self, watcher: Callable[[], None]) -> None:
        self._low_watermark_watchers.pop(watcher, None)
