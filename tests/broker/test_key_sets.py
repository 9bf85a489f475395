"""Signed tokens: keys from a file or an endpoint, fetched again when a token names a new one."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from tests.broker.clusters import Cluster, cluster, until

from odradek.broker.server import StartFailed
from odradek.security.client import ClientSecurity
from odradek.security.jaas import Module, jaas_text
from odradek.wire.connection import Connection
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.metadata import MetadataRequest

HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
FRONT = "listener.name.clients.oauthbearer."


def encoded(value: object) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Issuer:
    """Signs tokens; publishes its keys."""

    def __init__(self) -> None:
        self._keys: dict[str, ed25519.Ed25519PrivateKey] = {}
        self.fetches = 0

    def add_key(self, kid: str) -> None:
        self._keys[kid] = ed25519.Ed25519PrivateKey.generate()

    @property
    def document(self) -> bytes:
        raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw
        keys = [
            {
                "kty": "OKP",
                "crv": "Ed25519",
                "kid": kid,
                "x": encoded(key.public_key().public_bytes(*raw)),
            }
            for kid, key in self._keys.items()
        ]
        return json.dumps({"keys": keys}).encode()

    def token(self, kid: str, **claims: object) -> str:
        now = int(time.time())
        body = {"sub": "alice", "iat": now, "exp": now + 600, "aud": "kafka", **claims}
        text = f"{encoded({'alg': 'EdDSA', 'kid': kid})}.{encoded(body)}"
        return f"{text}.{encoded(self._keys[kid].sign(text.encode()))}"


@pytest.fixture
def issuer() -> Issuer:
    made = Issuer()
    made.add_key("one")
    return made


@pytest.fixture
def endpoint(issuer: Issuer) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.fetches += 1
            self.send_response(200)
            self.end_headers()
            self.wfile.write(issuer.document)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/keys"
    server.shutdown()
    thread.join()
    server.server_close()


def settings(url: str) -> dict[str, str]:
    return {
        "listeners": "CLIENTS://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener_security_protocol_map": "CLIENTS:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "sasl_enabled_mechanisms": "OAUTHBEARER",
        f"{FRONT}sasl.jaas.config": jaas_text(Module.OAUTHBEARER),
        f"{FRONT}sasl.server.callback.handler.class": HANDLER,
        "sasl.oauthbearer.jwks.endpoint.url": url,
        f"{FRONT}sasl.oauthbearer.expected.audience": "kafka,other",
    }


async def log_in(made: Cluster, token: str, directory: Path) -> None:
    path = directory / "token"
    path.write_text(token)
    security = ClientSecurity.read(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": jaas_text(Module.OAUTHBEARER),
            "sasl.oauthbearer.token.endpoint.url": path.as_uri(),
        },
        read_file=lambda name: Path(name).read_bytes(),
        now_ms=lambda: int(time.time() * 1000),
    )
    address = made.brokers[1].endpoints[0]
    connection = await Connection.open(
        address.host, address.port, client_id="t", timeout=30, security=security
    )
    try:
        assert (await connection.request(MetadataRequest(topics=[]), 9)).brokers
    finally:
        connection.close()


async def test_a_new_key_is_fetched_once_and_then_accepted(
    tmp_path: Path, issuer: Issuer, endpoint: str
) -> None:
    async with cluster(tmp_path / "data", 1, **settings(endpoint)) as made:
        await log_in(made, issuer.token("one"), tmp_path)
        for claims in ({"aud": "elsewhere"}, {"exp": 1}, {"sub": " "}):
            with pytest.raises(KafkaError) as raised:
                await log_in(made, issuer.token("one", **claims), tmp_path)
            assert raised.value.error is ErrorCode.SASL_AUTHENTICATION_FAILED, claims
        assert issuer.fetches == 1
        issuer.add_key("two")
        with pytest.raises(KafkaError):
            await log_in(made, issuer.token("two"), tmp_path)
        tokens = made.brokers[1].security.key_sets[0]._tokens
        await until(lambda: "two" in tokens.keys)
        await log_in(made, issuer.token("two"), tmp_path)
        forger = Issuer()
        forger.add_key("three")
        for _ in range(3):
            with pytest.raises(KafkaError):
                await log_in(made, forger.token("three"), tmp_path)
        await until(lambda: issuer.fetches == 3)


async def test_keys_come_from_a_file_and_must_be_there(tmp_path: Path, issuer: Issuer) -> None:
    keys = tmp_path / "keys.json"
    keys.write_bytes(issuer.document)
    async with cluster(tmp_path / "data", 1, **settings(keys.as_uri())) as made:
        await log_in(made, issuer.token("one"), tmp_path)
    keys.unlink()
    with pytest.raises(StartFailed, match="jwks"):
        async with cluster(tmp_path / "other", 1, **settings(keys.as_uri())):
            pass
    wrong = {**settings("gopher://x"), f"{FRONT}sasl.server.callback.handler.class": "x.Y"}
    for refused in (wrong, settings("gopher://x"), settings("")):
        with pytest.raises(KafkaError, match="listener CLIENTS"):
            async with cluster(tmp_path / "third", 1, **refused):
                pass
