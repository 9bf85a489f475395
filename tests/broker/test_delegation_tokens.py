"""Delegation tokens: made, used, renewed, expired and deleted, on every broker of a cluster."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.broker.clusters import Cluster, cluster, until

from odradek.broker import delegation_tokens
from odradek.broker.delegation_tokens import DelegationToken, TokenFollower
from odradek.broker.delegation_tokens import Tokens as KnownTokens
from odradek.broker.server import Broker
from odradek.client.client import Client
from odradek.client.tokens import Tokens
from odradek.security.acls import AclEntry, AclOperation, AclPermission, ResourcePattern
from odradek.security.acls import ResourceType as AclType
from odradek.security.client import ClientSecurity
from odradek.security.jaas import Module, jaas_text
from odradek.security.principal import Principal
from odradek.store.tokens import StoredToken, decode_token, encode_token
from odradek.wire.connection import Connection
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from odradek.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from odradek.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.messages.renew_delegation_token import RenewDelegationTokenRequest

USERS = {f"user_{name}": name for name in ("alice", "bob", "carol")}
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas_text(Module.PLAIN, **USERS),
    "delegation.token.secret.key": "the cluster's secret",
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "super_users": "User:ANONYMOUS",
}
DAY_MS = 24 * 3600 * 1000


class Clients:
    def __init__(self, made: Cluster) -> None:
        self.made = made
        self._open: list[Connection] = []

    async def plain(self, user: str, broker: int = 1) -> Connection:
        return await self._connect(broker, "PLAIN", username=user, password=user)

    async def by_token(self, token: Any, broker: int = 1) -> Connection:
        password = base64.b64encode(token.hmac).decode()
        options = {"username": token.token_id, "password": password, "tokenauth": "true"}
        return await self._connect(broker, "SCRAM-SHA-256", **options)

    async def _connect(self, broker: int, mechanism: str, **options: str) -> Connection:
        security = ClientSecurity.read(
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": mechanism,
                "sasl.jaas.config": jaas_text(Module.BY_MECHANISM[mechanism], **options),
            },
            read_file=lambda path: b"",
            now_ms=lambda: 0,
        )
        endpoints = self.made.brokers[broker].endpoints
        port = next(each.port for each in endpoints if each.listener == "SASL_PLAINTEXT")
        connection = await Connection.open("127.0.0.1", port, timeout=60, security=security)
        self._open.append(connection)
        return connection

    def close(self) -> None:
        for connection in self._open:
            connection.close()


@asynccontextmanager
async def running(path: Path, brokers: int = 1, **more: str) -> AsyncIterator[Clients]:
    async with cluster(path, brokers, **{**SETTINGS, **more}) as made:
        clients = Clients(made)
        try:
            yield clients
        finally:
            clients.close()


async def create(connection: Connection, **fields: Any) -> Any:
    fields.setdefault("owner_principal_name", None)
    fields.setdefault("owner_principal_type", None)
    fields.setdefault("max_lifetime_ms", -1)
    return await connection.request(CreateDelegationTokenRequest(**fields), 3)


def follower(broker: Broker) -> TokenFollower:
    assert broker.followers.tokens is not None
    return broker.followers.tokens


async def test_a_token_stands_for_its_owner_on_every_broker(tmp_path: Path) -> None:
    async with running(tmp_path, brokers=2) as clients:
        token = await create(await clients.plain("alice"))
        assert token.error_code == 0
        assert len(token.token_id) == 22
        assert token.expiry_timestamp_ms == token.issue_timestamp_ms + DAY_MS
        assert token.max_timestamp_ms == token.issue_timestamp_ms + 7 * DAY_MS
        other = clients.made.brokers[2]
        await until(lambda: follower(other).tokens.all)
        used = await clients.by_token(token, broker=2)
        await used.request(MetadataRequest(topics=[]), 9)
        principals = {str(each.permissions.principal) for each in other.connections._open}
        assert "User:alice" in principals
        refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert (await create(used)).error_code == refused, "a token makes no tokens"
        plaintext = await clients.made.connect(1)
        assert (await create(plaintext)).error_code == refused
        token.hmac = b"wrong" * 10
        with pytest.raises(KafkaError) as raised:
            await clients.by_token(token)
        assert raised.value.error is ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_owner_and_renewers_move_the_expiry(tmp_path: Path) -> None:
    async with running(tmp_path) as clients:
        alice, bob, carol = [await clients.plain(name) for name in ("alice", "bob", "carol")]
        renewer = CreatableRenewers(principal_type="User", principal_name="bob")
        token = await create(alice, renewers=[renewer], max_lifetime_ms=2 * DAY_MS)
        assert token.max_timestamp_ms == token.issue_timestamp_ms + 2 * DAY_MS

        async def renew(by: Connection, period_ms: int, hmac: bytes = token.hmac) -> Any:
            request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
            return await by.request(request, 2)

        async def expire(by: Connection, period_ms: int) -> Any:
            request = ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=period_ms)
            return await by.request(request, 2)

        renewed = await renew(bob, 10 * DAY_MS)
        assert renewed.error_code == 0
        assert renewed.expiry_timestamp_ms == token.max_timestamp_ms
        stranger = await renew(carol, 1)
        assert stranger.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert stranger.expiry_timestamp_ms == -1
        unknown = await renew(alice, 1, b"unknown")
        assert unknown.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        used = await clients.by_token(token)
        await used.request(MetadataRequest(topics=[]), 9)
        assert (await expire(alice, 0)).error_code == 0
        tokens = follower(clients.made.brokers[1])
        (kept,) = tokens.tokens.all
        await until(lambda: kept.is_expired(clients.made.brokers[1].clock()))
        late = await clients.by_token(token)
        with pytest.raises(ConnectionError):
            await late.request(MetadataRequest(topics=[]), 9)
        assert (await renew(alice, 1)).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
        await tokens.purge()
        assert (await renew(alice, 1)).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        again = await create(alice)
        request = ExpireDelegationTokenRequest(hmac=again.hmac, expiry_time_period_ms=-1)
        assert (await alice.request(request, 2)).error_code == 0
        assert tokens.tokens.all == []


async def test_tokens_are_shown_to_whom_they_concern(tmp_path: Path) -> None:
    async with running(tmp_path) as clients:
        alice, bob = await clients.plain("alice"), await clients.plain("bob")
        token = await create(alice)

        async def shown(to: Connection, owners: Any = None) -> list[str]:
            answer = await to.request(DescribeDelegationTokenRequest(owners=owners), 3)
            assert answer.error_code == 0
            return [each.token_id for each in answer.tokens]

        of_alice = DescribeDelegationTokenOwner(principal_type="User", principal_name="alice")
        assert await shown(alice) == [token.token_id]
        assert await shown(alice, [of_alice]) == [token.token_id]
        assert await shown(alice, []) == []
        assert await shown(bob) == []
        acls = clients.made.brokers[1].followers.acls
        assert acls is not None
        entry = AclEntry("User:bob", AclPermission.ALLOW, AclOperation.DESCRIBE_TOKENS)
        assert not await acls.add({ResourcePattern(AclType.USER, "User:alice"): [entry]})
        assert await shown(bob) == [token.token_id]


async def test_a_token_for_another_user_needs_permission(tmp_path: Path) -> None:
    async with running(tmp_path) as clients:
        bob = await clients.plain("bob")
        other = {"owner_principal_type": "User", "owner_principal_name": "alice"}
        refused = await create(bob, **other)
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        acls = clients.made.brokers[1].followers.acls
        assert acls is not None
        entry = AclEntry("User:bob", AclPermission.ALLOW, AclOperation.CREATE_TOKENS)
        assert not await acls.add({ResourcePattern(AclType.USER, "User:alice"): [entry]})
        token = await create(bob, **other)
        assert (token.principal_name, token.token_requester_principal_name) == ("alice", "bob")
        group = CreatableRenewers(principal_type="Group", principal_name="g")
        wrong = await create(bob, renewers=[group])
        assert wrong.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


async def test_one_user_has_a_bounded_number_of_tokens_of_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Making one takes no permission, and all brokers keep them in memory."""
    monkeypatch.setattr(delegation_tokens, "TOKENS_PER_USER_MAX", 2)
    async with running(tmp_path) as clients:
        alice, bob = [await clients.plain(name) for name in ("alice", "bob")]
        tokens = [await create(alice) for _ in range(3)]
        assert [each.error_code for each in tokens] == [0, 0, ErrorCode.POLICY_VIOLATION]
        assert (await create(bob)).error_code == 0
        expire = ExpireDelegationTokenRequest(hmac=tokens[0].hmac, expiry_time_period_ms=-1)
        assert (await alice.request(expire, 2)).error_code == 0
        assert (await create(alice)).error_code == 0, "there is room again"
        many = [CreatableRenewers(principal_type="User", principal_name="r")] * 101
        long = [CreatableRenewers(principal_type="User", principal_name="r" * 30_000)]
        for renewers in (many, long):
            refused = await create(bob, renewers=renewers)
            assert refused.error_code == ErrorCode.INVALID_REQUEST


