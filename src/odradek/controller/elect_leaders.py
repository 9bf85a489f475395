"""Elections on request, and the automatic preferred election.

docs/spec/controller-and-replication.md section 4.6.
"""

from collections.abc import Collection

from odradek.controller import elections, partition_states
from odradek.controller.active_controller import ActiveController
from odradek.controller.context import ControllerContext, Partition
from odradek.controller.elections import ElectionType, Strategy
from odradek.controller.events import ElectLeaders
from odradek.controller.journal import format_partitions
from odradek.controller.partition_outcome import PartitionOutcome
from odradek.controller.term import WatchKind
from odradek.store.payloads import LeaderAndIsr
from odradek.wire.errors import ErrorCode
from odradek.wire.topics import TopicPartition

_STRATEGY = {
    ElectionType.PREFERRED: Strategy.PREFERRED,
    ElectionType.UNCLEAN: Strategy.OFFLINE_UNCLEAN,
}
_FAILURE = {
    ElectionType.PREFERRED: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    ElectionType.UNCLEAN: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
}


def refusal(
    context: ControllerContext, tp: TopicPartition, election_type: ElectionType
) -> PartitionOutcome | None:
    """Why there is nothing to elect for this partition, if so."""
    partition = context.partition(tp)
    if partition is None:
        return PartitionOutcome(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."
        )
    if context.is_queued_for_deletion(tp.topic):
        return PartitionOutcome(ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic is being deleted")
    leader_and_isr = partition.leader_and_isr
    if leader_and_isr is None:
        return PartitionOutcome(_FAILURE[election_type], "the partition has never had a leader")
    if election_type is ElectionType.PREFERRED:
        needed = leader_and_isr.leader != partition.assignment.replicas[0]
    else:
        needed = not context.brokers.is_live(leader_and_isr.leader)
    return None if needed else PartitionOutcome(ErrorCode.ELECTION_NOT_NEEDED)


async def elect_leaders(
    active: ActiveController, election_type: ElectionType, tps: Collection[TopicPartition] | None
) -> dict[TopicPartition, PartitionOutcome]:
    """Elect on an operator's request. None is every partition; then those that need no election are
    left out."""
    term = active.term
    context = term.context
    asked = (
        [partition.tp for partition in context.partitions()]
        if tps is None
        else list(dict.fromkeys(tps))
    )
    results: dict[TopicPartition, PartitionOutcome] = {}
    electable: list[Partition] = []
    for tp in asked:
        error = refusal(context, tp, election_type)
        if error is None:
            partition = context.partition(tp)
            assert partition is not None
            electable.append(partition)
        elif tps is not None or error.error is not ErrorCode.ELECTION_NOT_NEEDED:
            results[tp] = error
    if electable:
        names = format_partitions(partition.tp for partition in electable)
        term.note(f"ReplicaLeaderElection {election_type.name} {names}")
    outcomes = await active.partitions.move(
        electable, partition_states.ONLINE, _STRATEGY[election_type]
    )
    for tp, outcome in outcomes.items():
        if isinstance(outcome, LeaderAndIsr):
            results[tp] = PartitionOutcome(ErrorCode.NONE, leader=outcome.leader)
        else:
            results[tp] = PartitionOutcome(_FAILURE[election_type], outcome.reason)
    return results


async def serve(active: ActiveController, request: ElectLeaders) -> None:
    """Elect, and reply when the outcome is known."""
    term = active.term
    results = await elect_leaders(active, request.election_type, request.partitions)
    elected = {}
    if request.election_type is ElectionType.UNCLEAN:
        for tp, outcome in results.items():
            partition = term.context.partition(tp)
            if outcome.error is ErrorCode.NONE and partition is not None:
                assert partition.leader_and_isr is not None
                elected[tp] = partition.leader_and_isr
    if elected:
        timeout_s = term.config.request_timeout_ms / 1000
        active.unclean_elections.wait(request, results, elected, timeout_s)
    else:
        request.succeed(results)


async def legacy_preferred_election(active: ActiveController) -> None:
    """ReplicaLeaderElection asked for through its node, which goes when it is done."""
    term = active.term
    tps = await term.store.requests.preferred_election(term.watches[WatchKind.PREFERRED_ELECTION])
    if tps is None:
        return
    try:
        await elect_leaders(active, ElectionType.PREFERRED, sorted(tps))
    finally:
        await term.store.requests.drop_preferred_election(term.fence)


def imbalanced(context: ControllerContext, percentage: int) -> list[Partition]:
    """The partitions to give back to their preferred leader: of brokers that lead too few of
    theirs.

    A broker's own are the partitions it is the first replica of. If it does not lead more than
    `percentage` of them, those that it can lead (it is live, and in sync) are chosen.
    """
    own: dict[int, list[Partition]] = {}
    for partition in context.partitions():
        if partition.assignment.replicas and not context.is_queued_for_deletion(partition.tp.topic):
            own.setdefault(partition.assignment.replicas[0], []).append(partition)
    chosen: list[Partition] = []
    for broker_id, partitions in sorted(own.items()):
        away = [
            partition
            for partition in partitions
            if partition.leader_and_isr is not None and partition.leader_and_isr.leader != broker_id
        ]
        if len(away) / len(partitions) > percentage / 100:
            chosen += (partition for partition in away if _can_be_preferred(context, partition))
    return chosen


def _can_be_preferred(context: ControllerContext, partition: Partition) -> bool:
    assert partition.leader_and_isr is not None
    live = context.brokers.online_replicas(partition.tp, partition.assignment)
    isr = partition.leader_and_isr.isr
    return elections.preferred(partition.assignment.replicas, isr, live) is not None


async def rebalance(active: ActiveController) -> None:
    """AutoPreferredReplicaLeaderElection."""
    term = active.term
    chosen = imbalanced(term.context, term.config.leader_imbalance_per_broker_percentage)
    if chosen:
        term.note(f"AutoPreferredReplicaLeaderElection {format_partitions(p.tp for p in chosen)}")
        await active.partitions.move(chosen, partition_states.ONLINE, Strategy.PREFERRED)
