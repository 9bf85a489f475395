"""LeaveGroup (13), v0–v5. One member goes, or from v3 several, static ones by instance alone."""

from odradek.broker.handler import Broker, RequestContext
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)

SEVERAL_SINCE = 3


def handle(
    broker: Broker, request: LeaveGroupRequest, context: RequestContext
) -> LeaveGroupResponse:
    leaving = request.members
    if context.version < SEVERAL_SINCE:
        leaving = [MemberIdentity(member_id=request.member_id)]
    error, members = broker.groups.leave(request.group_id, leaving)
    if context.version < SEVERAL_SINCE:
        first = members[0].error_code if members else ErrorCode.NONE
        return LeaveGroupResponse(error_code=error or first)
    return LeaveGroupResponse(error_code=error, members=members)
