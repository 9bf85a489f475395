"""ControlledShutdown (7), v0–v3. A broker asks the controller to take its leaderships away.

The answer names the partitions it still leads. docs/spec/controller-and-replication.md section 4.4.
"""

from odradek.broker.handler import Broker, RequestContext
from odradek.wire.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)


async def handle(
    broker: Broker, request: ControlledShutdownRequest, context: RequestContext
) -> ControlledShutdownResponse:
    await broker.control.check_broker_epoch(request.broker_id, request.broker_epoch, context.sender)
    remaining = await broker.controller.controlled_shutdown(request.broker_id, request.broker_epoch)
    return ControlledShutdownResponse(
        remaining_partitions=[
            RemainingPartition(topic_name=topic, partition_index=partition)
            for topic, partition in sorted(remaining)
        ]
    )
