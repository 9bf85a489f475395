"""Reassignment: the decisions. Who may move where, when a move is done, and in which steps.

A move has three parts. **U** writes the wanted assignment, so that a controller that dies leaves
its successor the whole plan. **A** raises the leader epoch and starts the replicas being added.
**B**, once every target replica is in the ISR, takes the leadership there and deletes the others.
docs/spec/controller-and-replication.md section 4.7; KIP-455.

At most so many partitions move at a time. Those that wait are known to the store too (`waiting`),
start in the order they were asked for, and can be cancelled like any other. A cancelled partition
has nothing left to add, so its part B comes in the same event: a cancel ends at once. It is refused
only where it would delete the last in-sync replica.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from odradek.controller.assignment import ReplicaAssignment
from odradek.controller.partition_outcome import PartitionOutcome
from odradek.wire.errors import ErrorCode
from odradek.wire.topics import TopicPartition

# Where to; None is "back to where it was".
Target = Sequence[int] | None


class Step(Enum):
    """The steps of a move, as the journal names them."""

    WRITE_PLAN = "U1 write the wanted assignment"
    STOP_UNNEEDED = "U2 stop replicas that are no longer wanted"
    RAISE_EPOCH = "A1 raise the leader epoch and notify every replica"
    START_ADDING = "A2 start the replicas being added"
    ADDING_ONLINE = "B1 replicas being added are online"
    TAKE_TARGET = "B2 the assignment is the target"
    MOVE_LEADER = "B3 take the leadership to the target"
    STOP_REMOVING = "B4 take the replicas being removed out of the ISR"
    DELETE_REMOVING = "B5 delete the replicas being removed"
    WRITE_TARGET = "B6 write the target assignment"
    FORGET_MOVE = "B7 the move is over"
    ANNOUNCE = "B8 send every broker the metadata"


def invalid_target(
    target: Sequence[int], current: ReplicaAssignment, live: Collection[int]
) -> PartitionOutcome | None:
    """What is wrong with moving there, if anything."""
    wrong = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    if not target:
        return PartitionOutcome(wrong, "the replica list is empty")
    if len(set(target)) != len(target):
        return PartitionOutcome(wrong, f"a broker is named twice in {list(target)}")
    if min(target) < 0:
        return PartitionOutcome(wrong, f"a broker id is negative in {list(target)}")
    adding = current.reassign_to(target).adding
    if not set(adding) <= set(live):
        return PartitionOutcome(
            wrong, f"brokers to add {list(adding)} are not all alive; alive are {sorted(live)}"
        )
    return None


def wanted(current: ReplicaAssignment, target: Target) -> ReplicaAssignment | None:
    """The assignment that a request asks for; None to cancel what is not in progress."""
    if target is None:
        return current.reassign_to(current.origin) if current.is_reassigning else None
    return current.reassign_to(target)


def loses_last_in_sync(kept: Collection[int], isr: Collection[int]) -> PartitionOutcome | None:
    """What is wrong with keeping only these replicas: none of them may have every record."""
    if set(kept) & set(isr):
        return None
    return PartitionOutcome(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"none of the replicas {list(kept)} that stay is in sync; in sync are {list(isr)}",
    )


def is_complete(assignment: ReplicaAssignment, isr: Collection[int] | None) -> bool:
    """Whether part B may begin. The ISR is None where there is no state node."""
    if not assignment.is_reassigning:
        return True
    return isr is not None and set(assignment.target) <= set(isr)


@dataclass(slots=True)
class Admission:
    """What becomes of the partitions that were asked to move."""

    start: dict[TopicPartition, ReplicaAssignment] = field(default_factory=dict)
    wait: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)


def admit(
    asked: Mapping[TopicPartition, tuple[ReplicaAssignment, ReplicaAssignment]],
    *,
    in_flight: Collection[TopicPartition],
    waiting: int,
    in_flight_max: int,
) -> Admission:
    """Who starts and who waits, given (current, wanted) of each partition asked for.

    A partition that moves already may change its mind at once, and one that would be done at once
    takes no place. The others start if there is room and none waits before them.
    """
    admission = Admission()
    room = 0 if waiting else max(0, in_flight_max - len(in_flight))
    for tp, (_, assignment) in asked.items():
        if tp in in_flight or not assignment.adding:
            admission.start[tp] = assignment
        elif room > 0:
            room -= 1
            admission.start[tp] = assignment
        else:
            admission.wait[tp] = assignment.target
    return admission


def next_to_start(
    waiting: Iterable[TopicPartition], in_flight: Collection[TopicPartition], in_flight_max: int
) -> list[TopicPartition]:
    """Who of those that wait starts now, in the order they were asked for."""
    room = in_flight_max - len(in_flight)
    chosen = []
    for tp in waiting:
        if room <= 0:
            break
        if tp not in in_flight:
            room -= 1
        chosen.append(tp)
    return chosen
