"""CreateTopics (19), v0–v7. Only the controller; others answer NOT_CONTROLLER.

Answered when every new partition has a leader in this broker's metadata, or at the time-out; a
time-out of zero does the work and says REQUEST_TIMED_OUT. docs/spec/controller-and-replication.md
section 1.3.
"""

import asyncio
from collections import Counter, defaultdict
from functools import partial

from odradek.broker.handler import Broker, RequestContext
from odradek.broker.topics import NewTopic, Permit
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.topics import metric_name

CONTROLLER_ONLY = True
ELEMENTS_MAX = 40_000  # 10,000 partitions with three replicas each
# The first version whose clients know THROTTLING_QUOTA_EXCEEDED.
STRICT_SINCE = 6
IDS_SINCE = 7


async def handle(
    broker: Broker, request: CreateTopicsRequest, context: RequestContext
) -> CreateTopicsResponse:
    times = Counter(topic.name for topic in request.topics)
    asked = {topic.name: _wanted(topic) for topic in request.topics}
    broker.topics.check_new(asked.values())
    permit = partial(broker.quotas.mutate, context, strict=context.version >= STRICT_SINCE)
    # Of a.b and a_b only one can be: the second must find the first, if that could be created.
    rivals: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def create(topic: NewTopic) -> CreatableTopicResult:
        async with rivals[metric_name(topic.name)]:
            result = await _create(broker, topic, request, permit)
        if context.version >= IDS_SINCE and not request.validate_only and _is_there(result):
            result.topic_id = await broker.topics.topic_id(topic.name)
        return result

    results = await asyncio.gather(
        *(
            create(topic)
            if times[name] == 1
            else _failed(name, KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
            for name, topic in asked.items()
        )
    )
    return CreateTopicsResponse(topics=results)


def _is_there(result: CreatableTopicResult) -> bool:
    """Whether the topic was created, its leaders waited for to the end or not."""
    return result.error_code in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)


def _wanted(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        {each.partition_index: each.broker_ids for each in topic.assignments},
        {each.name: each.value for each in topic.configs},
    )


async def _create(
    broker: Broker, topic: NewTopic, request: CreateTopicsRequest, permit: Permit
) -> CreatableTopicResult:
    try:
        assignment = await broker.topics.create(
            topic, validate_only=request.validate_only, permit=permit
        )
    except KafkaError as error:
        return await _failed(topic.name, error)
    if not request.validate_only and not await broker.topics.wait_for_leaders(
        topic.name, assignment, request.timeout_ms
    ):
        return await _failed(topic.name, KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    config = topic.config or {}
    written = {name: value for name, value in config.items() if value is not None}
    return CreatableTopicResult(
        name=topic.name,
        error_message=None,
        num_partitions=len(assignment),
        replication_factor=len(assignment[0]),
        configs=[
            CreatableTopicConfigs(
                name=entry.setting.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.is_sensitive,
            )
            for entry in broker.config.describe_topic(written)
        ],
    )


async def _failed(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name, error_code=error.error, error_message=error.message or None, configs=[]
    )
