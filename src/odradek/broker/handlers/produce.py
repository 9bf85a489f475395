"""Produce (0), v0–v11. Appends to the leaders of partitions and answers as `acks` asks.

acks=0 is never answered; on an error the connection is closed, which is all its client can notice.
v0–v2 are listed because librdkafka reads that as leave to compress; their record formats, magic 0
and 1, are refused with INVALID_RECORD in every version. Records go to the log in the buffer they
were received in. docs/spec/controller-and-replication.md section 5.4.

Before the first batch of a transaction its coordinator is asked whether the partition is part of it
(docs/spec/transactions.md section 2.7). The connection waits meanwhile, so that the batches behind
it stay behind it.
"""

import logging

from odradek.broker.handler import Broker, RequestContext
from odradek.log.producers import Guard
from odradek.replica.leader.delayed_produce import ProduceResult
from odradek.replica.leader.role import LeaderRole
from odradek.wire.batch import (
    CODEC_MASK,
    HEADER_BYTES,
    MAGIC,
    MAGIC_OFFSET,
    TRANSACTIONAL_BIT,
    BatchHeader,
    attribute_bits,
    header_at,
)
from odradek.wire.compression import Codec
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from odradek.wire.reply import Reply
from odradek.wire.topics import INTERNAL_TOPICS, TopicPartition

Results = dict[TopicPartition, ProduceResult]

ADMIN_CLIENT_ID = "__admin_client"
TRANSACTION_ABORTABLE_SINCE = 11

logger = logging.getLogger(__name__)


def handle(
    broker: Broker, request: ProduceRequest, context: RequestContext
) -> Reply[ProduceResponse | None]:
    entries: dict[TopicPartition, memoryview] = {}
    transactional: dict[TopicPartition, BatchHeader] = {}
    refused: Results = {}
    version = context.header.api_version
    for topic in request.topic_data:
        for data in topic.partition_data:
            of = TopicPartition(topic.name, data.index)
            records = data.records
            if topic.name in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT_ID:
                refused[of] = ProduceResult(ErrorCode.INVALID_TOPIC_EXCEPTION)
            elif not isinstance(records, memoryview) or not records:
                refused[of] = ProduceResult(ErrorCode.INVALID_RECORD, message="no record batch")
            elif len(records) > MAGIC_OFFSET and records[MAGIC_OFFSET] < MAGIC:
                refused[of] = ProduceResult(
                    ErrorCode.INVALID_RECORD, message="only record batches of magic 2 are allowed"
                )
            elif version < 7 and attribute_bits(records) & CODEC_MASK == Codec.ZSTD:
                refused[of] = ProduceResult(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
            else:
                entries[of] = records
                if _is_transactional(records):
                    transactional[of] = header_at(records)
            data.records = None  # or the frame would stay in memory as long as the request waits
    if broker.quotas.are_set:
        broker.quotas.produced(context)
    guards: dict[TopicPartition, Guard] | None = None
    if transactional:
        _check_transaction(request, transactional)
        if broker.verification.is_enabled:
            guards = _guards(broker, transactional)
            if guards:
                # The frame's buffer is not ours while the coordinator is asked.
                kept = {tp: memoryview(bytearray(records)) for tp, records in entries.items()}
                return Reply.exclusive(
                    _append_verified(broker, request, context, kept, guards, transactional)
                ).map(lambda found: _finish(broker, request, context, found, refused))
    appended = broker.replicas.append(request.acks, request.timeout_ms, entries, guards=guards)
    return appended.map(lambda found: _finish(broker, request, context, found, refused))


def _is_transactional(records: memoryview) -> bool:
    """Of what is too short, or no batch of today's format, the log says what is wrong."""
    return (
        len(records) >= HEADER_BYTES
        and records[MAGIC_OFFSET] == MAGIC
        and bool(attribute_bits(records) & TRANSACTIONAL_BIT)
    )


def _check_transaction(
    request: ProduceRequest, transactional: dict[TopicPartition, BatchHeader]
) -> None:
    if request.transactional_id is None:
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transaction without an id"
        )
    if len({(each.producer_id, each.producer_epoch) for each in transactional.values()}) > 1:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "transactions of several producers")


