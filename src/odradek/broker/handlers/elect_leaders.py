"""ElectLeaders (43), v0–v2. Only the controller; others answer NOT_CONTROLLER for each partition.

Answered when this broker's metadata shows the new leaders, or at the time-out. With a null list all
partitions are meant, and those that need no election are left out.
docs/spec/controller-and-replication.md section 4.6.
"""

import asyncio
from collections.abc import Iterable
from itertools import groupby

from odradek.broker.handler import Broker, RequestContext
from odradek.controller.elections import ElectionType
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from odradek.wire.topics import TopicPartition


async def handle(
    broker: Broker, request: ElectLeadersRequest, context: RequestContext
) -> ElectLeadersResponse:
    if not broker.controller.is_active:
        meant = request.topic_partitions
        if meant is None:
            meant = [
                TopicPartitions(topic=name, partitions=sorted(broker.cache.partitions(name)))
                for name in broker.cache.topics()
            ]
        return _refused(meant, KafkaError(ErrorCode.NOT_CONTROLLER))
    try:
        kind = ElectionType(request.election_type)
    except ValueError:
        return refuse(request, KafkaError(ErrorCode.INVALID_REQUEST), context)
    asked = None
    if request.topic_partitions is not None:
        asked = {
            TopicPartition(topic.topic, partition)
            for topic in request.topic_partitions
            for partition in topic.partitions
        }
    results = await broker.controller.elect_leaders(kind, asked, requester=context.sender)
    codes = {of: (result.error, result.message) for of, result in results.items()}
    elected = {
        of: result.leader for of, result in results.items() if result.error == ErrorCode.NONE
    }
    late = await _unseen(broker, elected, request.timeout_ms)
    codes.update(dict.fromkeys(late, (ErrorCode.REQUEST_TIMED_OUT, "")))
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic,
                partition_result=[
                    PartitionResult(
                        partition_id=of.partition,
                        error_code=codes[of][0],
                        error_message=codes[of][1] or None,
                    )
                    for of in group
                ],
            )
            for topic, group in groupby(sorted(codes), lambda of: of.topic)
        ]
    )


def refuse(
    request: ElectLeadersRequest, error: KafkaError, context: RequestContext
) -> ElectLeadersResponse:
    return _refused(request.topic_partitions or (), error)


def _refused(meant: Iterable[TopicPartitions], error: KafkaError) -> ElectLeadersResponse:
    """Says it of each partition too: v0 has no other place for it."""
    return ElectLeadersResponse(
        error_code=error.error,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(
                        partition_id=partition,
                        error_code=error.error,
                        error_message=error.message or None,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in meant
        ],
    )


async def _unseen(
    broker: Broker, elected: dict[TopicPartition, int], timeout_ms: int
) -> list[TopicPartition]:
    """Those whose new leader this broker's own metadata does not show in time."""
    seen = await asyncio.gather(
        *(broker.topics.wait_for_leader(of, leader, timeout_ms) for of, leader in elected.items())
    )
    return [of for of, found in zip(elected, seen, strict=True) if not found]
