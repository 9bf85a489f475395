"""AllocateProducerIds (67), v0. The controller gives a broker its next block of producer ids.

docs/spec/protocol-ladder.md section 4. Served at every inter-broker protocol: a broker of a later
one that finds this API missing gives out no producer ids until it is restarted.
"""

from odradek.broker.handler import Broker, RequestContext
from odradek.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

CONTROLLER_ONLY = True


async def handle(
    broker: Broker, request: AllocateProducerIdsRequest, context: RequestContext
) -> AllocateProducerIdsResponse:
    block = await broker.controller.allocate_producer_ids(request.broker_id, request.broker_epoch)
    return AllocateProducerIdsResponse(producer_id_start=block.start, producer_id_len=len(block))
