"""Election rules: which replica leads. Each is one function over values; returns an id or None.

"Live" means: the broker is registered and not shutting down, and the replica is not on an offline
directory. Order is preference: the first in the list that satisfies the rule wins.
docs/spec/controller-and-replication.md section 3.
"""

from collections.abc import Collection, Iterable
from enum import Enum, IntEnum


class ElectionType(IntEnum):
    """What a client may ask for, with Kafka's codes."""

    PREFERRED = 0
    UNCLEAN = 1


class Strategy(Enum):
    """Which rule elects, and so which brokers are informed and what becomes of the ISR."""

    OFFLINE = "offline"  # the leader is gone
    OFFLINE_UNCLEAN = "offline, unclean allowed"  # the same, and an operator accepts loss
    REASSIGN = "reassign"  # the leader is not among the replicas the partition moves to
    PREFERRED = "preferred"  # leadership goes home to the first replica
    CONTROLLED_SHUTDOWN = "controlled shutdown"  # the leader is about to stop


def offline(
    assignment: Iterable[int], isr: Collection[int], live: Collection[int], unclean: bool = False
) -> int | None:
    """The first live replica in the ISR; failing that, where loss is accepted, any live replica."""
    candidates = [replica for replica in assignment if replica in live]
    for replica in candidates:
        if replica in isr:
            return replica
    return candidates[0] if unclean and candidates else None


def reassigned(target: Iterable[int], isr: Collection[int], live: Collection[int]) -> int | None:
    """The first replica of the target that is live and in sync."""
    return next((replica for replica in target if replica in isr and replica in live), None)


def preferred(assignment: Iterable[int], isr: Collection[int], live: Collection[int]) -> int | None:
    """The first replica, or none."""
    first = next(iter(assignment), None)
    return first if first is not None and first in isr and first in live else None


def controlled_shutdown(
    assignment: Iterable[int],
    isr: Collection[int],
    live: Collection[int],
    shutting_down: Collection[int],
) -> int | None:
    """The first in-sync replica that stays. Here `live` counts brokers that are shutting down."""
    for replica in assignment:
        if replica in isr and replica in live and replica not in shutting_down:
            return replica
    return None
