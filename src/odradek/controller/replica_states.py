"""Replica states: where each copy of a partition is in its life, as the controller sees it.

Rules
1. Only this module says which transition is legal and what it entails. A caller asks; it never
   checks for itself.
2. An illegal transition is recorded and skipped: the others in the same call are done.
3. What a transition entails is a row of a table. `replica_state_machine` carries it out.

A replica is born NEW, serves ONLINE, and goes OFFLINE when its broker or its disk does. It is
deleted in three steps (started, successful, non-existent) so that a broker that is down cannot
make us forget a copy that still exists: such a copy is INELIGIBLE until its broker is back and
the deletion is tried again. NON_EXISTENT is the state of whatever we have never heard of.
docs/spec/controller-and-replication.md section 2.
"""

from collections.abc import Mapping
from enum import Enum, IntEnum


class ReplicaState(IntEnum):
    """Kafka's seven states, with Kafka's codes."""

    NEW = 1
    ONLINE = 2
    OFFLINE = 3
    DELETION_STARTED = 4
    DELETION_SUCCESSFUL = 5
    DELETION_INELIGIBLE = 6
    NON_EXISTENT = 7


NEW = ReplicaState.NEW
ONLINE = ReplicaState.ONLINE
OFFLINE = ReplicaState.OFFLINE
DELETION_STARTED = ReplicaState.DELETION_STARTED
DELETION_SUCCESSFUL = ReplicaState.DELETION_SUCCESSFUL
DELETION_INELIGIBLE = ReplicaState.DELETION_INELIGIBLE
NON_EXISTENT = ReplicaState.NON_EXISTENT

VALID_PREVIOUS: Mapping[ReplicaState, frozenset[ReplicaState]] = {
    NEW: frozenset({NON_EXISTENT}),
    ONLINE: frozenset({NEW, ONLINE, OFFLINE, DELETION_INELIGIBLE}),
    OFFLINE: frozenset({NEW, ONLINE, OFFLINE, DELETION_INELIGIBLE}),
    DELETION_STARTED: frozenset({OFFLINE}),
    DELETION_SUCCESSFUL: frozenset({DELETION_STARTED}),
    DELETION_INELIGIBLE: frozenset({OFFLINE, DELETION_STARTED}),
    NON_EXISTENT: frozenset({DELETION_SUCCESSFUL}),
}


class ReplicaEffect(Enum):
    """What a transition entails besides recording the new state."""

    REFUSE = "a leader cannot start as a new replica: recorded as a failure, the state stays"
    START = "LeaderAndIsr with isNew to the replica's broker"
    RESUME = "LeaderAndIsr to the replica's broker"
    JOIN_ASSIGNMENT = "append the replica to the assignment if it is not in it"
    STOP = "StopReplica to the replica's broker, its log stays"
    LEAVE_ISR = "write the partition's state without the replica, notify all other replicas"
    ANNOUNCE = "UpdateMetadata of the partition to every broker"
    DELETE = "StopReplica to the replica's broker, its log goes"
    FORGET = "strike the replica from the assignment in memory, drop its state"


_NONE: tuple[ReplicaEffect, ...] = ()
# target -> (effects if the partition has a leader and ISR recorded, effects if it has not)
_EFFECTS: Mapping[ReplicaState, tuple[tuple[ReplicaEffect, ...], tuple[ReplicaEffect, ...]]] = {
    NEW: ((ReplicaEffect.START,), _NONE),
    ONLINE: ((ReplicaEffect.RESUME,), _NONE),
    OFFLINE: (
        (ReplicaEffect.STOP, ReplicaEffect.LEAVE_ISR),
        (ReplicaEffect.STOP, ReplicaEffect.ANNOUNCE),
    ),
    DELETION_STARTED: ((ReplicaEffect.DELETE,), (ReplicaEffect.DELETE,)),
    DELETION_SUCCESSFUL: (_NONE, _NONE),
    DELETION_INELIGIBLE: (_NONE, _NONE),
    NON_EXISTENT: ((ReplicaEffect.FORGET,), (ReplicaEffect.FORGET,)),
}
_FROM_NEW_TO_ONLINE = (ReplicaEffect.JOIN_ASSIGNMENT,)
_REFUSED = (ReplicaEffect.REFUSE,)


def is_valid(previous: ReplicaState, target: ReplicaState) -> bool:
    return previous in VALID_PREVIOUS[target]


def effects(
    previous: ReplicaState, target: ReplicaState, *, has_leadership: bool, is_leader: bool
) -> tuple[ReplicaEffect, ...]:
    """What moving one replica from `previous` to `target` entails. The transition must be valid."""
    assert is_valid(previous, target), f"{previous.name} -> {target.name}"
    if target is NEW and is_leader:
        return _REFUSED
    if target is ONLINE and previous is NEW:
        return _FROM_NEW_TO_ONLINE
    return _EFFECTS[target][0 if has_leadership else 1]


def initial(is_online: bool) -> ReplicaState:
    """What a new controller records of a replica, before it drives it to ONLINE or OFFLINE."""
    return ONLINE if is_online else DELETION_INELIGIBLE
