"""Delegation tokens: credentials that stand for a user for a while (KIP-48)."""

import base64
from collections.abc import Sequence
from typing import NamedTuple

from odradek.client.client import Client
from odradek.security.principal import Principal
from odradek.wire.errors import KafkaError, error_code
from odradek.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from odradek.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from odradek.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from odradek.wire.messages.renew_delegation_token import RenewDelegationTokenRequest

__all__ = ["Token", "Tokens"]

# A period or lifetime that leaves the choice to the cluster.
DEFAULT_MS = -1
# A period that ends a token now.
NOW_MS = -1


class Token(NamedTuple):
    """A client logs in with SCRAM, `id` as user, `hmac` as password and `tokenauth=true`."""

    id: str
    hmac: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int

    def __repr__(self) -> str:
        return f"Token({self.id}, [hidden], owner={self.owner})"


class Tokens:
    """Creates, lists, renews and expires delegation tokens."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def create(
        self,
        *,
        owner: Principal | None = None,
        renewers: Sequence[Principal] = (),
        max_lifetime_ms: int = DEFAULT_MS,
    ) -> Token:
        """A token for oneself, or for another owner. Raises KafkaError."""
        made = await self._client.ask_any(
            CreateDelegationTokenRequest(
                owner_principal_type=None if owner is None else owner.type,
                owner_principal_name=None if owner is None else owner.name,
                renewers=[
                    CreatableRenewers(principal_type=each.type, principal_name=each.name)
                    for each in renewers
                ],
                max_lifetime_ms=max_lifetime_ms,
            )
        )
        _check(made.error_code)
        return Token(
            made.token_id,
            base64.b64encode(made.hmac).decode(),
            f"{made.principal_type}:{made.principal_name}",
            f"{made.token_requester_principal_type}:{made.token_requester_principal_name}",
            tuple(map(str, renewers)),
            made.issue_timestamp_ms,
            made.expiry_timestamp_ms,
            made.max_timestamp_ms,
        )

    async def describe(self, owners: Sequence[Principal] = ()) -> list[Token]:
        """The tokens that one may see, of all or of these owners. Raises KafkaError."""
        asked = [
            DescribeDelegationTokenOwner(principal_type=each.type, principal_name=each.name)
            for each in owners
        ]
        found = await self._client.ask_any(DescribeDelegationTokenRequest(owners=asked or None))
        _check(found.error_code)
        return sorted(
            Token(
                each.token_id,
                base64.b64encode(each.hmac).decode(),
                f"{each.principal_type}:{each.principal_name}",
                f"{each.token_requester_principal_type}:{each.token_requester_principal_name}",
                tuple(f"{of.principal_type}:{of.principal_name}" for of in each.renewers),
                each.issue_timestamp,
                each.expiry_timestamp,
                each.max_timestamp,
            )
            for each in found.tokens
        )

    async def renew(self, hmac: str, period_ms: int = DEFAULT_MS) -> int:
        """When the token now expires, in milliseconds. Raises KafkaError, or ValueError."""
        request = RenewDelegationTokenRequest(hmac=_decoded(hmac), renew_period_ms=period_ms)
        answer = await self._client.ask_any(request)
        _check(answer.error_code)
        return int(answer.expiry_timestamp_ms)

    async def expire(self, hmac: str, period_ms: int = NOW_MS) -> int:
        """When the token now expires, in milliseconds. Raises KafkaError, or ValueError."""
        request = ExpireDelegationTokenRequest(hmac=_decoded(hmac), expiry_time_period_ms=period_ms)
        answer = await self._client.ask_any(request)
        _check(answer.error_code)
        return int(answer.expiry_timestamp_ms)


def _decoded(hmac: str) -> bytes:
    return base64.b64decode(hmac, validate=True)


def _check(number: int) -> None:
    if number:
        raise KafkaError(error_code(number), "delegation token")
