"""One partition as this broker hosts it: leader or follower, its ISR, its high watermark.

Rules
1. A leader epoch makes a leader. Everything a leader is asked carries or implies one; an older one
   is fenced, a newer one is unknown (docs/spec/controller-and-replication.md section 5.2).
2. Only the leader decides who is in sync, and it decides by fetches alone: a fetch from offset F
   says that the follower has everything before F (section 5.3, replica/isr.py).
3. A change of the ISR is a proposal until the store has taken it under the version of the state we
   know. Refused because the controller was faster, it stays a proposal, and nothing else is
   proposed, until the controller tells us the new state.
4. Whatever moves, those who wait are told before this broker does anything else: produces by the
   high watermark, followers' fetches by the log's end, consumers' fetches by the high watermark.

Two holes of ZooKeeper mode are closed here. A follower is let into the ISR only through a link
whose other end is proven to be a living incarnation, and the proposal names that incarnation's
epoch, so that a broker that came back with an empty disk is not let in by what its predecessor had
(KIP-903; replica/membership.py). And a replica that knows it lost records which were committed
refuses to lead, while a follower refuses to cut below its own high watermark for a leader that was
elected from the ISR (KIP-966; `Partition.lost_tail`, replica/truncation.py).
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from odradek.log.log import Log
from odradek.log.producers import Origin
from odradek.log.results import AppendInfo
from odradek.replica.fetching import DelayedFetch, FetchItem, FollowerLink
from odradek.replica.isr import Follower, Isr, high_watermark, may_join, out_of_sync
from odradek.replica.producing import DelayedProduce
from odradek.replica.proposal import IsrProposal
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.leader_and_isr import LeaderAndIsrPartitionState
from odradek.wire.topics import TopicPartition

__all__ = ["NO_EPOCH", "Partition", "PartitionHost"]

NO_EPOCH = -1

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4


class PartitionHost(Protocol):
    """What a partition needs of the replica manager around it."""

    broker_id: int
    lag_max_s: float

    def now(self) -> float: ...

    def is_alive(self, broker_id: int) -> bool:
        """Whether the metadata cache lists this broker."""
        ...

    def wake(self, fetch: DelayedFetch, *, force: bool) -> None:
        """Look at this fetch again before the current call into the manager ends."""
        ...

    def run_wakeups(self) -> None:
        """Do now what `wake` asked for."""
        ...

    def propose(self, proposal: IsrProposal) -> None:
        """Write this change of the ISR to the store."""
        ...

    def identify(self, link: FollowerLink) -> None:
        """Find out which incarnation of its broker is at the other end of this link."""
        ...


class Partition:
    """One hosted partition. Synchronous throughout: only the store is ever waited for."""

    def __init__(self, topic_partition: TopicPartition, host: PartitionHost) -> None:
        self.topic_partition = topic_partition
        self._host = host
        self.log: Log | None = None
        self.future_log: Log | None = None
        self.leader_id: int | None = None
        self.leader_epoch = NO_EPOCH
        self.leader_epoch_start: int | None = None
        self.partition_epoch = NO_EPOCH
        self.controller_epoch = 0
        self.replicas: tuple[int, ...] = ()
        self.adding: tuple[int, ...] = ()
        self.removing: tuple[int, ...] = ()
        self.isr = Isr()
        self.followers: dict[int, Follower] = {}
        self.proposal: IsrProposal | None = None
        # The last ISR we heard of, and whether the leader elected after that was known to be in it.
        self._last_known_isr: tuple[int, ...] = ()
        self.elected_from_isr = False
        # Given up because it is elsewhere now (state_changes.py, rule 5), and not heard of since.
        self.moved_away = False
        # How far this replica knew to be committed, if it was loaded with fewer records than that.
        # Kept on disk in place of the high watermark: it must not be forgotten by a restart.
        self.lost_mark: int | None = None
        # What was appended a moment ago, as (first offset, next offset, bytes), while those who
        # wait for it are woken: they need not read it from the disk.
        self.fresh: tuple[int, int, memoryview] | None = None
        self.watchers: dict[FetchItem, None] = {}
        self.produce_queue: OrderedDict[DelayedProduce, int] = OrderedDict()
        self._low_watermark_watchers: dict[Callable[[], None], None] = {}

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else f"follower of {self.leader_id}"
        return f"Partition({self.topic_partition}, {role}, epoch {self.leader_epoch})"

    @property
    def is_leader(self) -> bool:
        return self.leader_id == self._host.broker_id

    @property
    def lost_tail(self) -> bool:
        return self.lost_mark is not None

    @property
    def local_log(self) -> Log:
        if self.log is None:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} has no log here"
            )
        return self.log

    @property
    def is_under_replicated(self) -> bool:
        return self.is_leader and len(self.isr.committed) < len(self.replicas)

    @property
    def min_isr(self) -> int:
        """`min.insync.replicas`, but never more than there are replicas."""
        return min(self.local_log.config.min_insync_replicas, len(self.replicas))

    @property
    def is_under_min_isr(self) -> bool:
        return self.is_leader and len(self.isr.committed) < self.min_isr

    # Becoming

    def make_leader(self, state: LeaderAndIsrPartitionState, log: Log) -> bool:
        """Lead, or lead on with a new state. Says whether we did not lead before."""
        if state.partition_epoch < self.partition_epoch:
            return False
        new_leader = not self.is_leader
        self.log = log
        self._take(state)
        self.lost_mark = None  # Whoever lets us lead has accepted the loss.
        now = self._host.now()
        for replica in self.replicas:
            if replica != self._host.broker_id and replica not in self.followers:
                self.followers[replica] = Follower(replica)
        for replica in self.followers.keys() - set(self.replicas):
            del self.followers[replica]
        if state.leader_epoch > self.leader_epoch:
            self.leader_epoch = state.leader_epoch
            self.leader_epoch_start = log.end_offset
            log.assign_epoch(state.leader_epoch, log.end_offset)
            for follower in self.followers.values():
                follower.new_epoch(
                    log.end_offset,
                    now,
                    in_sync=follower.id in self.isr.committed,
                    new_leader=new_leader,
                )
        self.leader_id = self._host.broker_id
        self._raise_high_watermark(now)
        self.wake_all()
        return new_leader

    def make_follower(self, state: LeaderAndIsrPartitionState, log: Log) -> bool:
        """Follow. Says whether the leader epoch is new, which restarts the fetcher."""
        if state.partition_epoch < self.partition_epoch:
            return False
        self.log = log
        is_new_epoch = state.leader_epoch > self.leader_epoch
        self._take(state)
        self.leader_id = state.leader
        self.leader_epoch = state.leader_epoch
        self.leader_epoch_start = None
        self.isr = Isr()
        self.followers.clear()
        self._leads_no_more(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.wake_all()
        return is_new_epoch

    def note_isr(self, isr: list[int]) -> None:
        """The controller names an ISR although nobody leads: the next leader is measured by it."""
        self._last_known_isr = tuple(isr)

    def _take(self, state: LeaderAndIsrPartitionState) -> None:
        if state.leader_epoch > self.leader_epoch:
            self.elected_from_isr = state.leader in self._last_known_isr
        self._last_known_isr = tuple(state.isr)
        self.controller_epoch = state.controller_epoch
        self.partition_epoch = state.partition_epoch
        self.replicas = tuple(state.replicas)
        self.adding = tuple(state.adding_replicas)
        self.removing = tuple(state.removing_replicas)
        self.isr = Isr(tuple(state.isr))
        self.proposal = None

    def release(self, error: ErrorCode) -> None:
        """This broker gives the partition up: everybody who waits for it is told."""
        self.leader_id = None
        self.isr = Isr()
        self.proposal = None
        self._leads_no_more(error)
        self.wake_all()
        for item in self.watchers:
            item.partition = None
        self.watchers.clear()

    # Asking

    def check_epoch(self, leader_epoch: int) -> None:
        """Fence: -1 asks for no check."""
        if leader_epoch == NO_EPOCH or leader_epoch == self.leader_epoch:
            return
        if leader_epoch < self.leader_epoch:
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"{self.topic_partition} is at leader epoch {self.leader_epoch}",
            )
        raise KafkaError(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"{self.topic_partition} is only at leader epoch {self.leader_epoch}",
        )

    def log_for(self, leader_epoch: int, *, leader_only: bool) -> Log:
        """The log, if the asker's idea of the leader is ours and, if it must, we are it."""
        if leader_epoch != NO_EPOCH:
            self.check_epoch(leader_epoch)
        is_refused = self.moved_away or (leader_only and self.leader_id != self._host.broker_id)
        if self.log is None or is_refused:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {self._host.broker_id} does not lead {self.topic_partition}",
            )
        return self.log

    def follower(self, replica_id: int, leader_epoch: int) -> Follower:
        follower = self.followers.get(replica_id)
        if follower is None:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER
                if leader_epoch == NO_EPOCH
                else ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"broker {replica_id} is no replica of {self.topic_partition}",
            )
        return follower

    def end_offset_for_epoch(self, current_epoch: int, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) that a follower compares its log with; (-1, -1) if unknown here."""
        log = self.log_for(current_epoch, leader_only=True)
        return log.epochs.end_offset_for(epoch, log.end_offset)

    def offset_for_timestamp(
        self, timestamp: int, isolation: int | None, leader_epoch: int, *, leader_only: bool
    ) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch); `isolation` is None for replicas, who see the end.

        Until a new leader's high watermark has passed the start of its epoch, it cannot say where
        the committed log ends: OFFSET_NOT_AVAILABLE.
        """
        log = self.log_for(leader_epoch, leader_only=leader_only)
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return -1, log.start_offset, self._epoch_at(log, log.start_offset)
        if isolation is None:
            end = log.end_offset
        else:
            end = log.last_stable_offset if isolation == 1 else log.high_watermark
        lags = (
            isolation is not None
            and self.leader_epoch_start is not None
            and self.leader_epoch_start > log.high_watermark
        )
        if timestamp != LATEST:
            if timestamp == MAX_TIMESTAMP:
                found = log.offset_of_greatest_timestamp()
            else:
                found = log.offset_for_timestamp(timestamp)
            if found is not None and found[1] < end:
                return found
        if lags:
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"the high watermark of {self.topic_partition} has not reached its leader epoch",
            )
        return (-1, end, self.leader_epoch) if timestamp == LATEST else None

    @staticmethod
    def _epoch_at(log: Log, offset: int) -> int:
        epoch = log.epochs.epoch_for_offset(offset)
        return NO_EPOCH if epoch is None else epoch

    # Writing

    def append(self, buffer: bytearray | memoryview, acks: int, origin: Origin) -> AppendInfo:
        """Append as leader. The caller calls `announce_append` when it has appended all it has."""
        log = self.log
        if log is None or self.leader_id != self._host.broker_id:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {self._host.broker_id} does not lead {self.topic_partition}",
            )
        if acks == -1 and len(self.isr.committed) < self.min_isr:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.topic_partition} has {len(self.isr.committed)} in-sync replicas,"
                f" {self.min_isr} are required",
            )
        old_end = log.end_offset
        info = log.append_as_leader(buffer, self.leader_epoch, origin=origin)
        for follower in self.followers.values():
            if follower.log_end == old_end:
                follower.leader_moves_on()
        if self.watchers and info.size_bytes and log.config.compression_type == "producer":
            stored = memoryview(buffer)[: info.size_bytes]
            self.fresh = info.first_offset, info.last_offset + 1, stored
        return info

    def announce_append(self, byte_count: int) -> None:
        """The log has grown: wake the followers' fetches, and move the mark if nobody else must."""
        for item in self.watchers:
            if item.owner.replica_id >= 0:
                fetch = item.news(byte_count)
                if fetch is not None:
                    self._host.wake(fetch, force=False)
        if len(self.isr.maximal) == 1:
            self._raise_high_watermark(self._host.now())

    def wait_for_commit(self, produce: DelayedProduce, offset: int) -> bool:
        """Queue a produce until the mark reaches `offset`. False if it has already."""
        if self.local_log.high_watermark >= offset:
            produce.results[self.topic_partition].error = self._commit_error()
            return False
        self.produce_queue[produce] = offset
        return True

    def _commit_error(self) -> ErrorCode:
        if len(self.isr.maximal) < self.min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def _release_produces(self, mark: int) -> None:
        queue = self.produce_queue
        while queue:
            produce, offset = next(iter(queue.items()))
            if offset > mark:
                return
            del queue[produce]
            produce.partition_done(self.topic_partition, self._commit_error())

    def _leads_no_more(self, error: ErrorCode) -> None:
        """Whoever waits for what only a leader can see, a commit or a deletion, waits in vain."""
        while self.produce_queue:
            produce, _ = self.produce_queue.popitem(last=False)
            produce.partition_done(self.topic_partition, error)
        for watcher in list(self._low_watermark_watchers):
            watcher()

    # Following the followers

    def record_fetch(self, follower: Follower, item: FetchItem, now: float) -> None:
        """A follower's fetch has arrived, and its offset is one we can serve."""
        log = self.local_log
        old_end, old_start = follower.log_end, follower.log_start
        link = item.owner.link
        follower.source = link
        follower.record_fetch(item.offset, item.log_start_offset, log.end_offset, now)
        if follower.id not in self.isr.maximal:
            item.owner.outsiders[item] = None
            if link is not None:
                self.consider(follower, link)
        else:
            item.owner.outsiders.pop(item, None)
        if follower.log_end != old_end:
            self._raise_high_watermark(now)
        if follower.log_start != old_start and self._low_watermark_watchers:
            for watcher in list(self._low_watermark_watchers):
                watcher()

    def consider(self, follower: Follower, link: FollowerLink) -> None:
        """Propose this follower for the ISR if it has what a member must have."""
        log = self.local_log
        if not may_join(follower, self.isr, log.high_watermark, self.leader_epoch_start):
            return
        if not self._host.is_alive(follower.id):
            return
        if not link.is_proven:
            self._host.identify(link)
            return
        self.isr = self.isr.expanding(follower.id)
        self._propose(link)

    def shrink(self) -> bool:
        """Propose the ISR without those who lag. Called every half lag time."""
        if not self.is_leader or self.log is None:
            return False
        if self.log.high_watermark < self.log.end_offset:
            # Somebody outside the ISR may have been waited for, and be no longer.
            self._raise_high_watermark(self._host.now())
        gone = out_of_sync(
            self.log.end_offset,
            self.followers.values(),
            self.isr,
            now=self._host.now(),
            lag_max_s=self._host.lag_max_s,
        )
        if not gone:
            return False
        self.isr = self.isr.shrinking(gone)
        self._propose()
        return True

    def _propose(self, link: FollowerLink | None = None) -> None:
        assert self.isr.proposed is not None
        self.proposal = IsrProposal(self, self.isr.proposed, link)
        self._host.propose(self.proposal)

    def proposal_taken(self, proposal: IsrProposal, partition_epoch: int) -> bool:
        """The store has it. False if the controller has told us of a newer state meanwhile."""
        if proposal is not self.proposal:
            return False
        self.proposal = None
        self.isr = Isr(proposal.isr)
        self._last_known_isr = proposal.isr
        self.partition_epoch = partition_epoch
        self._look_out_for_outsiders()
        self._raise_high_watermark(self._host.now())
        return True

    def proposal_void(self, proposal: IsrProposal, partition_epoch: int | None = None) -> None:
        """Who was to join is not the incarnation whose fetches we judged: nothing of it counts.

        The partition epoch is given if the change was written and had to be taken back.
        """
        if proposal is not self.proposal:
            return
        assert proposal.link is not None
        self.proposal = None
        self.isr = Isr(self.isr.committed)
        if partition_epoch is not None:
            self.partition_epoch = partition_epoch
        joining = proposal.link.broker_id
        if joining in self.followers:
            self.followers[joining] = Follower(joining)
        self._look_out_for_outsiders()

    def _look_out_for_outsiders(self) -> None:
        """Who is outside the ISR, and was in it or about to be when it last named us, may have
        caught up since, and then does not name us again."""
        for item in self.watchers:
            if item.owner.replica_id >= 0 and item.owner.replica_id not in self.isr.committed:
                item.owner.outsiders[item] = None

    def _raise_high_watermark(self, now: float) -> bool:
        log = self.log
        if log is None or self.leader_id != self._host.broker_id:
            return False
        if len(self.isr.committed) < self.min_isr:
            return False
        mark = high_watermark(
            log.end_offset,
            self.followers.values(),
            self.isr,
            now=now,
            lag_max_s=self._host.lag_max_s,
            is_alive=self._host.is_alive,
        )
        if mark <= log.high_watermark:
            return False
        log.set_high_watermark(mark)
        self._release_produces(mark)
        self._announce_high_watermark()
        return True

    def _announce_high_watermark(self) -> None:
        """Consumers may read on; followers are to be told the mark with their next answer."""
        total = self.local_log.appended_bytes
        for item in self.watchers:
            if item.owner.replica_id >= 0:
                item.news(0)
                continue
            fetch = item.news(max(1, total - item.bytes_seen))
            item.bytes_seen = total
            if fetch is not None:
                self._host.wake(fetch, force=False)

    def follower_high_watermark(self, leader_mark: int) -> None:
        """As follower: take over the leader's mark; our own consumers may read on."""
        log = self.local_log
        if self.lost_tail and leader_mark <= log.end_offset:
            self.lost_mark = None  # We have again all that is committed.
        mark = max(min(leader_mark, log.end_offset), log.start_offset)
        if mark != log.high_watermark:
            log.set_high_watermark(mark)
            if self.watchers:
                self._announce_high_watermark()

    def truncate(self, offset: int) -> bool:
        """As follower: cut the log, and its copy in another directory with it."""
        self._cut_copy(lambda copy: copy.truncate_to(offset))
        return self.local_log.truncate_to(offset)

    def restart_at(self, offset: int) -> None:
        """As follower: throw everything away and go on at `offset`."""
        self._cut_copy(lambda copy: copy.truncate_fully_and_start_at(offset))
        self.local_log.truncate_fully_and_start_at(offset)

    def _cut_copy(self, cut: Callable[[Log], object]) -> None:
        """A disk that fails at this ends the move, and not the replica, which is on another."""
        if self.future_log is not None:
            try:
                cut(self.future_log)
            except KafkaError:
                self.future_log = None

    def watch(self, item: FetchItem) -> None:
        """Tell this item of everything new from now on."""
        item.partition = self
        item.bytes_seen = 0 if self.log is None else self.log.appended_bytes
        self.watchers[item] = None

    def unwatch(self, item: FetchItem) -> None:
        """This item asks no more: its session's later fetches say nothing about us."""
        self.watchers.pop(item, None)
        link = item.owner.link
        follower = None if link is None else self.followers.get(link.broker_id)
        if follower is not None and follower.source is link:
            if self.log is not None and follower.log_end == self.log.end_offset:
                follower.leader_moves_on()
            follower.source = None

    def wake_all(self) -> None:
        """The state changed: every parked fetch looks again, whatever it waits for."""
        for item in self.watchers:
            item.news(0)
            if item.owner.parked is not None:
                self._host.wake(item.owner.parked, force=True)

    # The start of the log

    @property
    def low_watermark(self) -> int:
        """The greatest log start that every live replica has reached.

        docs/spec/controller-and-replication.md 5.6.
        """
        mark = self.local_log.start_offset
        for follower in self.followers.values():
            if follower.log_start < mark and self._host.is_alive(follower.id):
                mark = follower.log_start
        return mark

    def delete_records(self, before: int) -> int:
        """Raise the start of the log as leader; -1 asks for the high watermark. The new start."""
        log = self.log_for(NO_EPOCH, leader_only=True)
        if not log.config.delete:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{self.topic_partition} is compacted: records cannot be deleted by offset",
            )
        offset = log.high_watermark if before == -1 else before
        if offset < 0 or offset > log.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{offset} is not between 0 and the high watermark {log.high_watermark}",
            )
        if offset > log.start_offset:
            log.advance_start_offset(offset)
            self.wake_all()
            self._host.run_wakeups()
        return offset

    def watch_low_watermark(self, watcher: Callable[[], None]) -> None:
        self._low_watermark_watchers[watcher] = None

    def unwatch_low_watermark(self, watcher: Callable[[], None]) -> None:
        self._low_watermark_watchers.pop(watcher, None)

    def statistics(self) -> dict[str, int]:
        log = self.log
        return {
            "leader_epoch": self.leader_epoch,
            "partition_epoch": self.partition_epoch,
            "isr": len(self.isr.committed),
            "replicas": len(self.replicas),
            "start_offset": log.start_offset if log else -1,
            "high_watermark": log.high_watermark if log else -1,
            "end_offset": log.end_offset if log else -1,
            "waiting_produces": len(self.produce_queue),
            "watching_fetches": len(self.watchers),
        }
