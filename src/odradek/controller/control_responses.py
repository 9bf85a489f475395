"""What brokers answer to control requests, and what it means.

docs/spec/interchange-with-apache-kafka.md section A.4.

A storage error marks a replica's directory as offline, success clears the mark. An answer to
StopReplica counts only for topics that are being deleted. Everything else is recorded and no
more: the requests that matter are repeated by whatever happens next, in a new leader epoch. So is
the response to a request meant for an earlier registration of the broker: it says nothing of what
has been sent to the broker since.
"""

from collections.abc import Iterable
from typing import Protocol

from odradek.controller import brokers
from odradek.controller.active_controller import ActiveController
from odradek.controller.context import Replica
from odradek.controller.events import (
    LeaderAndIsrResponseReceived,
    TopicDeletionStopReplicaResponseReceived,
    UpdateMetadataResponseReceived,
)
from odradek.controller.journal import EntryKind
from odradek.controller.term import Term
from odradek.controller.unclean_elections import name_of_error
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest
from odradek.wire.messages.stop_replica import StopReplicaPartitionState, StopReplicaRequest
from odradek.wire.topics import TopicPartition

# A broker that has seen this leader epoch says so; after an election of the controller all do.
QUIET = (ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH)


class PartitionError(Protocol):
    topic_name: str
    partition_index: int
    error_code: int


async def leader_and_isr_answered(
    active: ActiveController, event: LeaderAndIsrResponseReceived
) -> None:
    term = active.term
    broker_id, request, response = event.broker_id, event.request, event.response
    _record(term, broker_id, "LeaderAndIsr", response.error_code, response.partition_errors)
    active.unclean_elections.answered(event)
    if response.error_code != ErrorCode.NONE or not _is_current(term, broker_id, request):
        return
    offline = [
        _tp(error)
        for error in response.partition_errors
        if error.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    ]
    marked = term.context.brokers.offline_dirs.get(broker_id)
    if not offline and not marked:
        return
    online = [
        _tp(error) for error in response.partition_errors if error.error_code == ErrorCode.NONE
    ]
    await brokers.replicas_answered(active, broker_id, online, offline)


async def stop_replica_answered(
    active: ActiveController, event: TopicDeletionStopReplicaResponseReceived
) -> None:
    term = active.term
    broker_id, request, response = event.broker_id, event.request, event.response
    _record(term, broker_id, "StopReplica", response.error_code, response.partition_errors)
    if not _is_current(term, broker_id, request):
        return
    deleting = {
        TopicPartition(topic.topic_name, state.partition_index)
        for topic in request.topic_states
        if topic.topic_name in term.context.topics_deleting
        for state in topic.partition_states
        # A move may have deleted a replica shortly before its topic went: that one is forgotten.
        if state.delete_partition and _is_assigned(term, topic.topic_name, state, broker_id)
    }
    if not deleting:
        return
    errors = {_tp(error): error.error_code for error in response.partition_errors}
    failed: list[Replica] = []
    done: list[Replica] = []
    for tp in sorted(deleting):
        if response.error_code != ErrorCode.NONE:
            failed.append((tp, broker_id))
        elif tp in errors:
            (failed if errors[tp] else done).append((tp, broker_id))
    await active.deletion.failed(failed)
    await active.deletion.succeeded(done)


def update_metadata_answered(term: Term, event: UpdateMetadataResponseReceived) -> None:
    _record(term, event.broker_id, "UpdateMetadata", event.response.error_code, ())


def _is_current(
    term: Term, broker_id: int, request: LeaderAndIsrRequest | StopReplicaRequest
) -> bool:
    known = term.context.brokers.get(broker_id)
    return known is not None and known.epoch == request.broker_epoch


def _is_assigned(term: Term, topic: str, state: StopReplicaPartitionState, broker_id: int) -> bool:
    tp = TopicPartition(topic, state.partition_index)
    return broker_id in term.context.assignment(tp).replicas


def _record(
    term: Term,
    broker_id: int,
    api: str,
    error_code: int,
    errors: Iterable[PartitionError],
) -> None:
    """One entry for the request's own error, and one for each code its partitions had."""
    if error_code != ErrorCode.NONE:
        term.journal.record(
            EntryKind.RESPONSE, after=f"{api}: {name_of_error(error_code)}", broker=broker_id
        )
    by_code: dict[int, list[TopicPartition]] = {}
    for error in errors:
        if error.error_code not in QUIET:
            by_code.setdefault(error.error_code, []).append(_tp(error))
    for code, tps in by_code.items():
        term.journal.record(
            EntryKind.RESPONSE,
            after=f"{api}: {name_of_error(code)}",
            broker=broker_id,
            partitions=tuple(tps),
        )


def _tp(error: PartitionError) -> TopicPartition:
    return TopicPartition(error.topic_name, error.partition_index)
