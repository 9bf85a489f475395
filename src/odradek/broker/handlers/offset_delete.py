"""OffsetDelete (47), v0. Forget a group's offsets of topics it does not read any more."""

from odradek.broker.handler import Broker, RequestContext
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from odradek.wire.topics import TopicPartition


async def handle(
    broker: Broker, request: OffsetDeleteRequest, context: RequestContext
) -> OffsetDeleteResponse:
    asked = [
        TopicPartition(topic.name, one.partition_index)
        for topic in request.topics
        for one in topic.partitions
    ]
    known = [tp for tp in asked if tp in broker.cache]
    error, errors = await broker.groups.offsets.delete_offsets(request.group_id, known)
    if error:
        return OffsetDeleteResponse(error_code=error)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=one.partition_index,
                        error_code=errors.get(
                            TopicPartition(topic.name, one.partition_index),
                            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        ),
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
