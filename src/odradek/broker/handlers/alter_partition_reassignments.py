"""AlterPartitionReassignments (45), v0. Moves replicas, or cancels a move (null replicas).

With a plan's id the moves are paced, in the order of the plan (`controller/plan_pace.py`).

Only the controller; others answer NOT_CONTROLLER. docs/spec/controller-and-replication.md section
4.7.
"""

import re

from odradek.broker.handler import Broker, RequestContext
from odradek.controller.partition_outcome import PartitionOutcome
from odradek.store.plan_moves import PlannedMove
from odradek.wire.errors import ErrorCode, KafkaError
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
PLAN_ID_LENGTH_MAX = 100
PLAN_ID = re.compile(rf"[A-Za-z0-9._-]{{1,{PLAN_ID_LENGTH_MAX}}}")


async def handle(
    broker: Broker, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    results = await _ask(broker, request, context.sender)
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


async def _ask(
    broker: Broker, request: AlterPartitionReassignmentsRequest, sender: str
) -> dict[TopicPartition, PartitionOutcome]:
    asked = {
        TopicPartition(topic.name, partition.partition_index): partition
        for topic in request.topics
        for partition in topic.partitions
    }
    if request.plan_id is None:
        moves = {tp: partition.replicas for tp, partition in asked.items()}
        return await broker.controller.alter_reassignments(moves, requester=sender)
    if not PLAN_ID.fullmatch(request.plan_id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"{request.plan_id[:PLAN_ID_LENGTH_MAX]!r} cannot be the id of a plan",
        )
    return await broker.controller.move_for_plan(
        request.plan_id,
        {
            tp: None
            if partition.planned_replicas is None
            else PlannedMove(tuple(partition.planned_replicas), max(0, partition.replica_bytes))
            for tp, partition in sorted(asked.items(), key=lambda item: item[1].plan_position)
        },
        throttle=max(0, request.plan_throttle),
        strained=frozenset(request.strained_brokers),
        requester=sender,
    )
