"""Whatever a peer, a file or the store says: an error of ours, in bounded time, and nothing else.

Logins before and after TLS are fuzzed where their parts are tested (`test_exchanges`,
`test_authentication`); here is the rest, and whole servers over real bytes.
"""

import asyncio
import base64
import json
import ssl
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.security.certificates import Authority, Identity, common_name

from odradek.broker.acl_follower import _entry
from odradek.security.client import InvalidSecurity
from odradek.security.client_settings import java_settings
from odradek.security.distinguished_name import InvalidCertificate, subject_text
from odradek.security.exchange import SaslError
from odradek.security.jaas import InvalidJaas, parse_jaas
from odradek.security.key_material import InvalidStore, KeyMaterial, key_store, trust_store
from odradek.security.mapping_rules import InvalidMappingRules, NoMatchingRule, PrincipalMapper
from odradek.security.oauthbearer import InvalidToken, SignedTokens, parse_jwks
from odradek.security.password_encoder import PasswordEncoder, UnreadablePassword
from odradek.security.scram import MECHANISMS, ScramClient, ScramCredential, ScramServer
from odradek.security.tls import TlsSettings, server_context
from odradek.store import acls
from odradek.store.payloads import InvalidPayload
from odradek.store.tokens import decode_token
from odradek.wire.frames import SCRATCH_BYTES, FrameProtocol
from odradek.wire.tls import HANDSHAKE_BYTES_MAX, TlsLayer

few = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner),
    max_leaves=12,
)
AUTHORITY = Authority()
BROKER = AUTHORITY.issue(common_name("broker"))


def changed(data: bytes, edits: list[tuple[int, int]]) -> bytes:
    """The bytes with some of them replaced."""
    buffer = bytearray(data)
    for position, value in edits:
        buffer[position % len(buffer)] = value
    return bytes(buffer)


EDITS = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=8)


@few
@given(st.one_of(JSON.map(json.dumps), st.text(max_size=80)), EDITS)
def test_what_the_store_holds_is_read_or_refused(text: str, edits: list[tuple[int, int]]) -> None:
    entry = acls.AclEntry("User:a", "Allow", "Read", "*")
    good = acls.encode_acls([entry])
    for data in (text.encode(errors="replace"), changed(good, edits)):
        with suppress(InvalidPayload):
            for each in acls.decode_acls(data, "/p"):
                _entry(each)
        for pattern in (acls.LITERAL, acls.PREFIXED):
            with suppress(InvalidPayload):
                acls.decode_acl_change(pattern, data, "/p")
        with suppress(InvalidPayload):
            decode_token(data, "/p")
        with suppress(ValueError):
            ScramCredential.parse(data.decode(errors="replace"))


@few
@given(JSON, JSON, st.binary(max_size=40))
def test_tokens_and_key_sets_are_read_or_refused(
    header: object, claims: object, signature: bytes
) -> None:
    tokens = SignedTokens(lambda: 0, lambda kid: None)
    with suppress(ValueError):
        tokens.keys = parse_jwks(json.dumps({"keys": [header, {"kid": "k", "kty": claims}]}))
    if isinstance(header, dict):
        header = {**header, "kid": "k"}
    parts = [json.dumps(header).encode(), json.dumps(claims).encode(), signature]
    token = ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)
    for each in (token, token[:-1], token.replace(".", "", 1)):
        with pytest.raises(InvalidToken):
            tokens.validate(each)


@few
@given(EDITS, st.binary(max_size=200))
def test_stores_are_opened_or_refused(edits: list[tuple[int, int]], noise: bytes) -> None:
    pem = (BROKER.chain_pem + BROKER.key_pem).encode()
    for data in (changed(pem, edits), changed(BROKER_PKCS12, edits), noise, pem[: len(noise)]):
        for is_pem in (True, False):
            with suppress(InvalidStore):
                material = key_store(data, is_pem, "pw", None, "f")
                server_context(TlsSettings(material, AUTHORITY.pem))
            with suppress(InvalidStore, ssl.SSLError, ValueError):
                trust_store(data, is_pem, "pw", "f")
    with suppress(InvalidCertificate):
        subject_text(changed(BROKER.der, edits))


BROKER_PKCS12 = BROKER.pkcs12("pw")


@few
@given(st.text(max_size=60), st.text(alphabet="^(a*)+$/\\,LRULE:DEFAT.?|[]{}1", max_size=40))
def test_texts_of_settings_are_read_or_refused(text: str, rules: str) -> None:
    with suppress(InvalidJaas):
        parse_jaas(f"a.Module required {text};")
    with suppress(InvalidSecurity, ValueError):
        java_settings({"sasl.jaas.config": text, "security.protocol": text}, lambda path: b"")
    with suppress(UnreadablePassword):
        PasswordEncoder("s").decode(text)
    with suppress(InvalidMappingRules):
        mapper = PrincipalMapper(rules)
        with suppress(NoMatchingRule):
            mapper.user("CN=a")


