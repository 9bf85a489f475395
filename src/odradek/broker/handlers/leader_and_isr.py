"""LeaderAndIsr (4), v0–v7. The controller says which replicas we lead and which we follow.

The controller of our own dialect sends v4. docs/spec/controller-and-replication.md section 5.1.
"""

from odradek.broker.handler import Broker, RequestContext
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse


async def handle(
    broker: Broker, request: LeaderAndIsrRequest, context: RequestContext
) -> LeaderAndIsrResponse:
    return await broker.replicas.control_requests.leader_and_isr(request, context.version)
