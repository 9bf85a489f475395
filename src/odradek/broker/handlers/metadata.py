"""Metadata (3), v0–v12. Brokers, topics and leaders as of the controller's last UpdateMetadata.

A topic that does not exist is created if the request and the broker allow it, and told as
LEADER_NOT_AVAILABLE unless its leaders are found within a moment. v12 takes topic ids. In the
answer they are zero while the controller speaks an inter-broker protocol below 2.8.
docs/spec/controller-and-replication.md section 5.6, docs/spec/protocol-ladder.md section 2.8.
"""

import copy
from functools import partial
from itertools import compress
from uuid import UUID

from odradek.broker.handler import Broker, RequestContext
from odradek.broker.slices import map_in_slices
from odradek.security.acls import AclOperation, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
)
from odradek.wire.reply import Reply
from odradek.wire.topic_ids import NO_TOPIC_ID
from odradek.wire.topics import INTERNAL_TOPICS, validate_topic_name

IDS_SINCE = 12
# How long a request that created a topic waits for its leaders before it says there are none yet.
CREATION_WAIT_MS = 250
# How many topics one request creates; the client asks again for the others.
CREATED_MAX = 100

_REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def handle(
    broker: Broker, request: MetadataRequest, context: RequestContext
) -> Reply[MetadataResponse]:
    return _topics(broker, request, context).then(partial(_response, broker, request, context))


def _topics(
    broker: Broker, request: MetadataRequest, context: RequestContext
) -> Reply[list[MetadataResponseTopic]]:
    asked = request.topics
    if asked is None or (not asked and context.version == 0):
        return _all_known(broker, context)
    if any(topic.topic_id != NO_TOPIC_ID for topic in asked):
        if context.version < IDS_SINCE:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "topic ids need version 12")
        # One id makes a request one by id: what has only a name is then passed over, as in Kafka.
        ids = [topic.topic_id for topic in asked if topic.topic_id != NO_TOPIC_ID]
        found = map_in_slices(ids, partial(_find, broker, context))
        return found.then(partial(_known_and_unknown, broker, context, creates=False))
    names: dict[str, None] = {}
    for topic in asked:
        if topic.name is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic has neither a name nor an id")
        names[topic.name] = None
    creates = request.allow_auto_topic_creation and broker.config.flag("auto.create.topics.enable")
    return map_in_slices(list(names), partial(_check, broker, context, creates)).then(
        partial(_known_and_unknown, broker, context, creates=creates)
    )


def _check(
    broker: Broker, context: RequestContext, creates: bool, name: str
) -> str | MetadataResponseTopic:
    """A topic to be described or created; or the response if it is neither."""
    refused = context.may.check(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
    if refused is not None:
        return _error(name, refused.error)
    if broker.cache.has_topic(name):
        return name
    if not creates:
        return _error(name, _unknown(name))
    return name if _may_create(name, context) else _error(name, _REFUSED)


def _find(broker: Broker, context: RequestContext, topic_id: UUID) -> str | MetadataResponseTopic:
    name = broker.cache.topic_name(topic_id)
    if name is None:
        return _error(None, ErrorCode.UNKNOWN_TOPIC_ID, topic_id)
    if not context.may.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
        return _error(None, _REFUSED, topic_id)
    return name


def _known_and_unknown(
    broker: Broker,
    context: RequestContext,
    found: list[str | MetadataResponseTopic],
    *,
    creates: bool,
) -> Reply[list[MetadataResponseTopic]]:
    """Each topic once, whether it was asked for by its name or by its id."""
    names = list(dict.fromkeys(each for each in found if isinstance(each, str)))
    errors = [each for each in found if not isinstance(each, str)]
    missing = [name for name in names if not broker.cache.has_topic(name)]
    if missing and creates:
        return Reply.exclusive(_creating(broker, context, names, missing, errors))
    gone = [_error(name, _unknown(name)) for name in missing]  # deleted a moment ago
    return Reply.now([*_known(broker, names, context), *errors, *gone])


async def _creating(
    broker: Broker,
    context: RequestContext,
    names: list[str],
    missing: list[str],
    errors: list[MetadataResponseTopic],
) -> list[MetadataResponseTopic]:
    errors += [_error(name, ErrorCode.LEADER_NOT_AVAILABLE) for name in missing[CREATED_MAX:]]
    for name in missing[:CREATED_MAX]:
        error = await broker.topics.create_automatically(name, CREATION_WAIT_MS)
        if error is not ErrorCode.NONE:
            errors.append(_error(name, error))
    failed = {topic.name for topic in errors}
    found = [name for name in names if name not in failed]
    return [*_known(broker, found, context), *errors]


def _may_create(name: str, context: RequestContext) -> bool:
    may = context.may
    return may.allows(AclOperation.CREATE, ResourceType.CLUSTER) or may.allows(
        AclOperation.CREATE, ResourceType.TOPIC, name
    )


def _all_known(broker: Broker, context: RequestContext) -> Reply[list[MetadataResponseTopic]]:
    """Every topic that the client may describe; the others are left out without a word."""
    if context.may.authorizer is None:
        return Reply.now(_known(broker, None, context))
    names = list(broker.cache.topics())
    may_describe = partial(context.may.allows, AclOperation.DESCRIBE, ResourceType.TOPIC)
    return map_in_slices(names, may_describe).map(
        lambda allowed: _known(broker, list(compress(names, allowed)), context)
    )


def cluster_operations(context: RequestContext) -> int:
    """Nothing for those who may not describe the cluster."""
    if not context.may.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        return 0
    return context.may.operations(ResourceType.CLUSTER)


def _known(
    broker: Broker, names: list[str] | None, context: RequestContext
) -> list[MetadataResponseTopic]:
    return broker.cache.topic_answers(
        names,
        context.connection.listener,
        report_missing_listeners=context.version >= 6,
        report_missing_replicas=context.version == 0,
    )


def _unknown(name: str) -> ErrorCode:
    try:
        validate_topic_name(name)
    except KafkaError as error:
        return error.error
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _error(
    name: str | None, error: ErrorCode, topic_id: UUID = NO_TOPIC_ID
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=error, name=name, topic_id=topic_id, is_internal=name in INTERNAL_TOPICS
    )


def _response(
    broker: Broker,
    request: MetadataRequest,
    context: RequestContext,
    topics: list[MetadataResponseTopic],
) -> Reply[MetadataResponse]:
    controller_id = broker.cache.controller_id
    response = MetadataResponse(
        brokers=broker.cache.broker_answers(context.connection.listener),
        cluster_id=broker.cluster_id,
        controller_id=-1 if controller_id is None else controller_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(context)
    if not request.include_topic_authorized_operations:
        return Reply.now(response)

    def with_topics(topics: list[MetadataResponseTopic]) -> MetadataResponse:
        response.topics = topics
        return response

    return map_in_slices(topics, partial(_with_operations, context)).map(with_topics)


def _with_operations(
    context: RequestContext, topic: MetadataResponseTopic
) -> MetadataResponseTopic:
    if topic.error_code != ErrorCode.NONE:
        return topic
    topic = copy.copy(topic)  # the cache's own is shared
    topic.topic_authorized_operations = context.may.operations(ResourceType.TOPIC, topic.name or "")
    return topic
