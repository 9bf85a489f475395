"""Our own client on secured listeners: the settings of both worlds, and errors that end at once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.broker.clusters import cluster
from tests.security.certificates import Authority, common_name

from odradek.client import EARLIEST, Admin, Client, Consumer, NewTopic, Producer, check
from odradek.security.client_settings import InvalidSecurity, java_settings
from odradek.wire.connection import HandshakeFailed
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.topics import TopicPartition

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
PASSWORD = 'p"w\\ä'
# An error that must not be retried is there long before this.
TIMEOUT_S = 60.0
AT_ONCE_S = 20.0


class Secured:
    """A broker whose SASL_SSL listener takes PLAIN, and whose SSL listener needs a certificate."""

    def __init__(self, path: Path, authority: Authority, ports: dict[str, int]) -> None:
        self.path = path
        self.authority = authority
        self.ports = ports
        (path / "ca.pem").write_text(authority.pem)

    def client(self, listener: str = "SASL_SSL", **settings: str) -> Client:
        security = {
            "security.protocol": listener,
            "ssl.ca.location": str(self.path / "ca.pem"),
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        address = f"127.0.0.1:{self.ports[listener]}"
        return Client(address, timeout_s=TIMEOUT_S, security=security)


@asynccontextmanager
async def secured(path: Path) -> AsyncIterator[Secured]:
    authority = Authority()
    server = authority.issue(common_name("broker"))
    escaped = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl_keystore_type": "PEM",
        "ssl_keystore_key": server.key_pem,
        "ssl_keystore_certificate_chain": server.chain_pem,
        "ssl_truststore_type": "PEM",
        "ssl_truststore_certificates": authority.pem,
        "ssl_client_auth": "required",
        "sasl_enabled_mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN} required user_a="{escaped}";',
    }
    async with cluster(path, 1, **settings) as made:
        ports = {each.listener: each.port for each in made.brokers[1].endpoints}
        yield Secured(path, authority, ports)


async def test_admin_producer_and_consumer_log_in(tmp_path: Path) -> None:
    async with (
        secured(tmp_path) as server,
        server.client(sasl_mechanisms="PLAIN", sasl_username="a", sasl_password=PASSWORD) as client,
    ):
        check(await Admin(client).create_topics([NewTopic("t", 1, 1)]))
        async with Producer(client) as producer:
            await producer.send("t", b"hello")
        async with Consumer(client) as consumer:
            await consumer.assign({TopicPartition("t", 0): EARLIEST})
            assert (await anext(consumer.records())).value == b"hello"


async def test_a_certificate_from_librdkafka_settings_is_shown(tmp_path: Path) -> None:
    async with secured(tmp_path) as server:
        own = server.authority.issue(common_name("client"))
        (tmp_path / "own.pem").write_text(own.chain_pem)
        (tmp_path / "own.key").write_text(own.key_pem)
        files = {
            "ssl_certificate_location": str(tmp_path / "own.pem"),
            "ssl_key_location": str(tmp_path / "own.key"),
        }
        async with server.client("SSL", **files) as client:
            assert (await client.refresh()).nodes


@pytest.mark.parametrize(
    ("settings", "code", "setting"),
    [
        (
            {"sasl_mechanism": "PLAIN", "sasl_username": "a", "sasl_password": "wrong"},
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            "sasl.jaas.config",
        ),
        (
            {"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "a", "sasl_password": "x"},
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            "sasl.mechanism",
        ),
    ],
)
async def test_a_rejected_login_ends_at_once_and_names_the_setting(
    tmp_path: Path, settings: dict[str, str], code: ErrorCode, setting: str
) -> None:
    async with secured(tmp_path) as server, server.client(**settings) as client:
        with pytest.raises(KafkaError, match=setting) as raised:
            async with asyncio.timeout(AT_ONCE_S):
                await client.refresh()
        assert raised.value.error is code


async def test_certificate_errors_end_at_once_and_name_the_setting(tmp_path: Path) -> None:
    async with secured(tmp_path) as server:
        (tmp_path / "other.pem").write_text(Authority("another").pem)
        cases = [
            (
                server.client("SSL", ssl_ca_location=str(tmp_path / "other.pem")),
                "ssl.truststore.location",
            ),
            (server.client("SSL"), "ssl.keystore.location"),  # none to show, and one is required
        ]
        for client, setting in cases:
            async with client:
                with pytest.raises(HandshakeFailed, match=setting):
                    async with asyncio.timeout(AT_ONCE_S):
                        await client.refresh()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"security.protocol": "TLS"}, "security.protocol"),
        ({"sasl.mechanisn": "PLAIN"}, "did you mean sasl.mechanism"),
        ({"sasl.login.class": "x"}, "sasl.login.class is not supported"),
        ({"sasl.username": "a"}, "go together"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism: unset"),
        ({"security.protocol": "SSL", "ssl.ca.location": "/nowhere"}, "cannot read /nowhere"),
        ({"ssl.certificate.location": "x"}, "ssl.key.location"),
        (
            {"sasl.username": "a", "sasl.password": "hunter2", "sasl.jaas.config": "hunter2"},
            "exclude",
        ),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": "hunter2",
            },
            "sasl.jaas.config",
        ),
    ],
)
def test_settings_that_cannot_be_used_are_refused_by_name(
    settings: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidSecurity, match=message) as raised:
        Client("localhost", security=settings)
    assert "hunter2" not in str(raised.value)


def test_a_password_with_every_kind_of_character_is_quoted() -> None:
    from odradek.security.jaas import parse_jaas

    password = "a\"b\\c;=\n'ä "
    settings = java_settings(
        {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": password},
        lambda path: b"",
    )
    assert parse_jaas(settings["sasl.jaas.config"]).options["password"] == password
