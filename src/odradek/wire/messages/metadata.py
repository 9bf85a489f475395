"""Metadata (3), v0–v12: which brokers live, which topics exist, who leads each partition."""

from __future__ import annotations

from uuid import UUID

from ..schema import Message, Request, Struct, int16, int32, since


class MetadataRequestTopic(Struct):
    topic_id: UUID = since(10, ignorable=True)
    name: str | None = since(0, nullable_since=10)


class MetadataRequest(Request["MetadataResponse"], api_key=3, versions=(0, 12), flexible=9):
    # null asks for all; in v0, empty does
    topics: list[MetadataRequestTopic] | None = since(0, nullable_since=1)
    allow_auto_topic_creation: bool = since(4, default=True)
    include_cluster_authorized_operations: bool = since(8, until=10)
    include_topic_authorized_operations: bool = since(8)


class MetadataResponseBroker(Struct):
    node_id: int32 = since(0)
    host: str = since(0)
    port: int32 = since(0)
    rack: str | None = since(1, default=None)


class MetadataResponsePartition(Struct):
    error_code: int16 = since(0)
    partition_index: int32 = since(0)
    leader_id: int32 = since(0)
    leader_epoch: int32 = since(7, default=-1)
    replica_nodes: list[int32] = since(0)
    isr_nodes: list[int32] = since(0)
    offline_replicas: list[int32] = since(5)


class MetadataResponseTopic(Struct):
    error_code: int16 = since(0)
    name: str | None = since(0, nullable_since=12)
    topic_id: UUID = since(10)
    is_internal: bool = since(1)
    partitions: list[MetadataResponsePartition] = since(0)
    topic_authorized_operations: int32 = since(8, default=-2147483648)


class MetadataResponse(Message, api_key=3, versions=(0, 12), flexible=9):
    throttle_time_ms: int32 = since(3)
    brokers: list[MetadataResponseBroker] = since(0)
    cluster_id: str | None = since(2, default=None)
    controller_id: int32 = since(1, default=-1)
    topics: list[MetadataResponseTopic] = since(0)
    cluster_authorized_operations: int32 = since(8, until=10, default=-2147483648)
