"""DeleteRecords (21), v0–v2. Raises a log's start offset; answers when every live replica has.

-1 asks for the high watermark. Compacted logs and internal topics refuse.
docs/spec/controller-and-replication.md section 5.6.
"""

import asyncio

from odradek.broker.handler import Broker, RequestContext
from odradek.replica.partition import Partition
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
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
    results = await asyncio.gather(
        *(
            asyncio.gather(
                *(
                    _delete(broker, topic.name, asked, request.timeout_ms)
                    for asked in topic.partitions
                )
            )
            for topic in request.topics
        )
    )
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(name=topic.name, partitions=list(partitions))
            for topic, partitions in zip(request.topics, results, strict=True)
        ]
    )


async def _delete(
    broker: Broker, topic: str, asked: DeleteRecordsPartition, timeout_ms: int
) -> DeleteRecordsPartitionResult:
    index = asked.partition_index
    of = TopicPartition(topic, index)
    if topic in INTERNAL_TOPICS and of in broker.cache:
        return _result(index, NO_WATERMARK, ErrorCode.INVALID_TOPIC_EXCEPTION)
    try:
        partition = broker.replicas.partitions[of]
        wanted = partition.leader.delete_records(asked.offset)
        mark = await _reached(partition, wanted, timeout_ms)
    except KafkaError as error:
        return _result(index, NO_WATERMARK, error.error)
    return _result(index, mark, ErrorCode.NONE)


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
