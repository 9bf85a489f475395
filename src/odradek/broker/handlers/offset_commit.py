"""OffsetCommit (8), v0–v9. A group remembers how far it has read.

All versions write to the offsets topic; Kafka's v0 wrote to ZooKeeper, which no client reads any
more. Topics that do not exist are refused one by one; the others are committed. Where nothing is
left to commit, no group is made for it.
"""

from odradek.broker.handler import Broker, RequestContext
from odradek.coordinator.group import CommittedOffset
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.wire.topics import TopicPartition

NO_RETENTION = -1


async def handle(
    broker: Broker, request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse:
    now = broker.clock()
    offsets: dict[TopicPartition, CommittedOffset] = {}
    errors: dict[TopicPartition, ErrorCode] = {}
    for topic in request.topics:
        for one in topic.partitions:
            tp = TopicPartition(topic.name, one.partition_index)
            if tp not in broker.cache:
                errors[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            timestamp = one.commit_timestamp if one.commit_timestamp >= 0 else now
            expires = NO_RETENTION
            if request.retention_time_ms != NO_RETENTION:
                expires = timestamp + request.retention_time_ms
            offsets[tp] = CommittedOffset(
                one.committed_offset,
                one.committed_metadata or "",
                timestamp,
                one.committed_leader_epoch,
                expires,
            )
    if not offsets:
        return _response(request, errors)
    committed = await broker.groups.offsets.commit(
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        offsets,
    )
    errors.update(committed)
    return _response(request, errors)


def _response(
    request: OffsetCommitRequest, errors: dict[TopicPartition, ErrorCode]
) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=one.partition_index,
                        error_code=errors[TopicPartition(topic.name, one.partition_index)],
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
