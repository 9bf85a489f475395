"""FindCoordinator (10), v0–v6. Which broker answers for a group; from v4 for several.

The leader of the group's partition of the offsets topic. The topic is made when first asked for.
There is no transaction coordinator: a transactional id gets COORDINATOR_NOT_AVAILABLE.
"""

from odradek.broker.handler import Broker, RequestContext
from odradek.coordinator.storage import OFFSETS_TOPIC
from odradek.replica.cluster_metadata import NO_LEADER
from odradek.security.acls import AclOperation, ResourceType
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

GROUP = 0
TRANSACTION = 1
SEVERAL_SINCE = 4
CREATION_WAIT_MS = 250


async def handle(
    broker: Broker, request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    several = context.version >= SEVERAL_SINCE
    keys = request.coordinator_keys if several else [request.key]
    if request.key_type == GROUP and any(keys) and not broker.cache.has_topic(OFFSETS_TOPIC):
        await broker.topics.create_automatically(OFFSETS_TOPIC, CREATION_WAIT_MS)
    found = [_allowed_or_error(broker, request.key_type, key, context) for key in keys]
    if several:
        return FindCoordinatorResponse(coordinators=found)
    one = found[0]
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


def _allowed_or_error(
    broker: Broker, key_type: int, key: str, context: RequestContext
) -> Coordinator:
    kind = ResourceType.GROUP if key_type == GROUP else ResourceType.TRANSACTIONAL_ID
    error = context.may.check(AclOperation.DESCRIBE, kind, key)
    if error is not None:
        return _unknown(key, error.error)
    return _find(broker, key_type, key, context.connection.listener)


def _find(broker: Broker, key_type: int, key: str, listener: str) -> Coordinator:
    if key_type not in (GROUP, TRANSACTION):
        return _unknown(key, ErrorCode.INVALID_REQUEST)
    if key_type == TRANSACTION:
        return _unknown(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if not key:
        return _unknown(key, ErrorCode.INVALID_GROUP_ID)
    state = broker.cache.partition(OFFSETS_TOPIC, broker.groups.storage.partition_for(key))
    if state is None or state.leader == NO_LEADER:
        return _unknown(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    endpoint = broker.cache.endpoint(state.leader, listener)
    if endpoint is None:
        return _unknown(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    host, port = endpoint
    return Coordinator(key=key, node_id=state.leader, host=host, port=port)


def _unknown(key: str, error: ErrorCode) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error)
