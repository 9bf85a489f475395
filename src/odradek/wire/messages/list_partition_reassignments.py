"""ListPartitionReassignments (46), v0: the partitions that are being moved.

The tagged field is ours: how many moves of plans are not done. A move that waits for its leader to
be elected is no reassignment, and is not listed.
"""

from __future__ import annotations

from ..schema import Message, Request, Struct, int16, int32, since

PLAN_MOVES_TAG = 20_299


class ListPartitionReassignmentsTopics(Struct):
    name: str = since(0)
    partition_indexes: list[int32] = since(0)


class ListPartitionReassignmentsRequest(
    Request["ListPartitionReassignmentsResponse"], api_key=46, versions=(0, 0), flexible=0
):
    timeout_ms: int32 = since(0, default=60000)
    # null is every partition
    topics: list[ListPartitionReassignmentsTopics] | None = since(0, default=None)


class OngoingPartitionReassignment(Struct):
    partition_index: int32 = since(0)
    replicas: list[int32] = since(0)
    adding_replicas: list[int32] = since(0)
    removing_replicas: list[int32] = since(0)


class OngoingTopicReassignment(Struct):
    name: str = since(0)
    partitions: list[OngoingPartitionReassignment] = since(0)


class ListPartitionReassignmentsResponse(Message, api_key=46, versions=(0, 0), flexible=0):
    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    error_message: str | None = since(0)
    topics: list[OngoingTopicReassignment] = since(0)
    plan_moves: int32 = since(0, tag=PLAN_MOVES_TAG)
