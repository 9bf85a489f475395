"""Produce (0), v0–v11. Appends to the leaders of partitions and answers as `acks` asks.

acks=0 is never answered; on an error the connection is closed, which is all its client can notice.
v0–v2 are listed because librdkafka reads that as leave to compress; their record formats, magic 0
and 1, are refused. So are transactional batches: nobody here would ever end their transaction, and
who reads what is committed would wait for that for good. Records go to the log in the buffer they
were received in. docs/spec/controller-and-replication.md section 5.4.
"""

import logging

from odradek.broker.handler import Broker, RequestContext
from odradek.replica.leader.delayed_produce import ProduceResult
from odradek.wire.batch import MAGIC, TRANSACTIONAL_BIT
from odradek.wire.compression import Codec
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.produce import (
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

MAGIC_POSITION = 16
ATTRIBUTES_POSITION = 22
CODEC_BITS = 7
ADMIN_CLIENT_ID = "__admin_client"

logger = logging.getLogger(__name__)


def handle(
    broker: Broker, request: ProduceRequest, context: RequestContext
) -> Reply[ProduceResponse | None]:
    entries: dict[TopicPartition, memoryview] = {}
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
            elif version >= 3 and len(records) > MAGIC_POSITION and records[MAGIC_POSITION] < 2:
                refused[of] = ProduceResult(
                    ErrorCode.INVALID_RECORD, message="only record batches of magic 2 are allowed"
                )
            elif version < 7 and _is_zstd(records):
                refused[of] = ProduceResult(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
            elif len(records) > ATTRIBUTES_POSITION and (
                records[ATTRIBUTES_POSITION] & TRANSACTIONAL_BIT
                and records[MAGIC_POSITION] == MAGIC
            ):
                refused[of] = _transactional(request)
            else:
                entries[of] = records
            data.records = None  # or the frame would stay in memory as long as the request waits
    if broker.quotas.are_set:
        broker.quotas.produced(context)
    results = broker.replicas.append(request.acks, request.timeout_ms, entries)
    if isinstance(results, dict):
        return Reply.now(_finish(broker, request, context, results, refused))
    return Reply.later(results).map(lambda found: _finish(broker, request, context, found, refused))


def _transactional(request: ProduceRequest) -> ProduceResult:
    if request.transactional_id is None:
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transaction without an id"
        )
    return ProduceResult(ErrorCode.INVALID_TXN_STATE, message="transactions are not served")


def _is_zstd(records: memoryview) -> bool:
    return (
        len(records) > ATTRIBUTES_POSITION
        and records[ATTRIBUTES_POSITION] & CODEC_BITS == Codec.ZSTD
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
            TopicProduceResponse(name=topic, partition_responses=told)
            for topic, told in topics.items()
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
    )


def _close_on_error(results: Results, context: RequestContext) -> None:
    failed = {str(of): each.error.name for of, each in results.items() if each.error}
    if failed:
        logger.info(
            "%s: closing, a produce with acks=0 failed: %s", context.connection.peer, failed
        )
        context.close_after = True


def _add_leaders(broker: Broker, response: ProduceResponse, context: RequestContext) -> None:
    """Tells who asked the wrong broker whom to ask (KIP-951)."""
    endpoints: dict[int, NodeEndpoint] = {}
    for topic in response.responses:
        for told in topic.partition_responses:
            if told.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                continue
            known = broker.cache.partition(topic.name, told.index)
            if known is None:
                continue
            told.current_leader = LeaderIdAndEpoch(
                leader_id=known.leader, leader_epoch=known.leader_epoch
            )
            leader = broker.cache.broker(known.leader)
            endpoint = broker.cache.endpoint(known.leader, context.connection.listener)
            if leader is not None and endpoint is not None:
                endpoints[leader.id] = NodeEndpoint(
                    node_id=leader.id, host=endpoint[0], port=endpoint[1], rack=leader.rack
                )
    response.node_endpoints = list(endpoints.values())
