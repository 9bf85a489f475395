"""Heartbeat (12), v0–v4. A member is alive; the response announces a rebalance."""

from odradek.broker.handler import Broker, RequestContext
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(broker: Broker, request: HeartbeatRequest, context: RequestContext) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=broker.groups.heartbeat(request))
