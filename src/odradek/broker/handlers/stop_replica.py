"""StopReplica (5), v0–v4. The controller takes replicas away, with their logs or without.

The controller of our own dialect sends v3. docs/spec/controller-and-replication.md section 5.6.
"""

from odradek.broker.handler import Broker, RequestContext
from odradek.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse


def handle(
    broker: Broker, request: StopReplicaRequest, context: RequestContext
) -> StopReplicaResponse:
    return broker.replicas.control_requests.stop_replica(request)
