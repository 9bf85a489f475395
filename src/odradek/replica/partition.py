"""One partition as this broker hosts it: its replica here, an epoch fence, and a role.

Rules
1. A leader epoch makes a role. Every request that a leader serves carries or implies one; an older
   one is fenced, a newer one is unknown (docs/spec/controller-and-replication.md section 5.2).
2. A role lives for one leader epoch: `LeaderRole` (leader/role.py) or `FollowerRole`
   (follower/role.py), or none before the first and after the partition was stopped. Everything that
   only a leader knows, the ISR, its followers, waiting produces, is dropped with its role.

A hole of ZooKeeper mode is closed here and in follower/truncation.py (KIP-966): a replica that
knows it lost committed records refuses to lead (`Partition.lost_tail`), while a follower refuses to
truncate below its own high watermark for a leader that was elected from the ISR.
"""

from uuid import UUID

from odradek.log.config import FOREVER
from odradek.log.log import Log
from odradek.replica.follower.role import FollowerRole
from odradek.replica.leader.fetch_state import FetchItem, Wakeups
from odradek.replica.leader.role import LeaderContext, LeaderRole
from odradek.replica.local_replica import LocalReplica
from odradek.store.payloads import NO_EPOCH
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.leader_and_isr import LeaderAndIsrPartitionState
from odradek.wire.messages.list_offsets import EARLIEST, LATEST
from odradek.wire.topic_ids import NO_TOPIC_ID
from odradek.wire.topics import TopicPartition

__all__ = ["Partition"]

MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4


