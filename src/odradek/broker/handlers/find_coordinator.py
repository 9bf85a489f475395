"""FindCoordinator (10), v0–v6. Which broker answers for a group or for a transactional id; from v4
for several.

The leader of its partition of the state topic. The topic is created when it is first needed.
"""

from odradek.broker.handler import Broker, RequestContext
from odradek.coordinator.storage import OFFSETS_TOPIC
from odradek.coordinator.transaction_storage import TRANSACTIONS_TOPIC
from odradek.security.acls import AclOperation, ResourceType
from odradek.store.payloads import NO_LEADER
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

GROUP = 0
TRANSACTION = 1
SEVERAL_SINCE = 4
CREATION_WAIT_MS = 250

TOPICS = {GROUP: OFFSETS_TOPIC, TRANSACTION: TRANSACTIONS_TOPIC}


async def handle(
    broker: Broker, request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    several = context.version >= SEVERAL_SINCE
    keys = request.coordinator_keys if several else [request.key]
    topic = TOPICS.get(request.key_type)
    refused = {key: error for key in keys if (error := _refused(request.key_type, key, context))}
    is_wanted = any(key and key not in refused for key in keys)
    if topic is not None and is_wanted and not broker.cache.has_topic(topic):
        await broker.topics.create_automatically(topic, CREATION_WAIT_MS)
    found = [
        _unknown(key, refused[key].error)
        if key in refused
        else _find(broker, request.key_type, key, context.connection.listener)
        for key in keys
    ]
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


def _refused(key_type: int, key: str, context: RequestContext) -> KafkaError | None:
    kind = ResourceType.GROUP if key_type == GROUP else ResourceType.TRANSACTIONAL_ID
    return context.may.check(AclOperation.DESCRIBE, kind, key)


def _find(broker: Broker, key_type: int, key: str, listener: str) -> Coordinator:
    if key_type not in (GROUP, TRANSACTION):
        return _unknown(key, ErrorCode.INVALID_REQUEST)
    if key_type == GROUP and not key:
        return _unknown(key, ErrorCode.INVALID_GROUP_ID)
    storage = broker.groups.storage if key_type == GROUP else broker.transactions.storage
    state = broker.cache.partition(TOPICS[key_type], storage.partition_for(key))
    if state is None or state.leader == NO_LEADER:
        return _unknown(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    endpoint = broker.cache.endpoint(state.leader, listener)
    if endpoint is None:
        return _unknown(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    host, port = endpoint
    return Coordinator(key=key, node_id=state.leader, host=host, port=port)


def _unknown(key: str, error: ErrorCode) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error)
