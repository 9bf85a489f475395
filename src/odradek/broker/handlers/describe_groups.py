"""DescribeGroups (15), v0–v5. The state and members of groups; one that is unknown is Dead."""

from odradek.broker.handler import Broker, RequestContext
from odradek.coordinator.group import Group, GroupState
from odradek.security.acls import ResourceType
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


def handle(
    broker: Broker, request: DescribeGroupsRequest, context: RequestContext
) -> DescribeGroupsResponse:
    described = [_describe(broker, group_id) for group_id in dict.fromkeys(request.groups)]
    if request.include_authorized_operations:
        for group in described:
            if not group.error_code:
                group.authorized_operations = context.may.operations(
                    ResourceType.GROUP, group.group_id
                )
    return DescribeGroupsResponse(groups=described)


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
