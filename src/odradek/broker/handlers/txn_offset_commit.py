"""TxnOffsetCommit (28), v0–v4. Offsets that are committed if the transaction is.

Stored as a batch of the producer in the group's partition of the offsets topic, and pending until
that partition gets the transaction's marker. docs/spec/transactions.md section 2.12.
"""

from odradek.broker.handler import Broker, RequestContext
from odradek.coordinator.group import CommittedOffset
from odradek.coordinator.storage import OFFSETS_TOPIC, Producer
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from odradek.wire.topics import TopicPartition

TRANSACTION_ABORTABLE_SINCE = 4
LOAD_IN_PROGRESS_SINCE = 2
OFFSETS_SEQUENCE = 0  # of every batch of offsets: they are not numbered

Errors = dict[TopicPartition, ErrorCode]


async def handle(
    broker: Broker, request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse:
    now = broker.clock()
    offsets: dict[TopicPartition, CommittedOffset] = {}
    errors: Errors = {}
    for topic in request.topics:
        for one in topic.partitions:
            tp = TopicPartition(topic.name, one.partition_index)
            if tp in broker.cache:
                offsets[tp] = CommittedOffset(
                    one.committed_offset,
                    one.committed_metadata or "",
                    now,
                    one.committed_leader_epoch,
                )
            else:
                errors[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if offsets:
        errors.update(await _commit(broker, request, offsets, context.version))
    return _response(request, errors)


async def _commit(
    broker: Broker,
    request: TxnOffsetCommitRequest,
    offsets: dict[TopicPartition, CommittedOffset],
    version: int,
) -> Errors:
    error = broker.groups.check(request.group_id)
    if not error:
        error = await _verified(broker, request)
    if error:
        return dict.fromkeys(offsets, _in_version(error, version))
    found = await broker.groups.offsets.commit_in_transaction(
        request.group_id,
        Producer(request.producer_id, request.producer_epoch),
        (request.generation_id, request.member_id, request.group_instance_id),
        offsets,
    )
    return {tp: _in_version(error, version) for tp, error in found.items()}


async def _verified(broker: Broker, request: TxnOffsetCommitRequest) -> ErrorCode:
    """Whether the group's partition is in the transaction, unless that is known from its log. It
    must still be when the answer is here: an abort that comes first would leave the offsets in a
    transaction that no coordinator knows, pending for ever."""
    tp = TopicPartition(OFFSETS_TOPIC, broker.groups.storage.partition_for(request.group_id))
    partition = broker.replicas.partitions.get(tp)
    if not broker.verification.is_enabled or partition is None:
        return ErrorCode.NONE  # whether it is led here was asked before
    producers = partition.local_log.producers
    id, epoch = request.producer_id, request.producer_epoch
    guard = producers.guard_for(id, epoch, OFFSETS_SEQUENCE, broker.clock())
    if guard is None:
        state = producers.get(id)
        if state is not None and state.epoch == epoch:
            return ErrorCode.NONE
    found = await broker.verification.verify(request.transactional_id, id, epoch, [tp])
    error = _MEANINGS.get(found[tp], found[tp]) or broker.groups.check(request.group_id)
    if not error and guard is not None and not producers.is_guarded(id, guard):
        return ErrorCode.INVALID_TXN_STATE
    return error


_MEANINGS = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorCode.INVALID_TXN_STATE,
}


def _in_version(error: ErrorCode, version: int) -> ErrorCode:
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < TRANSACTION_ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOAD_IN_PROGRESS_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error


def _response(request: TxnOffsetCommitRequest, errors: Errors) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=one.partition_index,
                        error_code=errors[TopicPartition(topic.name, one.partition_index)],
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
