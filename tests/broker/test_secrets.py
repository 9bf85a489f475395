"""Nothing secret leaves a broker: not in its log, its answers, its files or `repr` of its parts."""

import asyncio
import logging
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker.clusters import cluster
from tests.security.certificates import Authority, common_name

from odradek.client import Admin, Client, Resource, ResourceType
from odradek.client.users import Users
from odradek.log.disk import RealDisk
from odradek.security.jaas import Module, jaas_text
from odradek.store import open_store
from odradek.wire.errors import KafkaError

NAMES = (
    *("plain", "own", "wrong", "user", "client", "token", "encoder", "old encoder", "http", "key"),
    *("zookeeper", "zookeeper key", "zookeeper trust"),
)
SECRETS = {name: f"secret-{number}-of-this-run" for number, name in enumerate(NAMES)}


def texts_of(directory: Path) -> Iterator[tuple[Path, bytes]]:
    for path in directory.rglob("*"):
        if path.is_file():
            yield path, path.read_bytes()


async def test_secrets_stay_inside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    authority = Authority()
    server = authority.issue(common_name("broker"))
    key = server.key_pem.splitlines()[1]
    jaas = jaas_text(
        Module.PLAIN,
        username="broker",
        password=SECRETS["own"],
        user_broker=SECRETS["own"],
        user_alice=SECRETS["plain"],
    )
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "security_inter_broker_protocol": "SASL_SSL",
        "sasl_mechanism_inter_broker_protocol": "PLAIN",
        "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas,
        "ssl_keystore_type": "PEM",
        "ssl_keystore_key": server.key_pem,
        "ssl_keystore_certificate_chain": server.chain_pem,
        "ssl_truststore_type": "PEM",
        "ssl_truststore_certificates": authority.pem,
        "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
        "super_users": "User:broker;User:alice",
        "delegation_token_secret_key": SECRETS["token"],
        "password_encoder_secret": SECRETS["encoder"],
        "password_encoder_old_secret": SECRETS["old encoder"],
        "odradek_http_listener": "127.0.0.1:0",
        "odradek_http_token": SECRETS["http"],
        "odradek.zookeeper.sasl.jaas.config": SECRETS["zookeeper"],
        "zookeeper_ssl_keystore_password": SECRETS["zookeeper key"],
        "zookeeper_ssl_truststore_password": SECRETS["zookeeper trust"],
        "listener.name.other.ssl.key.password": SECRETS["key"],
    }
    seen: list[str] = []
    async with cluster(tmp_path, 1, **settings) as made:
        broker = made.brokers[1]
        (tmp_path / "ca.pem").write_text(authority.pem)

        def client(password: str) -> Client:
            security = {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "alice",
                "sasl.password": password,
                "ssl.ca.location": str(tmp_path / "ca.pem"),
            }
            return Client(f"127.0.0.1:{broker.endpoints[0].port}", security=security)

        async with client(SECRETS["plain"]) as alice:
            await Users(alice).add("carol", SECRETS["user"])
            owner = Resource(ResourceType.BROKER, "1")
            seen.append(str((await Admin(alice).describe_configs([owner]))[owner]))
            seen.append(repr(vars(alice._connections)))
        async with client(SECRETS["wrong"]) as wrong:
            with pytest.raises(KafkaError) as raised:
                await wrong.refresh()
            seen.append(repr(raised.value) + str(raised.value))
        address = broker.config.http_listener()
        pages = ("metrics", "api/cluster", "api/brokers", "nothing")
        seen += [await http_get(address, page) for page in pages]
        security = broker.security
        seen += map(repr, (broker.config, security, security.inter_broker, vars(security)))
        seen.append(repr(security.of("SASL_SSL")))
    seen.append(caplog.text)
    text = "\n".join(seen)
    assert "ssl.keystore.key" in text, "it is described, without its value"
    for secret in (*SECRETS.values(), key):
        assert secret not in text
        for path, data in texts_of(tmp_path):
            assert secret.encode() not in data, path


async def http_get(address: tuple[str, int] | None, path: str) -> str:
    assert address is not None
    reader, writer = await asyncio.open_connection(*address)
    writer.write(f"GET /{path} HTTP/1.1\r\nConnection: close\r\n\r\n".encode())
    text = (await asyncio.wait_for(reader.read(), 30)).decode(errors="replace")
    writer.close()
    return text


@pytest.mark.process
def test_a_start_that_fails_prints_no_secret(tmp_path: Path) -> None:
    """Neither in the error nor in a traceback, and not from the settings around it."""
    settings = {
        "log.dirs": tmp_path / "logs",
        "listeners": "SASL_SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f"nonsense {SECRETS['plain']}",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": tmp_path / "broker.p12",
        "ssl.keystore.password": SECRETS["own"],
        "delegation.token.secret.key": SECRETS["token"],
        "password.encoder.secret": SECRETS["encoder"],
    }
    (tmp_path / "broker.p12").write_bytes(b"0 not a store")
    file = tmp_path / "broker.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    file.chmod(0o600)
    command = [sys.executable, "-m", "odradek", "broker", "--id", "1", "--verbose"]
    command += ["--config", str(file), "--store", f"sqlite:{tmp_path / 'metadata.db'}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    printed = done.stdout + done.stderr
    assert "listener SASL_SSL" in printed
    assert "Traceback" not in printed
    for secret in SECRETS.values():
        assert secret not in printed


async def test_the_store_is_its_owners_alone(tmp_path: Path) -> None:
    before = os.umask(0o022)
    store = open_store(f"sqlite:{tmp_path / 'cluster' / 'metadata.db'}")
    try:
        await store.start()
        await store.create("/x", b"")
        directory = tmp_path / "cluster"
        found = {path: stat.S_IMODE(path.stat().st_mode) for path in directory.rglob("*")}
        assert len(found) > 2
        for path, mode in {directory: stat.S_IMODE(directory.stat().st_mode), **found}.items():
            assert not mode & 0o077, path
    finally:
        await store.close()
        os.umask(before)


async def test_a_store_that_others_can_read_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "metadata.db"
    for mode, warned in ((0o644, True), (0o600, False)):
        caplog.clear()
        path.touch()
        path.chmod(mode)
        store = open_store(f"sqlite:{path}")
        await store.start()
        await store.close()
        assert ("chmod 600" in caplog.text) is warned


def test_directories_of_records_are_their_owners_alone(tmp_path: Path) -> None:
    RealDisk().make_dirs(str(tmp_path / "logs" / "t-0"))
    for name in ("logs", "logs/t-0"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o700
