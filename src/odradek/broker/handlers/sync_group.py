"""SyncGroup (14), v0–v5. The leader divides the work; everybody gets a part."""

from collections.abc import Awaitable

from odradek.broker.handler import Broker, RequestContext
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def handle(
    broker: Broker, request: SyncGroupRequest, context: RequestContext
) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    return broker.groups.sync(request)
