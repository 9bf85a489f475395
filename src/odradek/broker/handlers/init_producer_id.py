"""InitProducerId (22), v0–v5. An id for an idempotent producer.

Each broker takes ids from its own block, which it gets from the store, a thousand at a time
(docs/spec/interchange-with-apache-kafka.md section B.1). Transactional producers need the
transaction coordinator, which is not served: they are told COORDINATOR_NOT_AVAILABLE.
"""

from odradek.broker.handler import Broker, RequestContext
from odradek.security.acls import AclOperation, ResourceType
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from odradek.wire.reply import Reply


def handle(
    broker: Broker, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse | Reply[InitProducerIdResponse]:
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST)
    if request.transactional_id is not None:
        if not request.transactional_id:
            return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST)
        error = context.may.check(
            AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id
        )
        if error is not None:
            raise error
        return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if not context.may.allows_on_any(AclOperation.WRITE, ResourceType.TOPIC):
        error = context.may.check(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
        if error is not None:
            raise error
    return Reply.exclusive(_given(broker))


async def _given(broker: Broker) -> InitProducerIdResponse:
    producer_id = await broker.producer_ids.take()
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
