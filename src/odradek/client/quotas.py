"""Client quotas: how much users, client ids and addresses may ask of each broker (KIP-546)."""

from collections.abc import Mapping
from typing import NamedTuple

from odradek.client.client import Client
from odradek.client.values import outcome
from odradek.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from odradek.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)

DEFAULT = "<default>"
USER, CLIENT_ID, IP = "user", "client-id", "ip"
EXACT_MATCH, DEFAULT_MATCH, ANY_MATCH = range(3)


class QuotaEntity(NamedTuple):
    """Whom a quota is for: a user, a client id or both, or an address. None says nothing about it;
    DEFAULT is for all that have no quota of their own."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    @property
    def parts(self) -> dict[str, str | None]:
        """As the requests have it: by type, with null for the default."""
        named = {USER: self.user, CLIENT_ID: self.client_id, IP: self.ip}
        return {
            kind: None if name == DEFAULT else name
            for kind, name in named.items()
            if name is not None
        }

    def __str__(self) -> str:
        parts = zip((USER, CLIENT_ID, IP), self, strict=True)
        return " ".join(f"{kind} {name}" for kind, name in parts if name is not None)


class Quotas:
    """Looking at and setting quotas."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def describe(
        self, only: QuotaEntity = QuotaEntity()
    ) -> dict[QuotaEntity, dict[str, float]]:
        """The quotas that are set, of every entity that has what `only` names. Those of addresses
        are asked for apart."""
        return await self._describe(
            [
                ComponentData(
                    entity_type=kind,
                    match_type=DEFAULT_MATCH if name is None else EXACT_MATCH,
                    match=name,
                )
                for kind, name in only.parts.items()
            ]
        )

    async def describe_addresses(self) -> dict[QuotaEntity, dict[str, float]]:
        """The quotas of all addresses."""
        return await self._describe(
            [ComponentData(entity_type=IP, match_type=ANY_MATCH, match=None)]
        )

    async def _describe(
        self, components: list[ComponentData]
    ) -> dict[QuotaEntity, dict[str, float]]:
        request = DescribeClientQuotasRequest(components=components)
        response = await self.client.ask_any(request)
        if error := outcome(response.error_code, response.error_message, "quotas"):
            raise error
        found = {}
        for entry in response.entries or []:
            parts = {
                part.entity_type: DEFAULT if part.entity_name is None else part.entity_name
                for part in entry.entity
            }
            entity = QuotaEntity(parts.get(USER), parts.get(CLIENT_ID), parts.get(IP))
            found[entity] = {value.key: value.value for value in entry.values}
        return found

    async def alter(
        self,
        entity: QuotaEntity,
        quotas: Mapping[str, float | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set quotas of an entity; None removes one, and those that are not named stay."""
        request = AlterClientQuotasRequest(
            entries=[
                AlterClientQuotasRequestEntryData(
                    entity=[
                        AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name)
                        for kind, name in entity.parts.items()
                    ],
                    ops=[
                        OpData(key=name, value=value or 0.0, remove=value is None)
                        for name, value in quotas.items()
                    ],
                )
            ],
            validate_only=validate_only,
        )
        response = await self.client.ask_any(request)
        for entry in response.entries:
            if error := outcome(entry.error_code, entry.error_message, entity):
                raise error
