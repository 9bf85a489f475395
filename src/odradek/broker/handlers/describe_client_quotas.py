"""DescribeClientQuotas (48), v0–v1. The quotas of users, client ids and addresses that match a
filter (KIP-546, KIP-612).

A component asks for an exact name, for the default, or for any. A strict filter leaves out entities
of types it does not name.
"""

from collections.abc import Callable

from odradek.broker.handler import Broker, RequestContext
from odradek.broker.quotas import CONNECTION_RATE, QUOTA_NAMES, Entity, entity_of, plain_entity
from odradek.store.paths import ConfigKind, desanitize
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

EXACT, DEFAULT, ANY = range(3)
DEFAULT_NAME = "<default>"
USER, CLIENT_ID, IP = "user", "client-id", "ip"

Matches = Callable[[str | None], bool]


async def handle(
    broker: Broker, request: DescribeClientQuotasRequest, context: RequestContext
) -> DescribeClientQuotasResponse:
    filters = _filters(request)
    if IP in filters:
        return DescribeClientQuotasResponse(
            error_message=None, entries=await _of_addresses(broker, filters[IP])
        )
    matches_user = filters.get(USER, _absent(request.strict))
    matches_client = filters.get(CLIENT_ID, _absent(request.strict))
    entries = []
    for path in await _paths(broker):
        entity = entity_of(path)
        assert entity is not None, path
        user, client = entity = plain_entity(entity)
        if not (matches_user(user) and matches_client(client)):
            continue
        kind, _, name = path.partition("/")
        config = await broker.store.configs.get(kind, name)
        values = [
            ValueData(key=key, value=float(text))
            for key, text in config.items()
            if key in QUOTA_NAMES
        ]
        if values:
            entries.append(EntryData(entity=_entity_data(entity), values=values))
    return DescribeClientQuotasResponse(error_message=None, entries=entries)


async def _of_addresses(broker: Broker, matches: Matches) -> list[EntryData]:
    entries = []
    for entity in await broker.store.configs.entities(ConfigKind.IPS):
        name = desanitize(entity)
        rate = (await broker.store.configs.get(ConfigKind.IPS, entity)).get(CONNECTION_RATE)
        if rate is not None and matches(name):
            of = EntityData(entity_type=IP, entity_name=None if name == DEFAULT_NAME else name)
            value = ValueData(key=CONNECTION_RATE, value=float(rate))
            entries.append(EntryData(entity=[of], values=[value]))
    return entries


def _filters(request: DescribeClientQuotasRequest) -> dict[str, Matches]:
    filters: dict[str, Matches] = {}
    for component in request.components:
        if component.entity_type in filters:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Duplicate {component.entity_type} filter component entity type",
            )
        if component.entity_type not in (USER, CLIENT_ID, IP):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION
                if component.entity_type
                else ErrorCode.INVALID_REQUEST,
                f"Custom entity type '{component.entity_type}' not supported",
            )
        filters[component.entity_type] = _matcher(component)
    if IP in filters and len(filters) > 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination, IP filter component should not be used"
            " with user or clientId filter component.",
        )
    return filters


def _matcher(component: ComponentData) -> Matches:
    if component.match_type == ANY:
        return lambda name: name is not None
    if component.match_type == DEFAULT:
        return lambda name: name == DEFAULT_NAME
    if component.match_type == EXACT and component.match is not None:
        return lambda name: name == component.match
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected match type: {component.match_type}")


def _absent(strict: bool) -> Matches:
    return lambda name: name is None or not strict


async def _paths(broker: Broker) -> list[str]:
    store = broker.store
    paths = [f"clients/{client}" for client in await store.configs.entities(ConfigKind.CLIENTS)]
    for user in await store.configs.entities(ConfigKind.USERS):
        paths.append(f"users/{user}")
        clients = await store.configs.clients_of_user(user)
        paths += [f"users/{user}/clients/{client}" for client in clients]
    return paths


def _entity_data(entity: Entity) -> list[EntityData]:
    user, client = entity
    return [
        EntityData(entity_type=kind, entity_name=None if name == DEFAULT_NAME else name)
        for kind, name in ((USER, user), (CLIENT_ID, client))
        if name is not None
    ]
