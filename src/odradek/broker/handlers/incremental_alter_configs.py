"""IncrementalAlterConfigs (44), v0–v1. Sets, deletes, appends to and subtracts from settings of a
topic or of a broker, or only checks that it could (KIP-339).
"""

from collections.abc import Mapping
from enum import IntEnum

from odradek.broker.config_updates import TOPIC, Change, alter_each, check_keys
from odradek.broker.handler import Broker, RequestContext
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from odradek.wire.settings import BROKER_SETTINGS, TOPIC_SETTINGS, Kind, unknown_name


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


async def handle(
    broker: Broker, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=await alter_each(
            broker,
            request.resources,
            _change,
            AlterConfigsResourceResponse,
            validate_only=request.validate_only,
        )
    )


def _change(resource: AlterConfigsResource) -> Change:
    check_keys(
        [each.name for each in resource.configs],
        [
            each.name
            for each in resource.configs
            if each.value is None and each.config_operation != Operation.DELETE
        ],
    )
    return lambda current: _changed(resource, current)


def _changed(resource: AlterConfigsResource, current: Mapping[str, str]) -> dict[str, str]:
    changed = dict(current)
    for each in resource.configs:
        if each.config_operation == Operation.DELETE:
            changed.pop(each.name, None)
        elif each.config_operation == Operation.SET:
            changed[each.name] = each.value or ""
        elif each.config_operation in (Operation.APPEND, Operation.SUBTRACT):
            changed[each.name] = _edited(resource, each, changed.get(each.name))
        else:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Unknown operation type {each.config_operation}"
            )
    return changed


def _edited(resource: AlterConfigsResource, edit: AlterableConfig, own: str | None) -> str:
    """A list with some items more, or fewer. Without a value of its own, it starts from the
    default.
    """
    is_topic = resource.resource_type == TOPIC
    settings = TOPIC_SETTINGS if is_topic else BROKER_SETTINGS
    setting = settings.get(edit.name)
    if setting is None:
        raise unknown_name(edit.name, settings, "topic" if is_topic else "broker")
    word = Operation(edit.config_operation).name
    if setting.kind is not Kind.LIST:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Config value {word.lower()} is not allowed for config key: {edit.name}",
        )
    text = (setting.default or "") if own is None else own
    items = [item for item in text.split(",") if item]
    edits = [item for item in (edit.value or "").split(",") if item]
    if edit.config_operation == Operation.APPEND:
        return ",".join([*items, *(item for item in edits if item not in items)])
    return ",".join(item for item in items if item not in edits)