def test_a_token_is_found_by_its_secret_without_looking_at_the_others() -> None:
    tokens = KnownTokens("secret", bytes)
    alice = Principal("alice")
    for number in range(3):
        tokens.update(DelegationToken(f"id{number}", alice, alice, (), 0, 1, 1))
    found = tokens.by_hmac(tokens.hmac_of("id1"))
    assert found is not None
    assert found.id == "id1"
    assert tokens.by_hmac(b"unknown") is None
    asked: list[str] = []
    tokens.hmac_of = asked.append  # type: ignore[method-assign,assignment]  # counts the work
    tokens.by_hmac(b"x")
    assert not asked
    del tokens.hmac_of  # the class's own again
    tokens.remove("id1")
    assert tokens.by_hmac(tokens.hmac_of("id1")) is None
    assert tokens.count_of(alice) == 2


async def test_without_a_secret_there_are_none(tmp_path: Path) -> None:
    settings = {"delegation.token.secret.key": ""}
    async with running(tmp_path, 1, **settings) as clients:
        alice = await clients.plain("alice")
        assert (await create(alice)).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


async def test_the_active_controller_deletes_what_has_expired(tmp_path: Path) -> None:
    short = {
        "delegation.token.expiry.time.ms": "1",
        "delegation.token.expiry.check.interval.ms": "20",
    }
    async with running(tmp_path, 1, **short) as clients:
        assert (await create(await clients.plain("alice"))).error_code == 0
        broker = clients.made.brokers[1]
        await until(lambda: not follower(broker).tokens.all)
        assert await broker.store.tokens.ids() == []


