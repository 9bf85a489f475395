"""DeleteTopics (20), v0–v6. Only the controller; others answer NOT_CONTROLLER.

Answered when the topic is gone from this broker's metadata, or at the time-out. v6 names a topic
or gives its id, never both. docs/spec/controller-and-replication.md sections 1.3 and 4.5.
"""

import asyncio
from functools import partial
from uuid import UUID

from odradek.broker.handler import Broker, RequestContext
from odradek.broker.topics import Permit
from odradek.security.acls import AclOperation, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from odradek.wire.topic_ids import NO_TOPIC_ID

CONTROLLER_ONLY = True
ELEMENTS_MAX = 10_000  # each is a task of its own
# The first version whose clients know THROTTLING_QUOTA_EXCEEDED.
STRICT_SINCE = 5


async def handle(
    broker: Broker, request: DeleteTopicsRequest, context: RequestContext
) -> DeleteTopicsResponse:
    if not broker.config.flag("delete.topic.enable"):
        disabled = ErrorCode.TOPIC_DELETION_DISABLED
        error = ErrorCode.INVALID_REQUEST if context.version < 3 else disabled
        raise KafkaError(error)
    if any(topic.name is not None and topic.topic_id != NO_TOPIC_ID for topic in request.topics):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "Topic name and topic ID can not both be specified."
        )
    permit = partial(broker.quotas.mutate, context, strict=context.version >= STRICT_SINCE)
    results = await asyncio.gather(
        *(_delete(broker, topic, request.timeout_ms, permit, context) for topic in _asked(request))
    )
    return DeleteTopicsResponse(responses=results)


def _asked(request: DeleteTopicsRequest) -> list[DeleteTopicState]:
    by_name = {name: DeleteTopicState(name=name) for name in request.topic_names}
    return [*request.topics, *by_name.values()]


async def _delete(
    broker: Broker,
    topic: DeleteTopicState,
    timeout_ms: int,
    permit: Permit,
    context: RequestContext,
) -> DeletableTopicResult:
    try:
        name = _name(broker, topic)
        # A name behind an id is returned only to clients that may describe the topic.
        if topic.name is None:
            error = context.may.check(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
            if error is not None:
                return _result(None, topic.topic_id, error)
        error = context.may.check(AclOperation.DELETE, ResourceType.TOPIC, name)
        if error is not None:
            return _result(name, topic.topic_id, error)
        permit(broker.cache.partition_count(name) or 0)
        await broker.topics.delete(name)
        if not await broker.topics.wait_until_gone(name, timeout_ms):
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    except KafkaError as error:
        return _result(topic.name, topic.topic_id, error)
    return DeletableTopicResult(name=name, topic_id=topic.topic_id)


def _name(broker: Broker, topic: DeleteTopicState) -> str:
    if topic.name is not None:
        return topic.name
    name = broker.cache.topic_name(topic.topic_id)
    if name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    return name


def _result(name: str | None, topic_id: UUID, error: KafkaError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=error.error, error_message=error.message or None
    )
