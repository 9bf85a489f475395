"""What brokers answer to control requests, and what it means.

docs/spec/interchange-with-apache-kafka.md section A.4.

A storage error marks a replica's directory as offline, success clears the mark. An answer to
StopReplica counts only for topics that are being deleted. Everything else is recorded and no
more: the requests that matter are repeated by whatever happens next, in a new leader epoch. So is
the answer to a request meant for the broker before it registered anew: it says nothing of what the
broker has been told since.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from odradek.controller import brokers
from odradek.controller.channels import ControlResponse
from odradek.controller.context import Replica
from odradek.controller.events import EventKind
from odradek.controller.journal import EntryKind
from odradek.controller.office import Office
from odradek.controller.requests import ControlRequest
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from odradek.wire.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
)
from odradek.wire.messages.update_metadata import UpdateMetadataRequest
from odradek.wire.topics import TopicPartition

# A broker that has seen this leader epoch says so; after an election of the controller all do.
QUIET = (ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH)


class PartitionError(Protocol):
    topic_name: str
    partition_index: int
    error_code: int


def on_response(
    broker_id: int, request: ControlRequest, response: ControlResponse
) -> tuple[EventKind, Callable[[Office], Awaitable[None]]]:
    """The event a response becomes."""
    if isinstance(request, LeaderAndIsrRequest):
        assert isinstance(response, LeaderAndIsrResponse)
        sent, told = request, response

        async def leader_and_isr(office: Office) -> None:
            await _leader_and_isr(office, broker_id, sent, told)

        return EventKind.LEADER_AND_ISR_RESPONSE, leader_and_isr
    if isinstance(request, StopReplicaRequest):
        assert isinstance(response, StopReplicaResponse)
        asked, answered = request, response

        async def stop_replica(office: Office) -> None:
            await _stop_replica(office, broker_id, asked, answered)

        return EventKind.TOPIC_DELETION_STOP_REPLICA_RESPONSE, stop_replica
    assert isinstance(request, UpdateMetadataRequest)

    async def update_metadata(office: Office) -> None:
        _record(office, broker_id, "UpdateMetadata", response.error_code, ())

    return EventKind.UPDATE_METADATA_RESPONSE, update_metadata


async def _leader_and_isr(
    office: Office, broker_id: int, request: LeaderAndIsrRequest, response: LeaderAndIsrResponse
) -> None:
    _record(office, broker_id, "LeaderAndIsr", response.error_code, response.partition_errors)
    if response.error_code != ErrorCode.NONE or not _is_current(office, broker_id, request):
        return
    offline = [
        _key(error)
        for error in response.partition_errors
        if error.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    ]
    marked = office.context.offline_dirs.get(broker_id)
    if not offline and not marked:
        return
    online = [
        _key(error) for error in response.partition_errors if error.error_code == ErrorCode.NONE
    ]
    await brokers.replicas_answered(office, broker_id, online, offline)


async def _stop_replica(
    office: Office, broker_id: int, request: StopReplicaRequest, response: StopReplicaResponse
) -> None:
    _record(office, broker_id, "StopReplica", response.error_code, response.partition_errors)
    if not _is_current(office, broker_id, request):
        return
    doomed = {
        TopicPartition(topic.topic_name, state.partition_index)
        for topic in request.topic_states
        if topic.topic_name in office.context.topics_deleting
        for state in topic.partition_states
        # A move may have deleted a replica shortly before its topic went: that one is forgotten.
        if state.delete_partition and _is_assigned(office, topic.topic_name, state, broker_id)
    }
    if not doomed:
        return
    errors = {_key(error): error.error_code for error in response.partition_errors}
    failed: list[Replica] = []
    done: list[Replica] = []
    for key in sorted(doomed):
        if response.error_code != ErrorCode.NONE:
            failed.append((key, broker_id))
        elif key in errors:
            (failed if errors[key] else done).append((key, broker_id))
    await office.deletion.failed(failed)
    await office.deletion.succeeded(done)


def _is_current(
    office: Office, broker_id: int, request: LeaderAndIsrRequest | StopReplicaRequest
) -> bool:
    known = office.context.brokers.get(broker_id)
    return known is not None and known.epoch == request.broker_epoch


def _is_assigned(
    office: Office, topic: str, state: StopReplicaPartitionState, broker_id: int
) -> bool:
    key = TopicPartition(topic, state.partition_index)
    return broker_id in office.context.assignment(key).replicas


def _record(
    office: Office, broker_id: int, api: str, error_code: int, errors: Iterable[PartitionError]
) -> None:
    """One entry for the request's own error, and one for each code its partitions had."""
    if error_code != ErrorCode.NONE:
        office.journal.record(
            EntryKind.RESPONSE, after=f"{api}: {_name(error_code)}", broker=broker_id
        )
    by_code: dict[int, list[TopicPartition]] = {}
    for error in errors:
        if error.error_code not in QUIET:
            by_code.setdefault(error.error_code, []).append(_key(error))
    for code, keys in by_code.items():
        office.journal.record(
            EntryKind.RESPONSE,
            after=f"{api}: {_name(code)}",
            broker=broker_id,
            partitions=tuple(keys),
        )


def _key(error: PartitionError) -> TopicPartition:
    return TopicPartition(error.topic_name, error.partition_index)


def _name(code: int) -> str:
    """A newer broker may know codes that we do not."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
