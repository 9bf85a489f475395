"""What the fetches of followers say about the followers: the one step of serving a fetch that
changes anything. It may move high watermarks and ISRs.

docs/spec/controller-and-replication.md section 5.3.
"""

from collections.abc import Callable

from odradek.replica.hosted_partitions import HostedPartitions
from odradek.replica.leader.fetch_state import FetchItem, FetchSet, FollowerLink
from odradek.replica.leader.role import LeaderRole

__all__ = ["FollowerFetches"]


class FollowerFetches:
    """The followers' links to this broker."""

    def __init__(self, partitions: HostedPartitions, is_alive: Callable[[int], bool]) -> None:
        self._partitions = partitions
        self._is_alive = is_alive
        self._links: dict[int, FollowerLink] = {}

    def observe(
        self, fetch_set: FetchSet, items: list[FetchItem], now: float, replica_epoch: int
    ) -> bool:
        """Note a follower's fetch, of which `items` are to be read. Returns whether it should be
        answered at once, so that the next one proves which incarnation fetches: from v15 on a fetch
        says so itself (KIP-903)."""
        link = fetch_set.link
        if link is None:
            link = fetch_set.link = self._link(fetch_set)
        link.fetch_arrived(now)
        if replica_epoch >= 0:
            link.named_itself(replica_epoch)
        if fetch_set.outside_isr:
            for item in list(fetch_set.outside_isr):
                if not item.is_in_request and item.partition is not None:
                    role = item.partition.role
                    if isinstance(role, LeaderRole):
                        role.observe_unnamed(item, link, now)
        for item in items:
            if item.is_in_request:
                partition = item.partition or self._partitions.get(item.tp)
                if (
                    partition is not None
                    and isinstance(partition.role, LeaderRole)
                    and partition.is_of_topic(item.topic_id)
                ):
                    item.is_in_request = not partition.role.observe(item, now)
        return link.epoch is not None and not link.is_proven

    def _link(self, fetch_set: FetchSet) -> FollowerLink:
        broker_id = fetch_set.replica_id
        if fetch_set.is_session or not self._is_alive(broker_id):
            # A client may invent an id: nothing is kept of one that is no broker's. Nor is more
            # needed of a broker that is not known yet, for it may not join before it is.
            return FollowerLink(broker_id)
        return self._links.setdefault(broker_id, FollowerLink(broker_id))