def _guards(
    broker: Broker, transactional: dict[TopicPartition, BatchHeader]
) -> dict[TopicPartition, Guard]:
    """For the partitions led here in which the producer has no transaction open."""
    guards = {}
    for tp, header in transactional.items():
        partition = broker.replicas.partitions.get(tp)
        if partition is not None and isinstance(partition.role, LeaderRole):
            guard = partition.local_log.producers.guard_for(
                header.producer_id, header.producer_epoch, header.base_sequence, broker.clock()
            )
            if guard is not None:
                guards[tp] = guard
    return guards


async def _append_verified(
    broker: Broker,
    request: ProduceRequest,
    context: RequestContext,
    entries: dict[TopicPartition, memoryview],
    guards: dict[TopicPartition, Guard],
    transactional: dict[TopicPartition, BatchHeader],
) -> Results:
    """Asks the coordinator, and appends what it has confirmed."""
    header = next(iter(transactional.values()))
    found = await broker.verification.verify(
        request.transactional_id or "", header.producer_id, header.producer_epoch, list(guards)
    )
    failed = {
        tp: ProduceResult(_unverified(error, context.version), message="transaction not verified")
        for tp, error in found.items()
        if error
    }
    verified = {tp: records for tp, records in entries.items() if tp not in failed}
    appended = broker.replicas.append(request.acks, request.timeout_ms, verified, guards=guards)
    return {**await appended.result(), **failed}


def _unverified(error: ErrorCode, version: int) -> ErrorCode:
    """What a producer is told; that it may try again without asking for new metadata first, where
    the coordinator could not be asked."""
    if error is ErrorCode.TRANSACTION_ABORTABLE and version >= TRANSACTION_ABORTABLE_SINCE:
        return error
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error in (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_EPOCH):
        return error
    if error in _NOT_IN_TRANSACTION:
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.NOT_ENOUGH_REPLICAS


_NOT_IN_TRANSACTION = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)


def _finish(
    broker: Broker,
    request: ProduceRequest,
    context: RequestContext,
    results: Results,
    refused: Results,
) -> ProduceResponse | None:
    if refused:
        for of in refused:
            broker.replicas.traffic.produce_failed(of.topic, 0)
        results = {**results, **refused}
    if request.acks == 0:
        _close_on_error(results, context)
        return None
    topics: dict[str, list[PartitionProduceResponse]] = {}
    has_errors = False
    for of, result in results.items():
        topics.setdefault(of.topic, []).append(_partition_response(of.partition, result))
        has_errors = has_errors or result.error != 0
    context.may_have_errors = has_errors
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(name=topic, partition_responses=partitions)
            for topic, partitions in topics.items()
        ]
    )
    if has_errors and context.header.api_version >= 10:
        _add_leaders(broker, response, context)
    return response


def _partition_response(index: int, result: ProduceResult) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=result.error,
        base_offset=result.base_offset,
        log_append_time_ms=result.append_time_ms,
        log_start_offset=result.log_start_offset,
        error_message=result.message or None,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=reason)
            for index, reason in result.record_errors
        ],
    )


def _close_on_error(results: Results, context: RequestContext) -> None:
    failed = {str(of): each.error.name for of, each in results.items() if each.error}
    if failed:
        logger.info(
            "%s: closing, a produce with acks=0 failed: %s", context.connection.peer, failed
        )
        context.close_after = True


def _add_leaders(broker: Broker, response: ProduceResponse, context: RequestContext) -> None:
    """Adds the present leader to the errors of a client that asked the wrong broker (KIP-951)."""
    endpoints: dict[int, NodeEndpoint] = {}
    for topic in response.responses:
        for found in topic.partition_responses:
            if found.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                continue
            known = broker.cache.partition(topic.name, found.index)
            if known is None:
                continue
            found.current_leader = LeaderIdAndEpoch(
                leader_id=known.leader, leader_epoch=known.leader_epoch
            )
            leader = broker.cache.broker(known.leader)
            endpoint = broker.cache.endpoint(known.leader, context.connection.listener)
            if leader is not None and endpoint is not None:
                endpoints[leader.id] = NodeEndpoint(
                    node_id=leader.id, host=endpoint[0], port=endpoint[1], rack=leader.rack
                )
    response.node_endpoints = list(endpoints.values())
