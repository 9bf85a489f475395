"""EndTxn (26), v0–v4. Commits or aborts a transaction.

Answered when the outcome is on all in-sync replicas of `__transaction_state`, before any marker is
written: from then on no crash changes it. docs/spec/transactions.md section 2.8.
"""

from odradek.broker.handler import Broker, RequestContext
from odradek.broker.producer_errors import downgraded
from odradek.wire.errors import KafkaError
from odradek.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

PRODUCER_FENCED_SINCE = 2


async def handle(broker: Broker, request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    try:
        await broker.transactions.end(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.committed,
        )
    except KafkaError as error:
        return EndTxnResponse(
            error_code=downgraded(error.error, context.version, PRODUCER_FENCED_SINCE)
        )
    return EndTxnResponse()