class Partition:
    """One hosted partition."""

    def __init__(self, tp: TopicPartition, context: LeaderContext, wakeups: Wakeups) -> None:
        self.tp = tp
        self._context = context
        self.replica = LocalReplica(tp, wakeups)
        self.role: LeaderRole | FollowerRole | None = None
        self.leader_epoch = NO_EPOCH
        self._partition_epoch = NO_EPOCH
        # The last ISR heard of: the next leader was elected from it, or uncleanly.
        self._last_known_isr: tuple[int, ...] = ()
        # By a reassignment that is under way.
        self.is_being_added = False
        # Released because it is elsewhere now (control_requests.py, rule 5), not heard of since.
        self.moved_away = False

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else f"follower of {self.leader_id}"
        return f"Partition({self.tp}, {role}, epoch {self.leader_epoch})"

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, LeaderRole)

    @property
    def leader_id(self) -> int | None:
        return None if self.role is None else self.role.leader_id

    @property
    def leader(self) -> LeaderRole:
        """The leader role, or NOT_LEADER_OR_FOLLOWER."""
        role = self.role
        if isinstance(role, LeaderRole):
            return role
        raise KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"broker {self._context.broker_id} does not lead {self.tp}",
        )

    @property
    def partition_epoch(self) -> int:
        """The version of the state known here; a leader writes the state, and so raises it."""
        role = self.role
        return role.partition_epoch if isinstance(role, LeaderRole) else self._partition_epoch

    @property
    def log(self) -> Log | None:
        return self.replica.log

    @property
    def local_log(self) -> Log:
        return self.replica.open_log

    @property
    def lost_tail(self) -> bool:
        return self.replica.high_watermark_before_loss is not None

    def is_of_topic(self, topic_id: UUID) -> bool:
        """Whether the log here is of this topic, as far as both ids are known."""
        log = self.replica.log
        return (
            log is None
            or log.metadata.topic_id in (topic_id, NO_TOPIC_ID)
            or topic_id == NO_TOPIC_ID
        )

    # Roles

    def make_leader(self, state: LeaderAndIsrPartitionState) -> bool:
        """Lead in a new epoch. Returns whether this broker did not lead before."""
        if not self._fence(state):
            return False
        replica = self.replica
        # The controller lets this replica lead: a loss was accepted, or there is no other replica.
        replica.high_watermark_before_loss = None
        predecessor = self.role if isinstance(self.role, LeaderRole) else None
        role = LeaderRole(self._context, replica, state, predecessor)
        self.role = role
        role.start()
        return predecessor is None

    def make_follower(
        self, state: LeaderAndIsrPartitionState, topic_id: UUID = NO_TOPIC_ID
    ) -> bool:
        """Follow in a new epoch. Returns False if the state is older than the one known here."""
        # Where loss was accepted, the leader may be shorter than what is committed.
        elected_from_isr = state.leader in self._known_isr() and not state.is_unclean
        if not self._fence(state):
            return False
        role = FollowerRole(
            self.replica,
            state.leader,
            state.leader_epoch,
            elected_from_isr=elected_from_isr,
            topic_id=topic_id,
        )
        self._replace_role(role, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return True

    def note_isr(self, isr: list[int]) -> None:
        """The controller names an ISR without a leader: the next leader is measured by it."""
        self._last_known_isr = tuple(isr)

    def release(self, error: ErrorCode) -> None:
        """This broker stops serving the partition: everything that waits for it gets `error`."""
        self._last_known_isr = self._known_isr()
        self._partition_epoch = self.partition_epoch
        self._replace_role(None, error)
        watchers = self.replica.watchers.items
        for item in watchers:
            item.partition = None
        watchers.clear()

    def _fence(self, state: LeaderAndIsrPartitionState) -> bool:
        """Take over the epochs of a state, unless a later one is known."""
        if state.partition_epoch < self.partition_epoch:
            return False
        assert state.leader_epoch > self.leader_epoch, (self, state.leader_epoch)
        self.leader_epoch = state.leader_epoch
        self._partition_epoch = state.partition_epoch
        self._last_known_isr = tuple(state.isr)
        self.is_being_added = self._context.broker_id in state.adding_replicas
        return True

    def _known_isr(self) -> tuple[int, ...]:
        role = self.role
        return role.isr.committed if isinstance(role, LeaderRole) else self._last_known_isr

    def _replace_role(self, role: FollowerRole | None, error: ErrorCode) -> None:
        before, self.role = self.role, role
        if isinstance(before, LeaderRole):
            before.close(error)
        self.replica.watchers.wake_all()

    # Asking

    def check_epoch(self, leader_epoch: int) -> None:
        """Fence: -1 asks for no check."""
        if leader_epoch == NO_EPOCH or leader_epoch == self.leader_epoch:
            return
        if leader_epoch < self.leader_epoch:
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH, f"{self.tp} is at leader epoch {self.leader_epoch}"
            )
        raise KafkaError(
            ErrorCode.UNKNOWN_LEADER_EPOCH, f"{self.tp} is only at leader epoch {self.leader_epoch}"
        )

    def log_for(self, leader_epoch: int, *, leader_only: bool) -> Log:
        """The log, if the request's leader epoch is ours and, if it must, this broker leads."""
        if leader_epoch != NO_EPOCH:
            self.check_epoch(leader_epoch)
        log = self.replica.log
        is_refused = self.moved_away or (leader_only and not isinstance(self.role, LeaderRole))
        if log is None or is_refused:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {self._context.broker_id} does not lead {self.tp}",
            )
        return log

    def end_offset_for_epoch(self, current_epoch: int, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) that a follower compares its log with; (-1, -1) if unknown here."""
        log = self.log_for(current_epoch, leader_only=True)
        return log.epochs.end_offset_for(epoch, log.end_offset)

    def offset_for_timestamp(
        self, timestamp: int, isolation: int | None, leader_epoch: int, *, leader_only: bool
    ) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch); `isolation` is None for replicas, which see the end.

        Until a new leader's high watermark has passed the start of its epoch, it cannot say where
        the committed log ends: OFFSET_NOT_AVAILABLE.
        """
        log = self.log_for(leader_epoch, leader_only=leader_only)
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return -1, log.start_offset, _epoch_at(log, log.start_offset)
        if isolation is None:
            end = log.end_offset
        else:
            end = log.last_stable_offset if isolation == 1 else log.high_watermark
        if timestamp != LATEST:
            if timestamp == MAX_TIMESTAMP:
                found = log.offset_of_greatest_timestamp()
            else:
                found = log.offset_for_timestamp(timestamp)
            if found is not None and found[1] < end:
                return found
        role = self.role
        if (
            isolation is not None
            and isinstance(role, LeaderRole)
            and role.epoch_start > log.high_watermark
        ):
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE,
                f"the high watermark of {self.tp} has not reached leader epoch {role.epoch}",
            )
        return (-1, end, self.leader_epoch) if timestamp == LATEST else None

    def offsets_before(
        self, timestamp: int, count_max: int, *, committed: bool, leader_only: bool
    ) -> list[int]:
        """What ListOffsets v0 asks for: up to so many offsets before a time, the greatest first.
        With `committed`, the high watermark in the place of those beyond it."""
        log = self.log_for(NO_EPOCH, leader_only=leader_only)
        if timestamp == EARLIEST:
            found = [log.start_offset][:count_max]
        else:
            found = log.offsets_before(FOREVER if timestamp == LATEST else timestamp, count_max)
        if committed and found and found[0] > log.high_watermark:
            mark = log.high_watermark
            return [mark, *(offset for offset in found if offset <= mark)]
        return found

    # Watching

    def watch(self, item: FetchItem) -> None:
        """Notify this item of everything new from now on."""
        replica = self.replica
        item.partition = self
        item.bytes_seen = 0 if replica.log is None else replica.log.appended_bytes
        replica.watchers.items[item] = None

    def unwatch(self, item: FetchItem) -> None:
        self.replica.watchers.items.pop(item, None)
        link = item.owner.link
        if link is not None and isinstance(self.role, LeaderRole):
            self.role.forget_source(link)


def _epoch_at(log: Log, offset: int) -> int:
    epoch = log.epochs.epoch_for_offset(offset)
    return NO_EPOCH if epoch is None else epoch
