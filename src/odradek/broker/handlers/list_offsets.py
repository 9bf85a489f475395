"""ListOffsets (2), v0–v9. Where a log begins, ends, or reaches a time.

-1 is the end, -2 the start, -3 (v7+) the record with the greatest timestamp, -4 (v8+) the start on
this disk, -5 (v9+) the end of tiered storage, of which there is none. For replicas the end is the
log's own; for clients it is the high watermark or the last stable offset. v0 knows no record's
time: it asks for offsets at which segments begin, by when their files were last written to.
docs/spec/controller-and-replication.md section 5.5.
"""

from collections import Counter
from itertools import islice

from odradek.broker.handler import Broker, RequestContext
from odradek.broker.slices import map_in_slices
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.fetch import CONSUMER
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.wire.reply import Reply
from odradek.wire.topics import TopicPartition

DEBUGGER = -2
# The first version that knows each of the times with a meaning of their own.
SPECIAL_SINCE = {-1: 0, -2: 0, -3: 7, -4: 8, -5: 9}
LATEST_TIERED = -5


def handle(
    broker: Broker, request: ListOffsetsRequest, context: RequestContext
) -> Reply[ListOffsetsResponse]:
    asked = [(topic.name, each) for topic in request.topics for each in topic.partitions]
    times = Counter(TopicPartition(name, each.partition_index) for name, each in asked)

    def respond(listed: list[ListOffsetsPartitionResponse]) -> ListOffsetsResponse:
        left = iter(listed)
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name, partitions=list(islice(left, len(topic.partitions)))
                )
                for topic in request.topics
            ]
        )

    return map_in_slices(
        asked, lambda each: _listed(broker, request, context, each[0], each[1], times)
    ).map(respond)


def _listed(
    broker: Broker,
    request: ListOffsetsRequest,
    context: RequestContext,
    topic: str,
    asked: ListOffsetsPartition,
    times: Counter[TopicPartition],
) -> ListOffsetsPartitionResponse:
    of = TopicPartition(topic, asked.partition_index)
    if times[of] > 1:
        return _failed(of.partition, ErrorCode.INVALID_REQUEST)
    since = SPECIAL_SINCE.get(asked.timestamp, 0 if asked.timestamp >= 0 else None)
    if since is None or context.version < since:
        return _failed(of.partition, ErrorCode.UNSUPPORTED_VERSION)
    if context.version == 0:
        return _listed_by_segment(broker, request, of, asked)
    try:
        found = broker.replicas.partitions[of].offset_for_timestamp(
            asked.timestamp,
            request.isolation_level if request.replica_id == CONSUMER else None,
            asked.current_leader_epoch,
            leader_only=request.replica_id != DEBUGGER,
        )
    except KafkaError as error:
        code = error.error
        if code is ErrorCode.OFFSET_NOT_AVAILABLE and context.version < 5:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        return _failed(of.partition, code)
    if found is None or asked.timestamp == LATEST_TIERED:
        return _failed(of.partition, ErrorCode.NONE)
    timestamp, offset, leader_epoch = found
    return ListOffsetsPartitionResponse(
        partition_index=of.partition,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=leader_epoch,
    )


def _listed_by_segment(
    broker: Broker, request: ListOffsetsRequest, of: TopicPartition, asked: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    try:
        offsets = broker.replicas.partitions[of].offsets_before(
            asked.timestamp,
            max(0, asked.max_num_offsets),
            committed=request.replica_id == CONSUMER,
            leader_only=request.replica_id != DEBUGGER,
        )
    except KafkaError as error:
        return _failed(of.partition, error.error)
    return ListOffsetsPartitionResponse(partition_index=of.partition, old_style_offsets=offsets)


def _failed(partition: int, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=partition, error_code=error)
