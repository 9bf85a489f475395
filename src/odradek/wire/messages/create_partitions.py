"""CreatePartitions (37), v0–v3: more partitions for topics that exist."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int16, int32, since


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int32] = since(0)


class CreatePartitionsTopic(Struct):
    name: str = since(0)
    count: int32 = since(0)
    assignments: list[CreatePartitionsAssignment] | None = since(0)


class CreatePartitionsRequest(
    Request["CreatePartitionsResponse"], api_key=37, versions=(0, 3), flexible=2
):
    topics: list[CreatePartitionsTopic] = since(0)
    timeout_ms: int32 = since(0)
    validate_only: bool = since(0)


class CreatePartitionsTopicResult(Struct):
    name: str = since(0)
    error_code: int16 = since(0)
    error_message: str | None = since(0, default=None)


class CreatePartitionsResponse(Message, api_key=37, versions=(0, 3), flexible=2):
    throttle_time_ms: int32 = since(0)
    results: list[CreatePartitionsTopicResult] = since(0)
