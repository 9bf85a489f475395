"""Leadership: who leads a partition and who is in sync, and how each decision changes that.

The value is what the state node holds. Every decision of the controller raises the leader epoch
by one, also when the leader stays: brokers ignore a LeaderAndIsr whose leader epoch they have
seen, and replicas use the epoch to find where their logs part.
docs/spec/controller-and-replication.md sections 2, 3 and 4.7.
"""

from collections.abc import Collection
from dataclasses import dataclass

from odradek.controller import elections
from odradek.controller.assignment import ReplicaAssignment
from odradek.controller.elections import Strategy
from odradek.store.payloads import PartitionState as Leadership

__all__ = [
    "EPOCH_DURING_DELETE",
    "INITIAL_EPOCH",
    "LEADER_DURING_DELETE",
    "NO_EPOCH",
    "NO_LEADER",
    "Election",
    "Leadership",
    "elect",
    "has_preferred_leader",
    "initial",
    "raised",
    "without_replica",
]

NO_LEADER = -1
NO_EPOCH = -1
LEADER_DURING_DELETE = -2
EPOCH_DURING_DELETE = -2
INITIAL_EPOCH = 0


@dataclass(frozen=True, slots=True)
class Election:
    """What an election decides: the new leadership, and the brokers that must hear of it."""

    leadership: Leadership
    recipients: tuple[int, ...]


def initial(live: tuple[int, ...], controller_epoch: int) -> Leadership | None:
    """The first leadership of a partition; None while no replica is live."""
    if not live:
        return None
    return Leadership(live[0], INITIAL_EPOCH, live, controller_epoch)


def raised(leadership: Leadership, controller_epoch: int) -> Leadership:
    """Leader and ISR stay; the next epoch lets the replicas take a changed assignment to heart."""
    return _decided(leadership, leadership.leader, leadership.isr, controller_epoch)


def without_replica(leadership: Leadership, replica: int, controller_epoch: int) -> Leadership:
    """The leadership after a replica went offline.

    docs/spec/controller-and-replication.md section 2, the ISR removal rule.

    The last member of the ISR is never removed: it is the only one known to have everything.
    """
    isr = leadership.isr
    if len(isr) > 1:
        isr = tuple(member for member in isr if member != replica)
    leader = NO_LEADER if leadership.leader == replica else leadership.leader
    return _decided(leadership, leader, isr, controller_epoch)


def elect(
    strategy: Strategy,
    assignment: ReplicaAssignment,
    leadership: Leadership,
    *,
    live: Collection[int],
    shutting_down: Collection[int],
    controller_epoch: int,
    unclean: bool = False,
) -> Election | None:
    """The outcome of an election, or None if nobody is eligible.

    `live` are the replicas that are online; for a controlled shutdown it counts those that are
    shutting down too. `unclean` is whether loss is accepted for this partition.
    """
    replicas, isr = assignment.replicas, leadership.isr
    if strategy is Strategy.PREFERRED:
        leader = elections.preferred(replicas, isr, live)
        recipients = tuple(replicas)
    elif strategy is Strategy.REASSIGN:
        target = assignment.target
        leader = elections.reassigned(target, isr, live)
        recipients = target
    elif strategy is Strategy.CONTROLLED_SHUTDOWN:
        leader = elections.controlled_shutdown(replicas, isr, live, shutting_down)
        recipients = tuple(replica for replica in replicas if replica in live)
        isr = tuple(member for member in isr if member not in shutting_down)
    else:
        leader = elections.offline(replicas, isr, live, unclean)
        recipients = tuple(replica for replica in replicas if replica in live)
        if leader in isr:
            isr = tuple(member for member in isr if member in live)
        elif leader is not None:
            isr = (leader,)
    if leader is None:
        return None
    return Election(_decided(leadership, leader, isr, controller_epoch), recipients)


def has_preferred_leader(assignment: ReplicaAssignment, leadership: Leadership) -> bool:
    """Whether leadership is at home.

    docs/spec/controller-and-replication.md section 4.6, the imbalance metric.

    A first replica that is still being added cannot lead before it is in the ISR, so until then
    the partition counts as balanced, and from then on as imbalanced.
    """
    first = assignment.replicas[0]
    if first in assignment.adding:
        return first not in leadership.isr
    return leadership.leader == first


def _decided(
    previous: Leadership, leader: int, isr: tuple[int, ...], controller_epoch: int
) -> Leadership:
    return Leadership(
        leader,
        previous.leader_epoch + 1,
        isr,
        controller_epoch,
        previous.partition_epoch,
        previous.recovering,
    )
