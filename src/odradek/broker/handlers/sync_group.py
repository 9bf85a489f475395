"""SyncGroup (14), v0–v5. The leader assigns the partitions; every member gets its share."""

from odradek.broker.handler import Broker, RequestContext
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek.wire.reply import Reply


def handle(
    broker: Broker, request: SyncGroupRequest, context: RequestContext
) -> Reply[SyncGroupResponse]:
    return broker.groups.sync(request)
