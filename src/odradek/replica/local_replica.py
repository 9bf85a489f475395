"""This broker's own replica of a partition: its log, and the fetches that watch it.

Leading or following is a role on top of it (leader/role.py, follower/role.py); a role comes and
goes with the leader epoch, the replica stays.
"""

from collections.abc import Callable

from odradek.log.log import Log
from odradek.replica.leader.fetch_state import Wakeups, Watchers
from odradek.replica.traffic import PartitionCounters, TopicCounters
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

__all__ = ["LocalReplica"]


class LocalReplica:
    """The log, its copy in another directory while it is being moved, and its watchers."""

    __slots__ = (
        "counters",
        "future_log",
        "high_watermark_before_loss",
        "load",
        "log",
        "tp",
        "wakeups",
        "watchers",
    )

    def __init__(self, tp: TopicPartition, wakeups: Wakeups) -> None:
        self.tp = tp
        self.wakeups = wakeups
        self.watchers = Watchers(wakeups)
        self.log: Log | None = None
        # Of its topic, from the first append on: a topic that is not used has none.
        self.counters: TopicCounters | None = None
        self.load = PartitionCounters()
        self.future_log: Log | None = None
        # How far this replica knew to be committed, if it was loaded with fewer records than that.
        # Kept on disk in place of the high watermark: it must survive a restart.
        self.high_watermark_before_loss: int | None = None

    @property
    def open_log(self) -> Log:
        if self.log is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.tp} has no log here")
        return self.log

    def truncate_to(self, offset: int) -> bool:
        """Truncate the log, and its copy with it. Returns whether the log was any longer."""
        self._truncate_copy(lambda copy: copy.truncate_to(offset))
        return self.open_log.truncate_to(offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop every record and go on at `offset`."""
        self._truncate_copy(lambda copy: copy.truncate_fully_and_start_at(offset))
        self.open_log.truncate_fully_and_start_at(offset)

    def _truncate_copy(self, truncate: Callable[[Log], object]) -> None:
        """A disk that fails at this ends the move, and not the replica, which is on another."""
        if self.future_log is not None:
            try:
                truncate(self.future_log)
            except KafkaError:
                self.future_log = None