async def test_our_own_client_manages_tokens(tmp_path: Path) -> None:
    async with running(tmp_path) as clients:
        endpoints = clients.made.brokers[1].endpoints
        port = next(each.port for each in endpoints if each.listener == "SASL_PLAINTEXT")
        security = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "alice",
        }
        async with Client(f"127.0.0.1:{port}", security=security) as client:
            tokens = Tokens(client)
            made = await tokens.create(renewers=[Principal("bob")], max_lifetime_ms=DAY_MS)
            assert made.hmac not in repr(made)
            assert await tokens.describe() == [made]
            assert await tokens.describe([Principal("bob")]) == [made], "bob may renew it"
            assert await tokens.renew(made.hmac, 10 * DAY_MS) == made.max_ms
            await tokens.expire(made.hmac)
            assert await tokens.describe() == []
            with pytest.raises(KafkaError) as raised:
                await tokens.renew(made.hmac)
            assert raised.value.error is ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_nodes_are_kafkas() -> None:
    token = StoredToken("id", "User:alice", "User:a b", ("User:bob",), 1, 2, 3 << 40)
    data = encode_token(token)
    assert data.startswith(
        b'{"version":3,"owner":"User%3Aalice","tokenRequester":"User%3Aa%20b",'
        b'"renewers":["User%3Abob"],"issueTimestamp":1,"maxTimestamp":2,'
    )
    assert decode_token(data, "/t") == token
    old = (
        b'{"version":1,"owner":"User%3Aa","renewers":[],"issueTimestamp":1,"maxTimestamp":2,'
        b'"expiryTimestamp":3,"tokenId":"x"}'
    )
    assert decode_token(old, "/t").requester == "User:a"
