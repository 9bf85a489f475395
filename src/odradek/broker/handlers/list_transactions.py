"""ListTransactions (66), v0–v1. The transactional ids this broker coordinates.

Filtered by state, producer id and, from v1, by how long the transaction has been open. Ids that the
client may not describe are left out. docs/spec/transactions.md section 2.13.
"""

from odradek.broker.handler import Broker, RequestContext
from odradek.coordinator.transaction_states import TransactionState as State
from odradek.security.acls import AclOperation, ResourceType
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)


def handle(
    broker: Broker, request: ListTransactionsRequest, context: RequestContext
) -> ListTransactionsResponse:
    storage = broker.transactions.storage
    if storage.is_loading:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    labels = {state.label for state in State}
    states, producer_ids = set(request.state_filters), set(request.producer_id_filters)
    now = broker.clock()
    found = [
        TransactionState(
            transactional_id=each.transactional_id,
            producer_id=each.producer_id,
            transaction_state=each.state.label,
        )
        for each in storage.entries()
        if each.pending is not State.DEAD
        and (not states or each.state.label in states)
        and (not producer_ids or each.producer_id in producer_ids)
        and (request.duration_filter < 0 or now - each.started_ms > request.duration_filter)
        and context.may.allows(
            AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, each.transactional_id
        )
    ]
    return ListTransactionsResponse(
        unknown_state_filters=sorted(states - labels), transaction_states=found
    )
