"""Leadership on request and at home: ElectLeaders, and the automatic preferred election.

docs/spec/controller-and-replication.md section 4.6.
"""

from collections.abc import Collection, Iterable
from enum import IntEnum

from odradek.controller import elections, partition_states
from odradek.controller.api_error import ApiError
from odradek.controller.context import ControllerContext, Partition
from odradek.controller.elections import Strategy
from odradek.controller.leadership import Leadership
from odradek.controller.office import Office
from odradek.wire.errors import ErrorCode
from odradek.wire.topics import TopicPartition


class ElectionType(IntEnum):
    """Kafka's codes."""

    PREFERRED = 0
    UNCLEAN = 1


_STRATEGY = {
    ElectionType.PREFERRED: Strategy.PREFERRED,
    ElectionType.UNCLEAN: Strategy.OFFLINE_UNCLEAN,
}
_FAILURE = {
    ElectionType.PREFERRED: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ElectionType.UNCLEAN: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}


def refusal(
    context: ControllerContext, key: TopicPartition, election_type: ElectionType
) -> ApiError | None:
    """Why there is nothing to elect for this partition, if so."""
    partition = context.partition(key)
    if partition is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    if context.is_queued_for_deletion(key.topic):
        return ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic is being deleted")
    leadership = partition.leadership
    if leadership is None:
        return ApiError(_FAILURE[election_type], "the partition has never had a leader")
    if election_type is ElectionType.PREFERRED:
        needed = leadership.leader != partition.assignment.replicas[0]
    else:
        needed = not context.is_live(leadership.leader)
    return None if needed else ApiError(ErrorCode.ELECTION_NOT_NEEDED)


async def elect_leaders(
    office: Office, election_type: ElectionType, keys: Collection[TopicPartition] | None
) -> dict[TopicPartition, ApiError]:
    """Elect on an operator's request. None is every partition; then those at home are left out."""
    context = office.context
    asked = (
        [partition.key for partition in context.partitions()]
        if keys is None
        else list(dict.fromkeys(keys))
    )
    results: dict[TopicPartition, ApiError] = {}
    electable: list[Partition] = []
    for key in asked:
        error = refusal(context, key, election_type)
        if error is None:
            partition = context.partition(key)
            assert partition is not None
            electable.append(partition)
        elif keys is not None or error.error is not ErrorCode.ELECTION_NOT_NEEDED:
            results[key] = error
    if electable:
        names = ",".join(str(partition.key) for partition in electable)
        office.note(f"ReplicaLeaderElection {election_type.name} {names}")
    outcomes = await office.machines.partitions_to(
        electable, partition_states.ONLINE, _STRATEGY[election_type]
    )
    for key, outcome in outcomes.items():
        if isinstance(outcome, Leadership):
            results[key] = ApiError(ErrorCode.NONE, leader=outcome.leader)
        else:
            results[key] = ApiError(_FAILURE[election_type], outcome)
    return results


async def legacy_preferred_election(office: Office) -> None:
    """ReplicaLeaderElection asked for through its node, which goes when it is done."""
    keys = await office.store.preferred_election(office.watches["preferred election"])
    if keys is None:
        return
    try:
        await elect_leaders(office, ElectionType.PREFERRED, sorted(keys))
    finally:
        await office.store.drop_preferred_election(office.fence)


def imbalanced(context: ControllerContext, percentage: int) -> list[Partition]:
    """The partitions to bring home: those of brokers that lead too few of their own.

    A broker's own are the partitions it is the first replica of. If it does not lead more than
    `percentage` of them, those that it can lead (it is live, and in sync) are chosen.
    """
    own: dict[int, list[Partition]] = {}
    for partition in context.partitions():
        if partition.assignment.replicas and not context.is_queued_for_deletion(
            partition.key.topic
        ):
            own.setdefault(partition.assignment.replicas[0], []).append(partition)
    chosen: list[Partition] = []
    for broker_id, partitions in sorted(own.items()):
        away = [
            partition
            for partition in partitions
            if partition.leadership is not None and partition.leadership.leader != broker_id
        ]
        if len(away) / len(partitions) > percentage / 100:
            chosen += (partition for partition in away if _can_come_home(context, partition))
    return chosen


def _can_come_home(context: ControllerContext, partition: Partition) -> bool:
    assert partition.leadership is not None
    live = context.online_replicas(partition)
    isr = partition.leadership.isr
    return elections.preferred(partition.assignment.replicas, isr, live) is not None


async def rebalance(office: Office) -> None:
    """AutoPreferredReplicaLeaderElection."""
    chosen = imbalanced(office.context, office.config.leader_imbalance_per_broker_percentage)
    if chosen:
        office.note(f"AutoPreferredReplicaLeaderElection {_plain(p.key for p in chosen)}")
        await office.machines.partitions_to(chosen, partition_states.ONLINE, Strategy.PREFERRED)


def _plain(keys: Iterable[TopicPartition]) -> str:
    return ",".join(map(str, keys))
