"""DescribeCluster (60), v0–v1. The brokers, the controller and the cluster's id."""

from odradek.broker.handler import Broker, RequestContext
from odradek.broker.handlers.metadata import cluster_operations
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1
CONTROLLERS = 2


def handle(
    broker: Broker, request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE
            if request.endpoint_type == CONTROLLERS
            else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="Only the brokers' endpoints are known in a cluster with ZooKeeper",
            endpoint_type=request.endpoint_type,
        )
    controller_id = broker.cache.controller_id
    response = DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=-1 if controller_id is None else controller_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=known.node_id, host=known.host, port=known.port, rack=known.rack
            )
            for known in broker.cache.broker_answers(context.connection.listener)
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(context)
    return response
