"""Users and permissions through our own client, and the first user before any broker runs."""

import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from tests.broker.clusters import cluster, until

from odradek.cli.acls import Rights, _bindings, _deletions
from odradek.cli.main import main
from odradek.client.acls import Acl, Acls
from odradek.client.client import Client
from odradek.client.users import User, Users
from odradek.security.acls import (
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from odradek.security.client import ClientSecurity
from odradek.security.jaas import Module, jaas_text
from odradek.wire.connection import Connection
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.metadata import MetadataRequest

SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "sasl_enabled_mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "super_users": "User:ANONYMOUS",
}
EVERYTHING = AclFilter(
    ResourceType.ANY,
    None,
    PatternType.ANY,
    None,
    None,
    AclOperation.ANY,
    AclPermission.ANY,
)


async def log_in(port: int, user: str, password: str, mechanism: str) -> None:
    security = ClientSecurity.read(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": jaas_text(Module.SCRAM, username=user, password=password),
        },
        read_file=lambda path: b"",
        now_ms=lambda: int(time.time() * 1000),
    )
    connection = await Connection.open("127.0.0.1", port, timeout=60, security=security)
    await connection.request(MetadataRequest(topics=[]), 9)
    connection.close()


async def test_users_are_added_listed_and_deleted(tmp_path: Path) -> None:
    name = "special user= test,scram"
    async with cluster(tmp_path, 1, **SETTINGS) as made:
        broker = made.brokers[1]
        ports = {each.listener: each.port for each in broker.endpoints}
        async with Client(f"127.0.0.1:{ports['PLAINTEXT']}") as client:
            users = Users(client)
            await users.add(name, "ª p", iterations=5000)
            await users.add("bob", "x", mechanisms=["SCRAM-SHA-256"])
            await until(lambda: broker.security.credentials.users == ["bob", name])
            assert await users.describe() == [
                User("bob", {"SCRAM-SHA-256": 4096}),
                User(name, {"SCRAM-SHA-256": 5000, "SCRAM-SHA-512": 5000}),
            ]
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                await log_in(ports["SASL_PLAINTEXT"], name, "ª p", mechanism)
            await users.delete(name)
            with pytest.raises(KafkaError, match="ghost") as raised:
                await users.delete("ghost")
            assert raised.value.error is ErrorCode.RESOURCE_NOT_FOUND
            await until(lambda: broker.security.credentials.users == ["bob"])


async def test_acls_are_added_listed_and_deleted(tmp_path: Path) -> None:
    topic = ResourcePattern(ResourceType.TOPIC, "t")
    prefix = ResourcePattern(ResourceType.TOPIC, "raw-", PatternType.PREFIXED)
    read = AclEntry("User:a", AclPermission.ALLOW, AclOperation.READ)
    wrong = Acl(ResourcePattern(ResourceType.CLUSTER, "other"), read)
    wanted = [Acl(topic, read), Acl(prefix, read._replace(principal="User:b"))]
    async with (
        cluster(tmp_path, 1, **SETTINGS) as made,
        Client(f"127.0.0.1:{made.brokers[1].endpoints[0].port}") as client,
    ):
        acls = Acls(client)
        outcomes = await acls.add([*wanted, wrong])
        assert [outcomes[each] for each in wanted] == [None, None]
        failed = outcomes[wrong]
        assert failed is not None
        assert failed.error is ErrorCode.INVALID_REQUEST
        assert await acls.describe(EVERYTHING) == sorted(wanted)
        assert await acls.describe(EVERYTHING._replace(principal="User:b")) == wanted[1:]
        matching = EVERYTHING._replace(
            type=ResourceType.TOPIC, name="raw-7", pattern=PatternType.MATCH
        )
        assert await acls.describe(matching) == wanted[1:]
        assert await acls.delete([matching]) == wanted[1:]
        assert await acls.describe(EVERYTHING) == wanted[:1]


async def test_the_first_user_is_written_before_any_broker_runs(tmp_path: Path) -> None:
    from odradek.cli.offline import offline_store
    from odradek.security.scram import MECHANISMS, ScramCredential
    from odradek.store.paths import ConfigKind

    def add(password: str) -> None:
        arguments = ["users", "add", "broker", "--offline", "--data", str(tmp_path / "data")]
        result = CliRunner().invoke(main, arguments, input=password + "\n")
        assert result.exit_code == 0, result.output
        assert password not in result.output

    import asyncio

    await asyncio.to_thread(add, "hunter2")
    await asyncio.to_thread(add, "hunter3")
    async with offline_store(f"sqlite:{tmp_path / 'data'}/metadata.db", None) as store:
        settings = await store.configs.get(ConfigKind.USERS, "broker")
    for name, mechanism in MECHANISMS.items():
        kept = ScramCredential.parse(settings[name])
        again = ScramCredential.from_password(mechanism, "hunter3", kept.salt, kept.iterations)
        assert again == kept


NO_RIGHTS: Rights = {
    "topics": (),
    "groups": (),
    "transactional_ids": (),
    "tokens": (),
    "user_principals": (),
    "is_cluster": False,
    "pattern": "literal",
    "allowed": (),
    "denied": (),
    "allow_hosts": (),
    "deny_hosts": (),
    "operations": (),
    "is_producer": False,
    "is_consumer": False,
    "is_idempotent": False,
}


def test_producer_and_consumer_are_what_kafka_acls_grants() -> None:
    granted = _bindings(
        {
            **NO_RIGHTS,
            "allowed": ("User:a",),
            "topics": ("t",),
            "groups": ("g",),
            "is_producer": True,
            "is_consumer": True,
            "is_idempotent": True,
        }
    )
    found = {(acl.resource.type.name, acl.entry.operation.name) for acl in granted}
    assert found == {
        ("TOPIC", "WRITE"),
        ("TOPIC", "DESCRIBE"),
        ("TOPIC", "CREATE"),
        ("TOPIC", "READ"),
        ("GROUP", "READ"),
        ("CLUSTER", "IDEMPOTENT_WRITE"),
    }


def test_hosts_and_operations_multiply() -> None:
    granted = _bindings(
        {
            **NO_RIGHTS,
            "allowed": ("User:a",),
            "allow_hosts": ("10.0.0.1", "10.0.0.2"),
            "denied": ("User:b",),
            "operations": ("Read", "describe_configs"),
            "topics": ("t", "u"),
        }
    )
    assert len(granted) == 2 * 2 * (2 + 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topics": ("t",)}, "missing principal"),
        ({"allowed": ("User:a",)}, "missing resource"),
        ({"allowed": ("alice",), "topics": ("t",)}, "User:name"),
        ({"allowed": ("User:a",), "topics": ("t",), "operations": ("Raed",)}, "did you mean"),
        ({"allowed": ("User:a",), "topics": ("t",), "is_consumer": True}, "--group"),
        ({"allow_hosts": ("h",), "topics": ("t",)}, "--allow-principal"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: Rights, message: str) -> None:
    with pytest.raises(click.UsageError, match=message):
        _bindings({**NO_RIGHTS, **options})


def test_without_a_principal_everything_of_a_resource_is_deleted() -> None:
    (everything,) = _deletions({**NO_RIGHTS, "topics": ("t",)})
    assert everything.principal is None
    assert everything.operation is AclOperation.ANY
    with pytest.raises(click.UsageError, match="missing resource"):
        _deletions({**NO_RIGHTS, "allowed": ("User:a",)})
