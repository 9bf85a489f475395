"""CreateTopics (19), v0–v7: new topics, placed by the broker or by hand."""

from __future__ import annotations

from uuid import UUID

from ..schema import Message, Request, Struct, int8, int16, int32, since


class CreatableReplicaAssignment(Struct):
    partition_index: int32 = since(0)
    broker_ids: list[int32] = since(0)


class CreatableTopicConfig(Struct):
    name: str = since(0)
    value: str | None = since(0)


class CreatableTopic(Struct):
    name: str = since(0)
    num_partitions: int32 = since(0)  # -1: the broker's default, or as assigned
    replication_factor: int16 = since(0)  # -1: the broker's default, or as assigned
    assignments: list[CreatableReplicaAssignment] = since(0)
    configs: list[CreatableTopicConfig] = since(0)


class CreateTopicsRequest(Request["CreateTopicsResponse"], api_key=19, versions=(0, 7), flexible=5):
    topics: list[CreatableTopic] = since(0)
    timeout_ms: int32 = since(0, default=60000)
    validate_only: bool = since(1)


class CreatableTopicConfigs(Struct):
    name: str = since(5)
    value: str | None = since(5)
    read_only: bool = since(5)
    config_source: int8 = since(5, default=-1)
    is_sensitive: bool = since(5)


class CreatableTopicResult(Struct):
    name: str = since(0)
    topic_id: UUID = since(7)
    error_code: int16 = since(0)
    error_message: str | None = since(1)
    topic_config_error_code: int16 = since(5, tag=0)
    num_partitions: int32 = since(5, default=-1)
    replication_factor: int16 = since(5, default=-1)
    configs: list[CreatableTopicConfigs] | None = since(5)


class CreateTopicsResponse(Message, api_key=19, versions=(0, 7), flexible=5):
    throttle_time_ms: int32 = since(2)
    topics: list[CreatableTopicResult] = since(0)
