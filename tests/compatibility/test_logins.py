"""Today's clients log in with every mechanism they have, over TLS and without, and stay logged in.

The rows of docs/compatibility.md under "Logins" are what is listed here.
"""

import asyncio
import base64
import json
import os
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError as PythonKafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider
from tests.broker.processes import BrokerProcess
from tests.compatibility.drivers import Unsupported
from tests.compatibility.drivers.kafkajs import modules

from odradek.broker.first_users import write_users
from odradek.security.development import DevelopmentSecurity
from odradek.security.jaas import Module, jaas_text
from odradek.testing.cluster import _free_ports as free_ports

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

# kafka-python and kafkajs send the name as it is, which the protocol does not allow for the first.
SPECIAL, USER, PASSWORD = "special user= test,scram", "alice", "p w,=ä"
LISTENERS = ("SASL_PLAINTEXT", "SASL_SSL", "SSL")
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
REAUTHENTICATION_MS = 2000
TIMEOUT_S = 30
REFUSED_S = 5


class Secured:
    """One broker with every kind of listener, and what clients need to know of it."""

    def __init__(self, home: Path) -> None:
        self.files = DevelopmentSecurity(home / "security")
        self.files.create_in(self.files.directory, ["localhost", "127.0.0.1"])
        plain, *others = free_ports(1 + len(LISTENERS))
        self.addresses = {
            name: f"127.0.0.1:{port}" for name, port in zip(LISTENERS, others, strict=True)
        }
        named = {"PLAINTEXT": f"127.0.0.1:{plain}", **self.addresses}
        users = {f"user_{user}": PASSWORD for user in (SPECIAL, USER)}
        settings = {
            "listeners": ",".join(f"{name}://{address}" for name, address in named.items()),
            "sasl.enabled.mechanisms": f"PLAIN,{','.join(SCRAM)},OAUTHBEARER",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.files.directory / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.files.authority_file),
            "ssl.client.auth": "required",
            "connections.max.reauth.ms": str(REAUTHENTICATION_MS),
        }
        for name in ("sasl_plaintext", "sasl_ssl"):
            front = f"listener.name.{name}"
            settings[f"{front}.plain.sasl.jaas.config"] = jaas_text(Module.PLAIN, **users)
            oauth = jaas_text(Module.OAUTHBEARER)
            settings[f"{front}.oauthbearer.sasl.jaas.config"] = oauth
        self.process = BrokerProcess(home / "data", *(f"{k}={v}" for k, v in settings.items()))
        os.makedirs(home / "data")
        store = f"sqlite:{home / 'data' / 'metadata.db'}"
        asyncio.run(write_users(store, {SPECIAL: PASSWORD, USER: PASSWORD}, os.urandom))

    @property
    def authority(self) -> str:
        return str(self.files.authority_file)

    @property
    def certificate(self) -> str:
        return str(self.files.directory / "client.pem")


@contextmanager
def running(home: Path) -> Iterator[Secured]:
    made = Secured(home)
    made.process.start()
    yield made
    made.process.kill()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with running(tmp_path_factory.mktemp("logins")) as made:
        yield made


def bearer_token() -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    now = int(time.time())
    return f"{part({'alg': 'none'})}.{part({'sub': USER, 'iat': now, 'exp': now + 600})}."


def librdkafka_settings(
    secured: Secured, listener: str, mechanism: str, password: str
) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": secured.addresses[listener],
        "security.protocol": listener,
        "ssl.ca.location": secured.authority,
        "log_level": 2,
        "error_cb": lambda error: None,
    }
    if listener == "SSL":
        settings["ssl.certificate.location"] = secured.certificate
        settings["ssl.key.location"] = secured.certificate
    elif mechanism == "OAUTHBEARER":
        settings["sasl.mechanism"] = mechanism
        settings["oauth_cb"] = lambda config: (bearer_token(), time.time() + 600)
    else:
        settings |= {
            "sasl.mechanism": mechanism,
            "sasl.username": SPECIAL,
            "sasl.password": password,
        }
    return settings


def librdkafka(secured: Secured, listener: str, mechanism: str, password: str) -> bool:
    client = AdminClient(librdkafka_settings(secured, listener, mechanism, password))
    client.poll(0.1)  # where a token is asked for
    try:
        return bool(client.list_topics(timeout=TIMEOUT_S if password == PASSWORD else 3).brokers)
    except KafkaException:
        return False


class Tokens(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    def token(self) -> str:
        return bearer_token()


def python_settings(
    secured: Secured, listener: str, mechanism: str, password: str
) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap_servers": secured.addresses[listener],
        "security_protocol": listener,
    }
    if listener.startswith("SASL"):
        settings["sasl_mechanism"] = mechanism
    if mechanism not in ("OAUTHBEARER", ""):
        settings |= {"sasl_plain_username": USER, "sasl_plain_password": password}
    return settings


def kafka_python(secured: Secured, listener: str, mechanism: str, password: str) -> bool:
    settings = python_settings(secured, listener, mechanism, password)
    settings["ssl_cafile"] = secured.authority
    if listener == "SSL":
        settings |= {"ssl_certfile": secured.certificate, "ssl_keyfile": secured.certificate}
    if mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = Tokens()
    # A login that is refused is repeated until this time is over.
    wait_s = TIMEOUT_S if password == PASSWORD else REFUSED_S
    try:
        client = KafkaAdminClient(**settings, bootstrap_timeout_ms=1000 * wait_s)
    except PythonKafkaError:
        return False
    try:
        return client.list_topics() is not None
    except PythonKafkaError:
        return False
    finally:
        client.close()


