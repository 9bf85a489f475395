"""JoinGroup (11), v0–v9. Enter a group; answered when the others are there, or time is up."""

from odradek.broker.handler import Broker, RequestContext
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from odradek.wire.reply import Reply


def handle(
    broker: Broker, request: JoinGroupRequest, context: RequestContext
) -> Reply[JoinGroupResponse]:
    return broker.groups.join(
        request, context.version, context.client_id, f"/{context.connection.host}"
    )
