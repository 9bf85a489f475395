"""ListGroups (16), v0–v5. The groups this broker coordinates, by state and type if asked."""

from odradek.broker.handler import Broker, RequestContext
from odradek.security.acls import AclOperation, ResourceType
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

CLASSIC = "classic"


def handle(
    broker: Broker, request: ListGroupsRequest, context: RequestContext
) -> ListGroupsResponse:
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    storage = broker.groups.storage
    sees_all = context.may.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER)
    return ListGroupsResponse(
        error_code=(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if storage.is_loading else ErrorCode.NONE
        ),
        groups=[
            ListedGroup(
                group_id=group.id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=CLASSIC,
            )
            for group in storage.entries()
            if (sees_all or context.may.allows(AclOperation.DESCRIBE, ResourceType.GROUP, group.id))
            and (not states or group.state.value.lower() in states)
            and (not types or CLASSIC in types)
        ],
    )
