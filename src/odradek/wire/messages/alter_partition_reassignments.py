"""AlterPartitionReassignments (45), v0: move partitions to other brokers, or stop moving them.

The tagged fields are ours: moves of a plan, which the controller carries out in the order of the
plan and paces. A Kafka controller ignores tags that it does not know and would start them all at
once, or cancel what moves: so the replicas of a plan's move are in a tag, and in their place stands
a list that every controller refuses.
"""

from __future__ import annotations

from ..schema import Message, Request, Struct, int16, int32, int64, since

PLAN_TAG = 20_293
POSITION_TAG = 20_294
BYTES_TAG = 20_295
THROTTLE_TAG = 20_296
STRAINED_TAG = 20_297
REPLICAS_TAG = 20_298

# In place of the replicas of a plan's move: no broker has this id.
ONLY_FOR_PLANS = (-1,)


class ReassignablePartition(Struct):
    partition_index: int32 = since(0)
    replicas: list[int32] | None = since(0, default=None)  # null cancels
    plan_position: int32 = since(0, tag=POSITION_TAG)  # where it stands in the plan
    # Of a plan's move; null takes the partition out of the plan, and a step that has begun ends.
    planned_replicas: list[int32] | None = since(0, tag=REPLICAS_TAG, default=None)
    replica_bytes: int64 = since(0, tag=BYTES_TAG)  # how much one new replica has to copy


class ReassignableTopic(Struct):
    name: str = since(0)
    partitions: list[ReassignablePartition] = since(0)


class AlterPartitionReassignmentsRequest(
    Request["AlterPartitionReassignmentsResponse"], api_key=45, versions=(0, 0), flexible=0
):
    timeout_ms: int32 = since(0, default=60000)
    topics: list[ReassignableTopic] = since(0)
    plan_id: str | None = since(0, tag=PLAN_TAG, default=None)
    # Bytes a second that each broker copies for plans; 0 for no limit.
    plan_throttle: int64 = since(0, tag=THROTTLE_TAG)
    # Brokers that should take part in fewer moves, as their latency or their disks say.
    strained_brokers: list[int32] = since(0, tag=STRAINED_TAG)


class ReassignablePartitionResponse(Struct):
    partition_index: int32 = since(0)
    error_code: int16 = since(0)
    error_message: str | None = since(0)


class ReassignableTopicResponse(Struct):
    name: str = since(0)
    partitions: list[ReassignablePartitionResponse] = since(0)


class AlterPartitionReassignmentsResponse(Message, api_key=45, versions=(0, 0), flexible=0):
    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    error_message: str | None = since(0)
    responses: list[ReassignableTopicResponse] = since(0)
