"""What a person may ask for: manual assignments of a new topic, and new partitions of an old one.

A new topic may name unregistered brokers; new partitions of an existing topic may not.
docs/spec/controller-and-replication.md, section 1.3.
"""

from collections.abc import Iterable, Mapping, Sequence

from odradek.placement.assignment import Broker, assign_replicas
from odradek.wire.errors import ErrorCode, KafkaError


def validate_manual_assignment(assignment: Mapping[int, Sequence[int]]) -> None:
    """A new topic's own assignment: as many replicas everywhere, none twice, ids 0 to n-1."""
    if len({len(replicas) for replicas in assignment.values()}) != 1:
        raise _invalid("Every partition must have the same number of replicas.")
    for partition, replicas in sorted(assignment.items()):
        _check_replicas(partition, replicas)
    if set(assignment) != set(range(len(assignment))):
        raise _invalid(f"Partition ids must be 0 to {len(assignment) - 1}, without a gap.")


def new_partitions(
    topic: str,
    current: Mapping[int, Sequence[int]],
    brokers: Iterable[Broker],
    count: int,
    manual: Sequence[Sequence[int]] | None = None,
) -> dict[int, list[int]]:
    """The replicas of the partitions that bring `topic` to `count`; the old ones stay as they are.

    Automatic placement goes on from partition 0: its replication factor, and its first replica as
    the place to start, so that new partitions continue the round where creation left it.
    """
    if 0 not in current:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"Topic '{topic}' has no partition 0, so its new partitions cannot be placed.",
        )
    added = count - len(current)
    if added <= 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic currently has {len(current)} partitions, which is higher than the requested "
            f"{count}."
            if added
            else f"Topic already has {count} partitions.",
        )
    brokers = sorted(brokers, key=lambda broker: broker.id)
    if manual is not None:
        _check_manual(manual, added, len(current[0]), {broker.id for broker in brokers})
        return {len(current) + index: list(replicas) for index, replicas in enumerate(manual)}
    first = current[0][0]
    start = next((index for index, broker in enumerate(brokers) if broker.id >= first), 0)
    return assign_replicas(
        brokers, added, len(current[0]), fixed_start=start, start_partition=len(current)
    )


def _check_manual(
    manual: Sequence[Sequence[int]], added: int, replication_factor: int, known: set[int]
) -> None:
    unknown = {broker for replicas in manual for broker in replicas} - known
    if unknown:
        raise _invalid(f"No such broker: {_listed(sorted(unknown))}.")
    if len(manual) != added:
        raise _invalid(f"{added} partitions are added but {len(manual)} assignments are given.")
    for index, replicas in enumerate(manual):
        _check_replicas(index, replicas)
    wrong = [index for index, replicas in enumerate(manual) if len(replicas) != replication_factor]
    if wrong:
        raise _invalid(
            f"Partition 0 has replication factor {replication_factor}; the new partitions at "
            f"position {_listed(wrong)} have another."
        )


def _check_replicas(partition: int, replicas: Sequence[int]) -> None:
    if not replicas:
        raise _invalid(f"Partition {partition} of the assignment has no replica.")
    if len(set(replicas)) != len(replicas):
        raise _invalid(
            f"Partition {partition} of the assignment names a broker twice: {_listed(replicas)}."
        )


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
