"""DescribeTransactions (65), v0. The state of transactional ids, with the partitions that have no
marker yet. docs/spec/transactions.md section 2.13."""

from odradek.broker.authorization import Permissions
from odradek.broker.handler import Broker, RequestContext
from odradek.security.acls import AclOperation, ResourceType
from odradek.wire.errors import KafkaError
from odradek.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from odradek.wire.topics import numbers_by_topic


def handle(
    broker: Broker, request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            _described(broker, transactional_id, context.may)
            for transactional_id in request.transactional_ids
        ]
    )


def _described(broker: Broker, transactional_id: str, may: Permissions) -> TransactionState:
    try:
        transaction = broker.transactions.describe(transactional_id)
    except KafkaError as error:
        return TransactionState(error_code=error.error, transactional_id=transactional_id)
    is_finishing = transaction.state.is_prepared
    topics = numbers_by_topic(
        tp
        for tp in sorted(transaction.unmarked if is_finishing else transaction.partitions)
        if may.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, tp.topic)
    )
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.label,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        topics=[TopicData(topic=name, partitions=indexes) for name, indexes in topics.items()],
    )
