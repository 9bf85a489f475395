"""How a broker connects to ZooKeeper: docs/spec/security.md, section 6."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner
from tests.broker.processes import BrokerProcess
from tests.security.certificates import Authority, common_name

from odradek.broker.config import BrokerConfig
from odradek.broker.store_security import store_security
from odradek.cli.main import main
from odradek.security.jaas import jaas_text
from odradek.store import open_store
from odradek.store.api import AuthenticationFailed, StoreLogin
from odradek.store.zookeeper_server import QUICK_START, ZooKeeperServer
from odradek.wire.errors import ErrorCode, KafkaError

DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"
JAAS = "odradek.zookeeper.sasl.jaas.config"
LOGIN = jaas_text(DIGEST, username="kafka", password="hush")


class SecureZooKeeper(NamedTuple):
    plain: str
    encrypted: str
    directory: Path


@pytest.fixture(scope="module")
def secure_zookeeper(
    zookeeper_is_here: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecureZooKeeper]:
    """One server: logins on its plain port, certificates on the other."""
    directory = tmp_path_factory.mktemp("secure-zookeeper")
    authority = Authority()
    server, broker = (authority.issue(common_name(name)) for name in ("zookeeper", "kafka"))
    (directory / "server.pem").write_text(server.chain_pem + server.key_pem)
    (directory / "ca.pem").write_text(authority.pem)
    (directory / "broker.p12").write_bytes(broker.pkcs12("pw"))
    (directory / "jaas.conf").write_text(f'Server {{ {DIGEST} required user_kafka="hush"; }};')
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        secure_port = probe.getsockname()[1]
    provider = "org.apache.zookeeper.server.auth."
    made = ZooKeeperServer(
        directory / "data",
        port=0,
        tick_ms=100,
        jvm=(*QUICK_START, f"-Djava.security.auth.login.config={directory}/jaas.conf"),
        properties={
            "secureClientPort": str(secure_port),
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "authProvider.x509": f"{provider}X509AuthenticationProvider",
            "authProvider.sasl": f"{provider}SASLAuthenticationProvider",
            "ssl.keyStore.location": f"{directory}/server.pem",
            "ssl.trustStore.location": f"{directory}/ca.pem",
        },
    )
    made.start()
    yield SecureZooKeeper(made.address, f"127.0.0.1:{secure_port}", directory)
    made.stop()


@pytest.mark.process
async def test_nodes_of_a_broker_that_logs_in_are_its_own(
    secure_zookeeper: SecureZooKeeper, tmp_path: Path
) -> None:
    address = f"{secure_zookeeper.plain}/login"
    settings = (f"zookeeper.connect={address}", "zookeeper.set.acl=true", f"{JAAS}={LOGIN}")
    broker = BrokerProcess(tmp_path, *settings).start()
    stranger = open_store(f"zookeeper://{address}")
    await stranger.start()
    assert (await stranger.get("/brokers/ids/1"))[0]
    for path in ("/controller_epoch", "/config/topics"):
        with pytest.raises(AuthenticationFailed):
            await stranger.set(path, b"1")
    for path in ("/config/users", "/config/brokers"):
        with pytest.raises(AuthenticationFailed):
            await stranger.children(path)
    await stranger.close()
    friend = open_store(f"zookeeper://{address}", authentication=[StoreLogin("sasl", "kafka:hush")])
    await friend.start()
    assert await friend.children("/config/users") == []
    await friend.close()
    assert broker.stop() == 0
    assert "hush" not in "".join(broker.log)


@pytest.mark.process
async def test_a_wrong_password_ends_the_start(
    secure_zookeeper: SecureZooKeeper, tmp_path: Path
) -> None:
    store = open_store(
        f"zookeeper://{secure_zookeeper.plain}/wrong",
        authentication=[StoreLogin("sasl", "kafka:guess")],
    )
    with pytest.raises(AuthenticationFailed):
        await store.start()
    await store.close()


@pytest.mark.process
async def test_a_certificate_is_an_identity_and_offline_commands_have_it(
    secure_zookeeper: SecureZooKeeper, tmp_path: Path
) -> None:
    """PKCS12 for the key, PEM for the authority; the stranger has the authority, and no key."""
    directory, address = secure_zookeeper.directory, f"{secure_zookeeper.encrypted}/certificate"
    file = tmp_path / "broker.properties"
    written = {
        "zookeeper.set.acl": "true",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.keystore.location": f"{directory}/broker.p12",
        "zookeeper.ssl.keystore.password": "pw",
        "zookeeper.ssl.truststore.location": f"{directory}/ca.pem",
    }
    file.write_text("".join(f"{name}={value}\n" for name, value in written.items()))
    command = ["users", "add", "bob", "--offline", "--store", f"zookeeper://{address}"]
    command += ["--store-config", str(file)]
    added = await asyncio.to_thread(CliRunner().invoke, main, command, input="secret\n")
    assert added.exit_code == 0, added.output
    # The plain port shows the same tree.
    stranger = open_store(f"zookeeper://{secure_zookeeper.plain}/certificate")
    await stranger.start()
    with pytest.raises(AuthenticationFailed):
        await stranger.get("/config/users/bob")
    await stranger.close()


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ({"zookeeper.set.acl": "true"}, "zookeeper.set.acl=true needs an identity"),
        (
            {"zookeeper.set.acl": "true", "zookeeper.ssl.client.enable": "true"},
            "zookeeper.ssl.keystore.location",
        ),
        ({JAAS: "hush"}, JAAS),
        ({JAAS: jaas_text("a.Module", username="u", password="hush")}, "DigestLoginModule"),
        ({JAAS: jaas_text(DIGEST, username="u")}, "username.*password"),
        ({JAAS: jaas_text(DIGEST, username="u:v", password="hush")}, "without a colon"),
        (
            {"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.crl.enable": "true"},
            "zookeeper.ssl.crl.enable",
        ),
        (
            {"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.ocsp.enable": "true"},
            "zookeeper.ssl.ocsp.enable",
        ),
        (
            {
                "zookeeper.ssl.client.enable": "true",
                "zookeeper.ssl.keystore.location": "/nowhere.pem",
            },
            "zookeeper.ssl.keystore.location: cannot read /nowhere.pem",
        ),
        (
            {"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.protocol": "TLSv1.1"},
            "zookeeper.ssl.enabled.protocols: TLSv1.1 not supported",
        ),
    ],
)
def test_wrong_settings_name_the_setting_and_no_secret(
    written: dict[str, str], reason: str
) -> None:
    with pytest.raises(KafkaError, match=reason) as refused:
        store_security(BrokerConfig(written), lambda path: Path(path).read_bytes())
    assert refused.value.error is ErrorCode.INVALID_CONFIG
    assert "hush" not in refused.value.message


def test_a_login_does_not_show_its_password() -> None:
    security = store_security(BrokerConfig({JAAS: LOGIN}), lambda path: b"")
    assert security.authentication == (StoreLogin("sasl", "kafka:hush"),)
    assert "hush" not in repr(security)


def test_the_name_of_a_file_tells_its_type(tmp_path: Path) -> None:
    authority = Authority()
    identity = authority.issue(common_name("kafka"))
    (tmp_path / "key.pem").write_text(identity.chain_pem + identity.key_pem)
    (tmp_path / "trust.p12").write_bytes(identity.pkcs12("pw"))
    written = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.keystore.location": f"{tmp_path}/key.pem",
        "zookeeper.ssl.truststore.location": f"{tmp_path}/trust.p12",
        "zookeeper.ssl.truststore.password": "pw",
        "zookeeper.ssl.endpoint.identification.algorithm": "",
    }
    tls = store_security(BrokerConfig(written), lambda path: Path(path).read_bytes()).tls
    assert tls is not None
    assert not tls.check_hostname
    assert tls.get_ca_certs()
