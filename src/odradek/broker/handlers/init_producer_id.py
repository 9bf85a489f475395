"""InitProducerId (22), v0–v5. An id and an epoch for an idempotent or a transactional producer.

Each broker takes ids from its own blocks, a thousand at a time (docs/spec/protocol-ladder.md
section 4). A client that comes before there is one waits for it, or comes again after
COORDINATOR_LOAD_IN_PROGRESS. For a transactional id only its
coordinator answers, and fences its earlier producers (docs/spec/transactions.md section 2.6).
"""

from odradek.broker.handler import Broker, RequestContext
from odradek.broker.producer_errors import downgraded
from odradek.security.acls import AclOperation, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

PRODUCER_FENCED_SINCE = 4


async def handle(
    broker: Broker, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse:
    try:
        producer_id, epoch = await _given(broker, request, context)
    except KafkaError as error:
        return InitProducerIdResponse(
            error_code=downgraded(error.error, context.version, PRODUCER_FENCED_SINCE),
            producer_id=-1,
            producer_epoch=-1,
        )
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)


async def _given(
    broker: Broker, request: InitProducerIdRequest, context: RequestContext
) -> tuple[int, int]:
    transactional_id = request.transactional_id
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if transactional_id is not None:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        error = context.may.check(
            AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
        )
        if error is not None:
            raise error
        return await broker.transactions.init_producer_id(
            transactional_id,
            request.transaction_timeout_ms,
            request.producer_id,
            request.producer_epoch,
        )
    if not context.may.allows_on_any(AclOperation.WRITE, ResourceType.TOPIC):
        error = context.may.check(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
        if error is not None:
            raise error
    return await broker.producer_ids.take(), 0
