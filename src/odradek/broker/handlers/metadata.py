"""Metadata (3), v0–v12. Brokers, topics and leaders as of the controller's last UpdateMetadata.

A topic that does not exist is created if the request and the broker allow it, and told as
LEADER_NOT_AVAILABLE unless its leaders are found within a moment. v12 takes topic ids. In the
answer they are zero while the controller speaks an inter-broker protocol below 2.8.
docs/spec/controller-and-replication.md section 5.6, docs/spec/protocol-ladder.md section 2.8.
"""

import copy
from collections.abc import Iterable
from uuid import UUID

from odradek.broker.handler import Broker, RequestContext
from odradek.broker.slices import map_in_slices
from odradek.security.acls import AclOperation, ResourceType
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
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


def handle(
    broker: Broker, request: MetadataRequest, context: RequestContext
) -> MetadataResponse | Reply[MetadataResponse]:
    asked = request.topics
    if asked is None or (not asked and context.version == 0):
        return _response(broker, request, context, _all_known(broker, context))
    names, errors = _named(broker, asked, context)
    missing = [name for name in names if not broker.cache.has_topic(name)]
    creates = request.allow_auto_topic_creation and broker.config.flag("auto.create.topics.enable")
    if creates:
        refused = [name for name in missing if not _may_create(name, context)]
        errors += [_error(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for name in refused]
        gone = set(refused)
        missing = [name for name in missing if name not in gone]
        names = [name for name in names if name not in gone]
    if missing and creates:
        return Reply.exclusive(_creating(broker, request, context, names, missing, errors))
    return map_in_slices(missing, lambda name: _error(name, _unknown(name))).map(
        lambda unknown: _response(
            broker, request, context, [*_known(broker, names, context), *errors, *unknown]
        )
    )


async def _creating(
    broker: Broker,
    request: MetadataRequest,
    context: RequestContext,
    names: list[str],
    missing: list[str],
    errors: list[MetadataResponseTopic],
) -> MetadataResponse:
    errors += [_error(name, ErrorCode.LEADER_NOT_AVAILABLE) for name in missing[CREATED_MAX:]]
    for name in missing[:CREATED_MAX]:
        error = await broker.topics.create_automatically(name, CREATION_WAIT_MS)
        if error is not ErrorCode.NONE:
            errors.append(_error(name, error))
    failed = {topic.name for topic in errors}
    found = [name for name in names if name not in failed]
    return _response(broker, request, context, [*_known(broker, found, context), *errors])


def _named(
    broker: Broker, asked: list[MetadataRequestTopic], context: RequestContext
) -> tuple[list[str], list[MetadataResponseTopic]]:
    """The names asked for, by name or by id, and the answers for those that get none.

    One id makes a request one by id: what has only a name is then passed over, as in Kafka.
    """
    if any(topic.topic_id != NO_TOPIC_ID for topic in asked):
        if context.version < IDS_SINCE:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "topic ids need version 12")
        return _named_by_id(broker, [topic.topic_id for topic in asked], context)
    names: dict[str, None] = {}
    errors = []
    for topic in asked:
        if topic.name is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a topic has neither a name nor an id")
        names[topic.name] = None
    for name in list(names):
        error = context.may.check(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
        if error is not None:
            del names[name]
            errors.append(_error(name, error.error))
    return list(names), errors


def _named_by_id(
    broker: Broker, asked: Iterable[UUID], context: RequestContext
) -> tuple[list[str], list[MetadataResponseTopic]]:
    names: dict[str, None] = {}
    errors = []
    for topic_id in asked:
        if topic_id == NO_TOPIC_ID:
            continue
        name = broker.cache.topic_name(topic_id)
        if name is None:
            errors.append(_error(None, ErrorCode.UNKNOWN_TOPIC_ID, topic_id))
        elif not context.may.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            errors.append(_error(None, ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic_id))
        else:
            names[name] = None
    return list(names), errors


def _may_create(name: str, context: RequestContext) -> bool:
    may = context.may
    return may.allows(AclOperation.CREATE, ResourceType.CLUSTER) or may.allows(
        AclOperation.CREATE, ResourceType.TOPIC, name
    )


def _all_known(broker: Broker, context: RequestContext) -> list[MetadataResponseTopic]:
    """Every topic that the client may describe; the others are left out without a word."""
    names = None
    if context.may.authorizer is not None:
        names = [
            name
            for name in broker.cache.topics()
            if context.may.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name)
        ]
    return _known(broker, names, context)


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
) -> MetadataResponse:
    if request.include_topic_authorized_operations:
        topics = [copy.copy(topic) for topic in topics]  # the cache's own are shared
        for topic in topics:
            if topic.error_code == ErrorCode.NONE:
                topic.topic_authorized_operations = context.may.operations(
                    ResourceType.TOPIC, topic.name or ""
                )
    controller_id = broker.cache.controller_id
    response = MetadataResponse(
        brokers=broker.cache.broker_answers(context.connection.listener),
        cluster_id=broker.cluster_id,
        controller_id=-1 if controller_id is None else controller_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(context)
    return response
