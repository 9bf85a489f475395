"""StopReplica (5), v0–v4. The controller takes replicas away, with their logs or without.

The controller of our own dialect sends v3. BEHAVIOUR.md section 5.6.
"""

from typing import TYPE_CHECKING

from odradek.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse

if TYPE_CHECKING:
    from odradek.broker.requests import RequestContext
    from odradek.broker.server import Broker


def handle(
    broker: "Broker", request: StopReplicaRequest, context: "RequestContext"
) -> StopReplicaResponse:
    return broker.replicas.stop_replica(request)
