"""DeleteGroups (42), v0–v2. Forget groups without members, and their offsets."""

from odradek.broker.handler import Broker, RequestContext
from odradek.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


async def handle(
    broker: Broker, request: DeleteGroupsRequest, context: RequestContext
) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(
                group_id=name, error_code=await broker.groups.offsets.delete_group(name)
            )
            for name in dict.fromkeys(request.groups_names)
        ]
    )
