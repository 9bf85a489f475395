"""LeaderAndIsr: which replica leads a partition and which are in sync, and how decisions change it.

The value is what the state node holds. Every decision of the controller raises the leader epoch
by one, also when the leader stays: brokers ignore a LeaderAndIsr whose leader epoch they have
seen, and replicas use the epoch to find where their logs diverge.
docs/spec/controller-and-replication.md sections 2, 3 and 4.7.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from odradek.controller import elections
from odradek.controller.assignment import ReplicaAssignment
from odradek.controller.elections import Strategy
from odradek.store.payloads import NO_LEADER, LeaderAndIsr

INITIAL_EPOCH = 0


@dataclass(frozen=True, slots=True)
class Election:
    """What an election decides: the new state, and the brokers that are informed of it."""

    leader_and_isr: LeaderAndIsr
    recipients: tuple[int, ...]
    is_unclean: bool = False  # the leader was not in the ISR: records may be lost


def initial(live: tuple[int, ...], controller_epoch: int) -> LeaderAndIsr | None:
    """The first leadership of a partition; None while no replica is live."""
    if not live:
        return None
    return LeaderAndIsr(live[0], INITIAL_EPOCH, live, controller_epoch)


def raised(leader_and_isr: LeaderAndIsr, controller_epoch: int) -> LeaderAndIsr:
    """Leader and ISR stay; the next epoch makes the replicas take over a changed assignment."""
    return _decided(leader_and_isr, leader_and_isr.leader, leader_and_isr.isr, controller_epoch)


def without_replica(
    leader_and_isr: LeaderAndIsr, replica: int, controller_epoch: int
) -> LeaderAndIsr:
    """The state after a replica went offline: the ISR removal rule.

    docs/spec/controller-and-replication.md section 2. The last member of the ISR is never removed:
    it is the only one known to have everything.
    """
    isr = leader_and_isr.isr
    if len(isr) > 1:
        isr = tuple(member for member in isr if member != replica)
    leader = NO_LEADER if leader_and_isr.leader == replica else leader_and_isr.leader
    return _decided(leader_and_isr, leader, isr, controller_epoch)


def elect(
    strategy: Strategy,
    assignment: ReplicaAssignment,
    leader_and_isr: LeaderAndIsr,
    *,
    live: Collection[int],
    shutting_down: Collection[int],
    controller_epoch: int,
    unclean: bool = False,
    marks_recovery: bool = False,
) -> Election | None:
    """The outcome of an election, or None if no replica is eligible.

    `live` are the replicas that are online; for a controlled shutdown it counts those that are
    shutting down too. `unclean` is whether loss is accepted for this partition,
    `marks_recovery` whether the state then says so until the ISR changes (KIP-704).
    """
    replicas, isr = assignment.replicas, leader_and_isr.isr
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
    decided = _decided(leader_and_isr, leader, isr, controller_epoch)
    is_unclean = leader not in leader_and_isr.isr
    if is_unclean and marks_recovery:
        decided = replace(decided, recovering=True)
    return Election(decided, recipients, is_unclean=is_unclean)


def has_preferred_leader(assignment: ReplicaAssignment, leader_and_isr: LeaderAndIsr) -> bool:
    """Whether the preferred replica leads: the imbalance metric.

    docs/spec/controller-and-replication.md section 4.6. A first replica that is still being added
    cannot lead before it is in the ISR, so until then the partition counts as balanced, and from
    then on as imbalanced.
    """
    first = assignment.replicas[0]
    if first in assignment.adding:
        return first not in leader_and_isr.isr
    return leader_and_isr.leader == first


def _decided(
    previous: LeaderAndIsr, leader: int, isr: tuple[int, ...], controller_epoch: int
) -> LeaderAndIsr:
    return LeaderAndIsr(
        leader,
        previous.leader_epoch + 1,
        isr,
        controller_epoch,
        previous.partition_epoch,
        previous.recovering,
    )
