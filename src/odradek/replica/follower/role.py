"""Following one leader for one leader epoch."""

from typing import ClassVar
from uuid import UUID

from odradek.replica.local_replica import LocalReplica
from odradek.wire.topic_ids import NO_TOPIC_ID

__all__ = ["FollowerRole"]


class FollowerRole:
    """What a replica is to its leader, from one LeaderAndIsr to the next."""

    is_leader: ClassVar[bool] = False

    __slots__ = ("elected_from_isr", "epoch", "leader_id", "replica", "topic_id")

    def __init__(
        self,
        replica: LocalReplica,
        leader_id: int,
        epoch: int,
        *,
        elected_from_isr: bool,
        topic_id: UUID = NO_TOPIC_ID,
    ) -> None:
        self.replica = replica
        self.leader_id = leader_id
        self.epoch = epoch
        # The leader was in the last ISR known here: it has every committed record, or lost some.
        self.elected_from_isr = elected_from_isr
        # What the controller calls the topic, which need not be what the log knows: zero if it
        # speaks of no ids, and then the leader is asked by name.
        self.topic_id = topic_id

    def advance_high_watermark(self, leader_mark: int) -> None:
        """Take over the leader's high watermark; consumers of this replica may read on."""
        replica, log = self.replica, self.replica.open_log
        before_loss = replica.high_watermark_before_loss
        if before_loss is not None and leader_mark <= log.end_offset:
            replica.high_watermark_before_loss = None  # Everything committed is here again.
        mark = max(min(leader_mark, log.end_offset), log.start_offset)
        if mark != log.high_watermark:
            log.set_high_watermark(mark)
            if replica.watchers.items:
                replica.watchers.high_watermark_moved(log.appended_bytes)
