"""AddOffsetsToTxn (25), v0–v4. A group whose offsets a transaction is about to commit.

What is added is the group's partition of `__consumer_offsets`, which gets a marker as any other.
docs/spec/transactions.md section 2.7.
"""

from odradek.broker.handler import Broker, RequestContext
from odradek.broker.producer_errors import downgraded
from odradek.coordinator.storage import OFFSETS_TOPIC
from odradek.wire.errors import KafkaError
from odradek.wire.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from odradek.wire.topics import TopicPartition

PRODUCER_FENCED_SINCE = 2


async def handle(
    broker: Broker, request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse:
    partition = broker.groups.storage.partition_for(request.group_id)
    try:
        await broker.transactions.add_partitions(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [TopicPartition(OFFSETS_TOPIC, partition)],
        )
    except KafkaError as error:
        return AddOffsetsToTxnResponse(
            error_code=downgraded(error.error, context.version, PRODUCER_FENCED_SINCE)
        )
    return AddOffsetsToTxnResponse()
