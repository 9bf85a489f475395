"""OffsetForLeaderEpoch (23), v0–v4. Where a leader epoch ends in the leader's log (KIP-101,
KIP-320).
"""

from odradek.broker.handler import Broker, RequestContext
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from odradek.wire.topics import TopicPartition

# A follower names every partition that it has from this leader.
ELEMENTS_MAX = 100_000


def handle(
    broker: Broker, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_found(broker, topic.topic, asked) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _found(broker: Broker, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = broker.replicas.partitions[TopicPartition(topic, asked.partition)]
        epoch, offset = partition.end_offset_for_epoch(
            asked.current_leader_epoch, asked.leader_epoch
        )
    except KafkaError as error:
        return _failed(asked.partition, error.error)
    return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=offset)


def _failed(partition: int, error: ErrorCode) -> EpochEndOffset:
    return EpochEndOffset(partition=partition, error_code=error)
