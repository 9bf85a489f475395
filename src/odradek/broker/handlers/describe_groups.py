"""DescribeGroups (15), v0–v5. The state and members of groups; one that is unknown is Dead."""

from odradek.broker.handler import Broker, RequestContext
from odradek.broker.slices import map_in_slices
from odradek.coordinator.group import Group, GroupState
from odradek.security.acls import ResourceType
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from odradek.wire.reply import Reply


def handle(
    broker: Broker, request: DescribeGroupsRequest, context: RequestContext
) -> Reply[DescribeGroupsResponse]:
    def describe(group_id: str) -> DescribedGroup:
        group = _describe(broker, group_id)
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = context.may.operations(ResourceType.GROUP, group_id)
        return group

    return map_in_slices(list(dict.fromkeys(request.groups)), describe).map(
        lambda described: DescribeGroupsResponse(groups=described)
    )


def _describe(broker: Broker, group_id: str) -> DescribedGroup:
    error = broker.groups.check(group_id, allow_empty=True)
    if error:
        return DescribedGroup(group_id=group_id, error_code=error)
    group = broker.groups.storage.get(group_id)
    if group is None:
        return DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        # Which protocol is chosen is only known once all have joined.
        protocol_data=(group.protocol or "") if group.state is GroupState.STABLE else "",
        members=_members(group),
    )


def _members(group: Group) -> list[DescribedGroupMember]:
    is_stable = group.state is GroupState.STABLE
    return [
        DescribedGroupMember(
            member_id=member.id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(group.protocol) if is_stable else b"",
            member_assignment=member.assignment if is_stable else b"",
        )
        for member in group.members.values()
    ]
