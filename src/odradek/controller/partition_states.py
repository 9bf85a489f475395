"""Partition states: whether a partition can be written and read, as the controller sees it.

Rules
1. Only this module says which transition is legal and what it entails.
2. An illegal transition is recorded and skipped: the others in the same call are done.
3. A failed election changes no state: the partition is where it was, and is tried again when a
   broker comes or goes.

A partition is NEW when it is assigned but has no leader and ISR in the store, ONLINE once a
leader is elected, OFFLINE when that leader is gone, and NON_EXISTENT before it is created and
after it is deleted. ONLINE -> ONLINE is an election too: that is how leadership moves while the
partition serves. docs/spec/controller-and-replication.md section 3.
"""

from collections.abc import Mapping
from enum import Enum, IntEnum


class PartitionState(IntEnum):
    """Kafka's four states, with Kafka's codes."""

    NEW = 0
    ONLINE = 1
    OFFLINE = 2
    NON_EXISTENT = 3


NEW = PartitionState.NEW
ONLINE = PartitionState.ONLINE
OFFLINE = PartitionState.OFFLINE
NON_EXISTENT = PartitionState.NON_EXISTENT

VALID_PREVIOUS: Mapping[PartitionState, frozenset[PartitionState]] = {
    NEW: frozenset({NON_EXISTENT}),
    ONLINE: frozenset({NEW, ONLINE, OFFLINE}),
    OFFLINE: frozenset({NEW, ONLINE, OFFLINE}),
    NON_EXISTENT: frozenset({OFFLINE}),
}


class PartitionEffect(Enum):
    """What a transition entails."""

    RECORD = "the state only"
    INITIALISE = "create the state node: first live replica leads, all live ones are the ISR"
    ELECT = "choose a leader by the strategy given and write it under a version check"


def is_valid(previous: PartitionState, target: PartitionState) -> bool:
    return previous in VALID_PREVIOUS[target]


def effect(previous: PartitionState, target: PartitionState) -> PartitionEffect:
    """What moving one partition from `previous` to `target`, a valid transition, entails."""
    assert is_valid(previous, target), f"{previous.name} -> {target.name}"
    if target is not ONLINE:
        return PartitionEffect.RECORD
    return PartitionEffect.INITIALISE if previous is NEW else PartitionEffect.ELECT


def initial(has_leadership: bool, is_leader_online: bool) -> PartitionState:
    """What a new controller records of a partition, before it tries to bring it online."""
    if not has_leadership:
        return NEW
    return ONLINE if is_leader_online else OFFLINE
