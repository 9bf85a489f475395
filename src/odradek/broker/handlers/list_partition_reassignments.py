"""ListPartitionReassignments (46), v0. The moves under way; null topics asks for all.

Only the controller; others answer NOT_CONTROLLER. docs/spec/controller-and-replication.md section
4.7.
"""

from itertools import groupby

from odradek.broker.handler import Broker, RequestContext
from odradek.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from odradek.wire.topics import TopicPartition

CONTROLLER_ONLY = True


async def handle(
    broker: Broker, request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    asked = None
    if request.topics is not None:
        asked = {
            TopicPartition(topic.name, partition)
            for topic in request.topics
            for partition in topic.partition_indexes
        }
    ongoing = await broker.controller.list_reassignments(asked)
    return ListPartitionReassignmentsResponse(
        error_message=None,
        topics=[
            OngoingTopicReassignment(
                name=topic,
                partitions=[
                    OngoingPartitionReassignment(
                        partition_index=of.partition,
                        replicas=list(ongoing[of].replicas),
                        adding_replicas=list(ongoing[of].adding),
                        removing_replicas=list(ongoing[of].removing),
                    )
                    for of in group
                ],
            )
            for topic, group in groupby(sorted(ongoing), lambda of: of.topic)
        ],
        plan_moves=broker.controller.moves_of_plans,
    )