@few
@given(st.binary(max_size=80), st.binary(max_size=80))
def test_a_hostile_server_does_not_break_a_scram_client(first: bytes, final: bytes) -> None:
    client = ScramClient(MECHANISMS["SCRAM-SHA-256"], "u", nonce="n")
    client.first()
    with suppress(SaslError):
        client.challenge(first)
    client = ScramClient(MECHANISMS["SCRAM-SHA-256"], "u", nonce="n")
    client.first()
    client.challenge(b"r=nserver,s=c2FsdA==,i=4096")
    client.prove(b"x" * 32)
    with pytest.raises(SaslError):
        client.verify(final)


class Sink(FrameProtocol):
    """What stands behind the TLS layer; no handshake here gets that far."""

    def frame_received(self, frame: bytearray) -> None:
        raise AssertionError("a frame came out of noise")

    def lost(self, error: Exception | None) -> None:
        pass


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


async def test_no_bytes_break_a_handshake_or_outlive_it() -> None:
    """Noise, and hellos with some bytes changed, each on a connection of its own."""
    import random

    rng = random.Random(7)
    hello = client_hello()
    cases = [rng.randbytes(rng.randrange(1, 400)) for _ in range(30)]
    for _ in range(60):
        edits = [(rng.randrange(len(hello)), rng.randrange(256)) for _ in range(rng.randint(1, 6))]
        cases.append(changed(hello, edits) + rng.randbytes(rng.randrange(50)))
    cases += [hello[:size] for size in range(1, len(hello), 40)]
    # A record that promises more than comes, over and over.
    cases.append((b"\x16\x03\x01\x40\x00" + bytes(16384)) * (HANDSHAKE_BYTES_MAX // 16389 + 2))
    context = server_context(TlsSettings(material(BROKER), AUTHORITY.pem))
    scratch = memoryview(bytearray(256 * 1024))
    layers: list[TlsLayer] = []

    def accept() -> TlsLayer:
        sink = Sink(1024, memoryview(bytearray(SCRATCH_BYTES)))
        layers.append(TlsLayer(sink, context, server_side=True, scratch=scratch))
        return layers[-1]

    server = await asyncio.get_running_loop().create_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    for case in cases:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(case)
        writer.write_eof()
        with suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), 30)
        writer.close()
    server.close()
    assert len(layers) == len(cases)
    assert not any(layer._is_connected for layer in layers)


def material(identity: Identity) -> KeyMaterial:
    return key_store((identity.chain_pem + identity.key_pem).encode(), True, None, None, "f")


DEEP = b"[" * 100_000


@pytest.mark.parametrize("data", [DEEP, b'{"version":1,"acls":' + DEEP, b'{"keys":' + DEEP])
def test_json_that_is_nested_too_deeply_is_refused_like_any_other(data: bytes) -> None:
    """An error of the interpreter would end the task that follows the store, or the key set."""
    with pytest.raises(InvalidPayload):
        acls.decode_acls(data, "/p")
    for pattern in (acls.LITERAL, acls.PREFIXED):
        with pytest.raises(InvalidPayload):
            acls.decode_acl_change(pattern, data, "/p")
    with pytest.raises(InvalidPayload):
        decode_token(data, "/p")
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_jwks(data)


HALF_MEGABYTE = 500_000


@pytest.mark.parametrize(
    "message",
    [
        b"n,,n=u,r=n" + b",a=b" * (HALF_MEGABYTE // 4) + b",",
        b"n,,n=" + b"=" * HALF_MEGABYTE + b",r=n",
        b"n,," + b"," * HALF_MEGABYTE,
        b"n,,n=u,r=" + b"n" * HALF_MEGABYTE + b"\0",
    ],
)
def test_a_scram_message_as_large_as_a_frame_is_read_in_one_pass(message: bytes) -> None:
    """A pattern that went back and forth over it would take minutes, and the test its time-out."""
    login = ScramServer(
        MECHANISMS["SCRAM-SHA-256"], lambda name, token: None, nonce="n", secret=bytes(32)
    )
    with pytest.raises(SaslError):
        login.respond(message)


@pytest.mark.parametrize("unit", ["-----BEGIN A-----", "-----BEGIN ", "-", "-----BEGIN A-----x-"])
def test_pem_text_of_a_megabyte_is_read_in_one_pass(unit: str) -> None:
    with pytest.raises(InvalidStore):
        trust_store((unit * (1_000_000 // len(unit))).encode(), True, None, "f")
