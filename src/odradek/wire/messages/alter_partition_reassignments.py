"""AlterPartitionReassignments (45), v0: move partitions to other brokers, or stop moving them."""

from __future__ import annotations

from ..schema import Message, Struct, int16, int32, since


class ReassignablePartition(Struct):
    partition_index: int32 = since(0)
    replicas: list[int32] | None = since(0, default=None)  # null cancels


class ReassignableTopic(Struct):
    name: str = since(0)
    partitions: list[ReassignablePartition] = since(0)


class AlterPartitionReassignmentsRequest(Message, api_key=45, versions=(0, 0), flexible=0):
    timeout_ms: int32 = since(0, default=60000)
    topics: list[ReassignableTopic] = since(0)


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