def aiokafka(secured: Secured, listener: str, mechanism: str, password: str) -> bool:
    from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.errors import KafkaError as AioError

    class AioTokens(AioTokenProvider):  # type: ignore[misc]  # aiokafka has few types
        async def token(self) -> str:
            return bearer_token()

    async def ask() -> bool:
        context = ssl.create_default_context(cafile=secured.authority)
        if listener == "SSL":
            context.load_cert_chain(secured.certificate)
        settings = python_settings(secured, listener, mechanism, password)
        if listener != "SASL_PLAINTEXT":
            settings["ssl_context"] = context
        if mechanism == "OAUTHBEARER":
            settings["sasl_oauth_token_provider"] = AioTokens()
        client = AIOKafkaAdminClient(**settings)
        try:
            await client.start()
            return await client.list_topics() is not None
        except AioError:
            return False
        finally:
            await client.close()

    return asyncio.run(ask())


SCRIPT = """
const { Kafka, logLevel } = require('kafkajs');
const fs = require('fs');
const o = JSON.parse(process.argv[1]);
const own = fs.readFileSync(o.certificate);
const ssl = o.listener === 'SASL_PLAINTEXT' ? false : {
  ca: [fs.readFileSync(o.authority, 'utf-8')],
  ...(o.listener === 'SSL' ? { cert: own, key: own } : {}),
};
const sasl = o.listener === 'SSL' ? undefined : o.mechanism === 'OAUTHBEARER'
  ? { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: o.token }) }
  : { mechanism: o.mechanism.toLowerCase(), username: o.user, password: o.password };
const admin = new Kafka({ brokers: [o.address], ssl, sasl, logLevel: logLevel.NOTHING,
  retry: { retries: 1 }, reauthenticationThreshold: 500 }).admin();
admin.connect().then(() => admin.listTopics()).then(() => process.exit(0), () => process.exit(3));
"""


def options_for(secured: Secured, listener: str, mechanism: str, password: str) -> dict[str, str]:
    """For clients in other languages, which get them as JSON."""
    return {
        "address": secured.addresses[listener],
        "listener": listener,
        "mechanism": mechanism,
        "authority": secured.authority,
        "certificate": secured.certificate,
        "user": USER,
        "password": password,
        "token": bearer_token(),
    }


def kafkajs(secured: Secured, listener: str, mechanism: str, password: str) -> bool:
    options = options_for(secured, listener, mechanism, password)
    done = subprocess.run(
        ["node", "-e", SCRIPT, json.dumps(options)],
        env={**os.environ, "NODE_PATH": modules()},
        timeout=2 * TIMEOUT_S,
        check=False,
    )
    return done.returncode == 0


# Whether a client is let in: with which listener, mechanism and password.
LogIn: TypeAlias = Callable[[Secured, str, str, str], bool]

CLIENTS: dict[str, LogIn] = {
    "confluent-kafka (librdkafka)": librdkafka,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "kafkajs": kafkajs,
}


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_logs_in_with_every_mechanism_it_has(secured: Secured, name: str) -> None:
    log_in = CLIENTS[name]
    try:
        if name == "kafkajs":
            modules()
    except Unsupported as error:
        pytest.skip(str(error))
    check_every_mechanism(secured, log_in)


def check_every_mechanism(secured: Secured, log_in: LogIn) -> None:
    assert log_in(secured, "SSL", "", PASSWORD), "a certificate"
    for mechanism in ("PLAIN", *SCRAM, "OAUTHBEARER"):
        for listener in ("SASL_PLAINTEXT", "SASL_SSL"):
            assert log_in(secured, listener, mechanism, PASSWORD), f"{mechanism} over {listener}"
    for mechanism in ("PLAIN", SCRAM[0]):
        assert not log_in(secured, "SASL_SSL", mechanism, "wrong"), f"{mechanism}, wrong password"


def test_clients_log_in_again_before_their_session_ends(secured: Secured) -> None:
    """Several sessions long, librdkafka and kafka-python produce without an error."""
    AdminClient({"bootstrap.servers": secured.process.bootstrap}).poll(0)
    errors: list[object] = []
    outcomes: list[object] = []
    settings = librdkafka_settings(secured, "SASL_SSL", SCRAM[0], PASSWORD)
    producer = Producer({**settings, "error_cb": errors.append})
    python = KafkaProducer(
        **python_settings(secured, "SASL_SSL", SCRAM[0], PASSWORD), ssl_cafile=secured.authority
    )
    end = time.monotonic() + 2.6 * REAUTHENTICATION_MS / 1000
    sent = 0
    while time.monotonic() < end:
        producer.produce("again", b"x", on_delivery=lambda error, _: outcomes.append(error))
        assert producer.flush(TIMEOUT_S) == 0
        python.send("again", b"y").get(TIMEOUT_S)
        sent += 1
    python.close()
    assert outcomes == [None] * sent
    assert sent
    assert not errors
