"""CreatePartitions (37), v0–v3. Only the controller; others answer NOT_CONTROLLER.

Answered when every new partition has a leader in this broker's metadata, or at the time-out.
docs/spec/controller-and-replication.md section 1.3.
"""

import asyncio
from collections import Counter
from functools import partial

from odradek.broker.handler import Broker, RequestContext
from odradek.broker.topics import Permit
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

CONTROLLER_ONLY = True
ELEMENTS_MAX = 40_000  # 10,000 partitions with three replicas each
# The first version whose clients know THROTTLING_QUOTA_EXCEEDED.
STRICT_SINCE = 3


async def handle(
    broker: Broker, request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    times = Counter(topic.name for topic in request.topics)
    asked = {topic.name: topic for topic in request.topics}
    broker.topics.check_added({name: topic.count for name, topic in asked.items()})
    permit = partial(broker.quotas.mutate, context, strict=context.version >= STRICT_SINCE)
    results = await asyncio.gather(
        *(_extend(broker, topic, request, times[name] > 1, permit) for name, topic in asked.items())
    )
    return CreatePartitionsResponse(results=results)


async def _extend(
    broker: Broker,
    topic: CreatePartitionsTopic,
    request: CreatePartitionsRequest,
    twice: bool,
    permit: Permit,
) -> CreatePartitionsTopicResult:
    manual = None
    if topic.assignments is not None:
        manual = [each.broker_ids for each in topic.assignments]
    try:
        if twice:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
        if topic.name in await broker.store.requests.deletions():
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
        partitions = await broker.topics.add_partitions(
            topic.name, topic.count, manual, validate_only=request.validate_only, permit=permit
        )
        if not request.validate_only and not await broker.topics.wait_for_leaders(
            topic.name, partitions, request.timeout_ms
        ):
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    except KafkaError as error:
        return CreatePartitionsTopicResult(
            name=topic.name, error_code=error.error, error_message=error.message or None
        )
    return CreatePartitionsTopicResult(name=topic.name)
