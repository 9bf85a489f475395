"""What goes with a change of roles: fetchers, moves between directories, and listeners."""

from collections.abc import Callable, Collection

from odradek.replica.follower.fetcher_manager import FetcherManager
from odradek.replica.hosted_partitions import HostedPartitions
from odradek.replica.leader.fetch_state import Wakeups
from odradek.replica.log_dir_moves import LogDirMoves
from odradek.replica.partition import Partition
from odradek.wire.errors import ErrorCode
from odradek.wire.topics import TopicPartition

__all__ = ["LeadershipListener", "RoleChanges"]

LeadershipListener = Callable[[list[Partition], list[Partition]], None]


class RoleChanges:
    """Carries changes of roles out. `announce` ends each batch of them."""

    def __init__(
        self,
        partitions: HostedPartitions,
        fetchers: FetcherManager,
        moves: LogDirMoves,
        wakeups: Wakeups,
    ) -> None:
        self._partitions = partitions
        self.fetchers = fetchers
        self.moves = moves
        self._wakeups = wakeups
        # Called after every change of roles: (now led, now followed or no longer here).
        self.listeners: list[LeadershipListener] = []

    def follow(self, partitions: Collection[Partition]) -> None:
        """Fetch these from the leaders of their roles, and no longer from earlier ones."""
        self.fetchers.remove(partition.tp for partition in partitions)
        self.fetchers.add(partitions)

    def take_offline(self, tp: TopicPartition) -> Partition | None:
        """The partition's directory has failed: KAFKA_STORAGE_ERROR from now on."""
        self._partitions.offline.add(tp)
        self.fetchers.remove([tp])
        self.moves.stop(tp)
        partition = self._partitions.pop(tp, None)
        if partition is not None:
            partition.release(ErrorCode.KAFKA_STORAGE_ERROR)
        return partition

    def announce(self, led: list[Partition], followed: list[Partition]) -> None:
        """Run what the changes woke, then call the listeners."""
        self._wakeups.run()
        self.fetchers.close_idle()
        if led or followed:
            for listener in self.listeners:
                listener(led, followed)
