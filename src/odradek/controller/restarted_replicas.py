"""Replicas that came back: whose copy may be shorter than the ISR says. KIP-903 and KIP-966.

A broker that restarts may have lost the end of its logs, or all of them. The ISR does not say
which incarnation of a broker it means, so a plain copy of Kafka's controller trusts a name. Two
ways to lose records follow: a leader adds a replica on the strength of what its earlier
incarnation had fetched; and a replica that came back short is elected, and the others truncate to
it.

While active we see every broker leave, and take its replicas out of the ISR then, or write the
state of partitions where they are not in it, so that an ISR change decided before cannot pass its
version check. What happened while no controller was active can be read from the store, with no new
format: its transactions are numbered, a broker's epoch is the number of its registration, and a
state node knows the number of its last write. Where the registration is the later of the two, the
replica *came back* since, and the ISR speaks of an earlier incarnation.

The last in-sync replica is different: no other is known to have everything, and most restarts
lose nothing, so it is elected when it comes back, as in Kafka, but always in a new leader epoch.
It knows itself whether its log ended early, and refuses the leadership of that partition then by
answering KAFKA_STORAGE_ERROR. The partition goes offline, the ISR stays, no replica truncates,
and an operator decides with an unclean election. Nothing is lost silently.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from odradek.controller.assignment import ReplicaAssignment
from odradek.store.payloads import LeaderAndIsr


@dataclass(frozen=True, slots=True)
class IsrRepair:
    """What a new controller does about a partition whose replicas came back."""

    leaving: tuple[int, ...] = ()  # members of the ISR that must earn their place again
    raise_epoch: bool = False  # no replica leaves, but the old epoch must end

    def __bool__(self) -> bool:
        return bool(self.leaving) or self.raise_epoch


NO_REPAIR = IsrRepair()


def repair_after_restart(
    assignment: ReplicaAssignment,
    leader_and_isr: LeaderAndIsr,
    written: int,
    live_epochs: Mapping[int, int],
) -> IsrRepair:
    """`written`: the transaction that last wrote the state; `live_epochs`: the registrations'.

    Members that came back leave the ISR if one stayed. Otherwise a leader that came back goes on in
    a new epoch; and where a replica outside the ISR came back, writing a new epoch keeps out an ISR
    change decided before.
    """
    came_back = {
        replica
        for replica in (*assignment.replicas, *leader_and_isr.isr)
        if live_epochs.get(replica, -1) > written
    }
    if not came_back:
        return NO_REPAIR
    stayed = any(m in live_epochs and m not in came_back for m in leader_and_isr.isr)
    leaving = tuple(member for member in leader_and_isr.isr if stayed and member in came_back)
    if leaving:
        return IsrRepair(leaving)
    outside = any(replica not in leader_and_isr.isr for replica in came_back)
    leads = leader_and_isr.leader in live_epochs
    return IsrRepair(raise_epoch=leads and (leader_and_isr.leader in came_back or outside))
