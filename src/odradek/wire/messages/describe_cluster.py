"""DescribeCluster (60), v0–v1: the brokers and the controller, without the topics."""

from __future__ import annotations

from ..schema import Message, Request, Struct, int8, int16, int32, since


class DescribeClusterRequest(
    Request["DescribeClusterResponse"], api_key=60, versions=(0, 1), flexible=0
):
    include_cluster_authorized_operations: bool = since(0)
    endpoint_type: int8 = since(1, default=1)


class DescribeClusterBroker(Struct):
    broker_id: int32 = since(0)
    host: str = since(0)
    port: int32 = since(0)
    rack: str | None = since(0, default=None)


class DescribeClusterResponse(Message, api_key=60, versions=(0, 1), flexible=0):
    throttle_time_ms: int32 = since(0)
    error_code: int16 = since(0)
    error_message: str | None = since(0, default=None)
    endpoint_type: int8 = since(1, default=1)
    cluster_id: str = since(0)
    controller_id: int32 = since(0, default=-1)
    brokers: list[DescribeClusterBroker] = since(0)
    cluster_authorized_operations: int32 = since(0, default=-2147483648)
