"""AddPartitionsToTxn (24), v0–v5. Partitions that a transaction is about to write to.

Up to v3 a client adds partitions to its one transaction; from v4 a broker asks about several, and
with `verify_only` nothing is changed: it wants to know whether the partitions were added. One
partition that cannot be added keeps the others out. docs/spec/transactions.md section 2.7.
"""

from collections.abc import Iterable

from odradek.broker.handler import Broker, RequestContext
from odradek.broker.producer_errors import downgraded
from odradek.security.acls import AclOperation, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from odradek.wire.topics import INTERNAL_TOPICS, TopicPartition

SEVERAL_SINCE = 4
PRODUCER_FENCED_SINCE = 2

Errors = dict[TopicPartition, ErrorCode]


async def handle(
    broker: Broker, request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    if context.version < SEVERAL_SINCE:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
        errors = await _add_for_client(broker, transaction, context)
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=_results(transaction.topics, errors)
        )
    refused = context.may.check(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
    if refused is not None:
        return AddPartitionsToTxnResponse(error_code=refused.error)
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=each.transactional_id,
                topic_results=_results(each.topics, await _add(broker, each)),
            )
            for each in request.transactions
        ]
    )


async def _add_for_client(
    broker: Broker, transaction: AddPartitionsToTxnTransaction, context: RequestContext
) -> Errors:
    may, partitions = context.may, _partitions(transaction.topics)
    refused = may.check(
        AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transaction.transactional_id
    )
    if refused is not None:
        return dict.fromkeys(partitions, refused.error)
    errors: Errors = {}
    for topic in transaction.topics:
        if topic.name in INTERNAL_TOPICS:
            refused = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        else:
            refused = may.check(AclOperation.WRITE, ResourceType.TOPIC, topic.name)
        if refused is not None:
            errors.update((TopicPartition(topic.name, n), refused.error) for n in topic.partitions)
    for tp in partitions:
        if tp not in errors and tp not in broker.cache:
            errors[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if errors:
        return {**dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED), **errors}
    errors = await _add(broker, transaction)
    return {
        tp: downgraded(error, context.version, PRODUCER_FENCED_SINCE)
        for tp, error in errors.items()
    }


async def _add(broker: Broker, transaction: AddPartitionsToTxnTransaction) -> Errors:
    partitions = _partitions(transaction.topics)
    owner = (
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
    )
    try:
        if transaction.verify_only:
            return broker.transactions.verify(*owner, partitions)
        await broker.transactions.add_partitions(*owner, partitions)
    except KafkaError as error:
        return dict.fromkeys(partitions, error.error)
    return dict.fromkeys(partitions, ErrorCode.NONE)


def _partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


def _results(
    topics: Iterable[AddPartitionsToTxnTopic], errors: Errors
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=errors[TopicPartition(topic.name, index)],
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
