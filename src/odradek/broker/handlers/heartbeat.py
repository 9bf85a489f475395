"""Heartbeat (12), v0–v4. A member is alive; the answer tells it of a rebalance."""

from typing import TYPE_CHECKING

from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from odradek.broker.requests import RequestContext
    from odradek.broker.server import Broker


def handle(
    broker: "Broker", request: HeartbeatRequest, context: "RequestContext"
) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=broker.groups.heartbeat(request))
