"""DescribeConfigs (32), v0–v4. Settings of topics, of this broker, and of all brokers.

The table in `wire/settings` answers; each value says where it comes from and, if asked, every
layer that has a say (KIP-226). A broker answers for itself only.
"""

from collections.abc import Iterator

from odradek.broker.config import DescribedSetting, Source
from odradek.broker.handler import Broker, RequestContext
from odradek.store.paths import ConfigKind
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from odradek.wire.topics import validate_topic_name

TOPIC = 2
BROKER = 4


async def handle(
    broker: Broker, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse:
    # A few bytes of request are a long answer, so the same one is never sent twice over.
    distinct = {
        (each.resource_type, each.resource_name, tuple(each.configuration_keys or ())): each
        for each in request.resources
    }
    return DescribeConfigsResponse(
        results=[await _describe(broker, resource, request) for resource in distinct.values()]
    )


async def _describe(
    broker: Broker, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    try:
        entries = await _entries(broker, resource)
    except KafkaError as error:
        return _failed(resource, error)
    wanted = resource.configuration_keys
    return DescribeConfigsResult(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        error_message=None,
        configs=[
            _config_entry(entry, request)
            for entry in entries
            if not wanted or entry.setting.name in wanted
        ],
    )


async def _entries(broker: Broker, resource: DescribeConfigsResource) -> Iterator[DescribedSetting]:
    name = resource.resource_name
    if resource.resource_type == TOPIC:
        validate_topic_name(name)
        if not broker.cache.has_topic(name):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return broker.config.describe_topic(await broker.store.configs.get(ConfigKind.TOPICS, name))
    if resource.resource_type == BROKER:
        if not name:
            return broker.config.describe_cluster_default()
        if name != str(broker.id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {broker.id} or empty string, but received {name}",
            )
        return broker.config.describe_broker()
    raise KafkaError(
        ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}"
    )


def _config_entry(
    entry: DescribedSetting, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.setting.name,
        value=None if entry.is_sensitive else entry.value,
        read_only=entry.read_only,
        is_default=entry.source is Source.DEFAULT,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(
                name=each.name,
                value=None if entry.is_sensitive else each.value,
                source=each.source,
            )
            for each in synonyms
        ],
        config_type=entry.setting.kind,
        documentation=entry.setting.doc if request.include_documentation else None,
    )


def _failed(resource: DescribeConfigsResource, error: KafkaError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.error,
        error_message=error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
