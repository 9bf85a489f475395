"""SyncGroup (14), v0–v5. The leader divides the work; everybody gets a part."""

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from odradek.broker.requests import RequestContext
    from odradek.broker.server import Broker


def handle(
    broker: "Broker", request: SyncGroupRequest, context: "RequestContext"
) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    return broker.groups.sync(request)
