"""Users that log in with SCRAM: their credentials, kept by the cluster (KIP-554).

Passwords never leave this process: the cluster is sent salted ones.
"""

import secrets
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from odradek.client.client import Client
from odradek.client.values import Outcome, outcome
from odradek.security.scram import ITERATIONS_MIN, MECHANISMS, salted_password
from odradek.wire.errors import ErrorCode, KafkaError, error_code
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)

__all__ = ["User", "Users"]

SALT_BYTES = 24
_NAMES = {mechanism.code: mechanism.name for mechanism in MECHANISMS.values()}


class User(NamedTuple):
    """A user, and the iterations of each of its credentials, by mechanism."""

    name: str
    mechanisms: dict[str, int]


class Users:
    """Adds, lists and deletes SCRAM credentials."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def add(
        self,
        name: str,
        password: str,
        *,
        mechanisms: Iterable[str] = tuple(MECHANISMS),
        iterations: int = ITERATIONS_MIN,
    ) -> None:
        """A user with this password, or a new password for one that exists. Raises KafkaError."""
        upsertions = []
        for each in mechanisms:
            mechanism, salt = MECHANISMS[each], secrets.token_bytes(SALT_BYTES)
            salted = salted_password(mechanism, password, salt, iterations)
            upsertions.append(
                ScramCredentialUpsertion(
                    name=name,
                    mechanism=mechanism.code,
                    iterations=iterations,
                    salt=salt,
                    salted_password=salted,
                )
            )
        failed = await self._alter(AlterUserScramCredentialsRequest(upsertions=upsertions))
        if (error := failed.get(name)) is not None:
            raise error

    async def delete(self, name: str, mechanisms: Sequence[str] = ()) -> None:
        """Delete these credentials of a user; without any, all it has. Raises KafkaError."""
        if not mechanisms:
            known = {user.name: user for user in await self.describe()}
            if name not in known:
                raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no user {name!r}")
            mechanisms = tuple(known[name].mechanisms)
        deletions = [
            ScramCredentialDeletion(name=name, mechanism=MECHANISMS[each].code)
            for each in mechanisms
        ]
        failed = await self._alter(AlterUserScramCredentialsRequest(deletions=deletions))
        if (error := failed.get(name)) is not None:
            raise error

    async def describe(self) -> list[User]:
        """Every user with a credential, sorted by name."""
        response = await self._client.ask_any(DescribeUserScramCredentialsRequest(users=None))
        if response.error_code:
            raise KafkaError(error_code(response.error_code), response.error_message or "users")
        return [
            User(
                result.user,
                {
                    _NAMES.get(info.mechanism, str(info.mechanism)): info.iterations
                    for info in result.credential_infos
                },
            )
            for result in response.results
        ]

    async def _alter(self, request: AlterUserScramCredentialsRequest) -> dict[str, Outcome]:
        def first_error(response: AlterUserScramCredentialsResponse) -> int:
            return next((int(result.error_code) for result in response.results), 0)

        response = await self._client.ask_controller(request, first_error)
        return {
            result.user: outcome(result.error_code, result.error_message, f"user {result.user}")
            for result in response.results
        }
