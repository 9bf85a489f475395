"""WriteTxnMarkers (27), v0–v1. A coordinator tells leaders how transactions ended.

One control batch for each marker and partition, on all in-sync replicas before the answer; offsets
that were committed in the transaction are visible, or dropped, before it too. Every partition asked
about is answered, once for each producer id, and only with codes that a coordinator knows. Nothing
is deduplicated: a repeated marker ends nothing. docs/spec/transactions.md section 2.11.
"""

import asyncio

from odradek.broker.handler import Broker, RequestContext
from odradek.coordinator.storage import OFFSETS_TOPIC
from odradek.log.producers import Origin
from odradek.security.acls import AclOperation, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.wire.records import ControlType, TransactionEnd, encode_transaction_end
from odradek.wire.topics import TopicPartition, group_by_topic

ALL_REPLICAS = -1
# Anything else makes a coordinator of Apache Kafka lose the rest of the answer.
KNOWN_ERRORS = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)

Errors = dict[int, dict[TopicPartition, ErrorCode]]


async def handle(
    broker: Broker, request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse:
    may = context.may
    if not may.allows(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER):
        refused = may.check(AclOperation.ALTER, ResourceType.CLUSTER)
        if refused is not None:
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    errors: Errors = {}
    # All are appended before any is waited for.
    written = [_append(broker, marker) for marker in request.markers]
    for marker, found in zip(request.markers, await asyncio.gather(*written), strict=True):
        errors.setdefault(marker.producer_id, {}).update(found)
    return _response(errors)


async def _append(broker: Broker, marker: WritableTxnMarker) -> dict[TopicPartition, ErrorCode]:
    outcome = ControlType.COMMIT if marker.transaction_result else ControlType.ABORT
    end = TransactionEnd(outcome, marker.coordinator_epoch, broker.clock())
    partitions = [
        TopicPartition(topic.name, index)
        for topic in marker.topics
        for index in topic.partition_indexes
    ]
    appended = broker.replicas.append(
        ALL_REPLICAS,
        broker.config.integer("request.timeout.ms"),
        {
            tp: encode_transaction_end(end, marker.producer_id, marker.producer_epoch)
            for tp in partitions
        },
        origin=Origin.COORDINATOR,
    )
    errors = {}
    for tp, result in (await appended.result()).items():
        if not result.error and tp.topic == OFFSETS_TOPIC:
            await broker.groups.offsets.end_transaction(
                tp.partition, marker.producer_id, marker.transaction_result
            )
        known = result.error in KNOWN_ERRORS
        errors[tp] = result.error if known else ErrorCode.NOT_LEADER_OR_FOLLOWER
    return errors


def _response(errors: Errors) -> WriteTxnMarkersResponse:
    answers = []
    for producer_id, found in errors.items():
        topics = group_by_topic(
            (tp, WritableTxnMarkerPartitionResult(partition_index=tp.partition, error_code=error))
            for tp, error in found.items()
        )
        answers.append(
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(name=name, partitions=partitions)
                    for name, partitions in topics.items()
                ],
            )
        )
    return WriteTxnMarkersResponse(markers=answers)
