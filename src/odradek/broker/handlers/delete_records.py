"""DeleteRecords (21), v0–v2. Raises a log's start offset; answers when every live replica has.

-1 asks for the high watermark. Compacted logs and internal topics refuse.
docs/spec/controller-and-replication.md section 5.6.
"""

import asyncio

from odradek.broker.handler import Broker, RequestContext
from odradek.replica.partition import Partition
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from odradek.wire.topics import INTERNAL_TOPICS, TopicPartition

ELEMENTS_MAX = 10_000  # each is a task of its own
NO_WATERMARK = -1


async def handle(
    broker: Broker, request: DeleteRecordsRequest, context: RequestContext
) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse()
    waits = []
    for topic in request.topics:
        results = [
            _begin(broker, TopicPartition(topic.name, asked.partition_index), asked.offset)
            for asked in topic.partitions
        ]
        response.topics.append(
            DeleteRecordsTopicResult(name=topic.name, partitions=[each for each, _ in results])
        )
        waits += [
            _finish(result, wait, request.timeout_ms)
            for result, wait in results
            if wait is not None
        ]
    await asyncio.gather(*waits)
    return response


# A partition, and the low watermark that it is to reach.
Wait = tuple[Partition, int]


def _begin(
    broker: Broker, tp: TopicPartition, offset: int
) -> tuple[DeleteRecordsPartitionResult, Wait | None]:
    """Raises the log's start; what is known already, and what is to be waited for."""
    if tp.topic in INTERNAL_TOPICS and tp in broker.cache:
        return _result(tp.partition, NO_WATERMARK, ErrorCode.INVALID_TOPIC_EXCEPTION), None
    try:
        partition = broker.replicas.partitions[tp]
        wanted = partition.leader.delete_records(offset)
    except KafkaError as error:
        return _result(tp.partition, NO_WATERMARK, error.error), None
    return _result(tp.partition, NO_WATERMARK, ErrorCode.NONE), (partition, wanted)


async def _finish(result: DeleteRecordsPartitionResult, wait: Wait, timeout_ms: int) -> None:
    partition, wanted = wait
    try:
        result.low_watermark = await _reached(partition, wanted, timeout_ms)
    except KafkaError as error:
        result.error_code = error.error


async def _reached(partition: Partition, wanted: int, timeout_ms: int) -> int:
    """The low watermark, once it is at least `wanted`."""
    reached = asyncio.Event()
    leader = partition.leader

    def look() -> None:
        if not partition.is_leader or partition.leader.low_watermark >= wanted:
            reached.set()

    leader.watch_low_watermark(look)
    try:
        look()
        async with asyncio.timeout(timeout_ms / 1000):
            await reached.wait()
    except TimeoutError:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT) from None
    finally:
        leader.unwatch_low_watermark(look)
    return partition.leader.low_watermark


def _result(partition: int, mark: int, error: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=partition, low_watermark=mark, error_code=error
    )
