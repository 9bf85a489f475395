"""AlterClientQuotas (49), v0–v1. Sets and removes quotas of users, client ids and addresses
(KIP-546, KIP-612)."""

import math
from functools import partial
from ipaddress import ip_address

from odradek.broker.config_updates import change as change_settings
from odradek.broker.handler import Broker, RequestContext
from odradek.broker.quotas import CONNECTION_RATE, QUOTA_NAMES, WHOLE_QUOTAS
from odradek.store.paths import DEFAULT_ENTITY, ConfigKind, desanitize, sanitize
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
)

USER, CLIENT_ID, IP = "user", "client-id", "ip"
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1


async def handle(
    broker: Broker, request: AlterClientQuotasRequest, context: RequestContext
) -> AlterClientQuotasResponse:
    results = []
    for entry in request.entries:
        try:
            await _alter(broker, entry, request.validate_only)
            results.append(_answer(entry, KafkaError(ErrorCode.NONE)))
        except KafkaError as error:
            results.append(_answer(entry, error))
    return AlterClientQuotasResponse(entries=results)


def refuse(
    request: AlterClientQuotasRequest, error: KafkaError, context: RequestContext
) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(entries=[_answer(each, error) for each in request.entries])


async def _alter(
    broker: Broker, entry: AlterClientQuotasRequestEntryData, validate_only: bool
) -> None:
    kind, name = _entity(entry)
    changed = partial(_changed, kind, entry)
    if validate_only:
        changed(await broker.store.configs.get(kind, name))
    else:
        await change_settings(broker, kind, name, changed)


def _changed(
    kind: ConfigKind, entry: AlterClientQuotasRequestEntryData, config: dict[str, str]
) -> dict[str, str]:
    for change in entry.ops:
        if change.key not in ({CONNECTION_RATE} if kind is ConfigKind.IPS else QUOTA_NAMES):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid configuration key {change.key}")
        if change.remove:
            config.pop(change.key, None)
        else:
            config[change.key] = _value(change.key, change.value)
    return config


def _value(quota: str, value: float) -> str:
    """How a quota is kept. As with Kafka it may be zero or less: then whatever is asked is over."""
    if not math.isfinite(value):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Configuration {quota} must be finite")
    if quota not in WHOLE_QUOTAS and quota != CONNECTION_RATE:
        return str(value)
    # The greatest LONG, which stands for no limit, comes rounded up to what is none.
    whole = min(int(value), LONG_MAX)
    if float(whole) != value or whole < LONG_MIN:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Configuration {quota} must be a LONG value")
    return str(whole)


def _entity(entry: AlterClientQuotasRequestEntryData) -> tuple[ConfigKind, str]:
    """Where the quotas of this entity are kept."""
    names: dict[str, str] = {}
    for part in entry.entity:
        if part.entity_type not in (USER, CLIENT_ID, IP) or part.entity_name == "":
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unhandled client quota entity: {part.entity_type}={part.entity_name}",
            )
        name = part.entity_name
        names[part.entity_type] = DEFAULT_ENTITY if name is None else sanitize(name)
    if not names:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity")
    if IP in names:
        return ConfigKind.IPS, _address(names)
    if USER not in names:
        return ConfigKind.CLIENTS, names[CLIENT_ID]
    if CLIENT_ID not in names:
        return ConfigKind.USERS, names[USER]
    return ConfigKind.USERS, f"{names[USER]}/clients/{names[CLIENT_ID]}"


def _address(names: dict[str, str]) -> str:
    """Where the quota of an address is kept. Kafka takes host names that it can resolve, too."""
    if len(names) > 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Invalid quota entity combination, IP entity should not be combined with User or"
            " ClientId",
        )
    name = names[IP]
    if name == DEFAULT_ENTITY:
        return name
    try:
        ip_address(desanitize(name))
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{desanitize(name)} is not a valid IP or resolvable host"
        ) from None
    return name


def _answer(
    entry: AlterClientQuotasRequestEntryData, error: KafkaError
) -> AlterClientQuotasResponseEntryData:
    return AlterClientQuotasResponseEntryData(
        error_code=error.error,
        error_message=error.message or None,
        entity=[
            AlterClientQuotasResponseEntityData(
                entity_type=part.entity_type, entity_name=part.entity_name
            )
            for part in entry.entity
        ],
    )
