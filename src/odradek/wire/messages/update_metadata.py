"""UpdateMetadata (6), v0–v8: the controller tells a broker the state of the whole cluster."""

from __future__ import annotations

from uuid import UUID

from ..schema import Message, Request, Struct, int8, int16, int32, int64, since


class UpdateMetadataPartitionState(Struct):
    topic_name: str = since(0, until=4, ignorable=True)
    partition_index: int32 = since(0)
    controller_epoch: int32 = since(0)
    leader: int32 = since(0)  # -1: none, -2: the topic is being deleted
    leader_epoch: int32 = since(0)
    isr: list[int32] = since(0)
    zk_version: int32 = since(0)
    replicas: list[int32] = since(0)
    offline_replicas: list[int32] = since(4, ignorable=True)


class UpdateMetadataTopicState(Struct):
    topic_name: str = since(5)
    topic_id: UUID = since(7, ignorable=True)
    partition_states: list[UpdateMetadataPartitionState] = since(5)


class UpdateMetadataEndpoint(Struct):
    port: int32 = since(1)
    host: str = since(1)
    listener: str = since(3, ignorable=True)
    security_protocol: int16 = since(1)


class UpdateMetadataBroker(Struct):
    id: int32 = since(0)
    v0_host: str = since(0, until=0, ignorable=True)
    v0_port: int32 = since(0, until=0, ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = since(1, ignorable=True)
    rack: str | None = since(2, ignorable=True)


class UpdateMetadataRequest(
    Request["UpdateMetadataResponse"], api_key=6, versions=(0, 8), flexible=6
):
    controller_id: int32 = since(0)
    is_kraft_controller: bool = since(8)
    type: int8 = since(8, tag=0)
    controller_epoch: int32 = since(0)
    broker_epoch: int64 = since(5, default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = since(0, until=4)
    topic_states: list[UpdateMetadataTopicState] = since(5)
    live_brokers: list[UpdateMetadataBroker] = since(0)


class UpdateMetadataResponse(Message, api_key=6, versions=(0, 8), flexible=6):
    error_code: int16 = since(0)
