"""AlterPartitionReassignments (45), v0. Moves replicas, or cancels a move (null replicas).

Only the controller; others answer NOT_CONTROLLER. docs/spec/controller-and-replication.md section
4.7.
"""

from odradek.broker.handler import Broker, RequestContext
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from odradek.wire.topics import TopicPartition

CONTROLLER_ONLY = True
# A plan for a large cluster is one request.
ELEMENTS_MAX = 200_000


async def handle(
    broker: Broker, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    results = await broker.controller.alter_reassignments(
        {
            TopicPartition(topic.name, asked.partition_index): asked.replicas
            for topic in request.topics
            for asked in topic.partitions
        },
        requester=context.sender,
    )
    return AlterPartitionReassignmentsResponse(
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=asked.partition_index,
                        error_code=(
                            result := results[TopicPartition(topic.name, asked.partition_index)]
                        ).error,
                        error_message=result.message or None,
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
