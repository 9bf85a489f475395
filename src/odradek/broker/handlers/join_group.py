"""JoinGroup (11), v0–v9. Enter a group; answered when the others are there, or time is up."""

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from odradek.broker.requests import RequestContext
    from odradek.broker.server import Broker


def handle(
    broker: "Broker", request: JoinGroupRequest, context: "RequestContext"
) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    return broker.groups.join(
        request, context.version, context.client_id, f"/{context.connection.host}"
    )
