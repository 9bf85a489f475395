"""Contexts from Kafka's settings, and the TLS layer over real sockets."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.security.certificates import Authority, Identity, common_name

from odradek.security.key_material import InvalidStore, KeyMaterial
from odradek.security.tls import (
    ClientAuth,
    TlsSettings,
    _shake_hands,
    client_context,
    handshake_succeeds,
    openssl_cipher,
    server_context,
)
from odradek.wire.frames import FrameProtocol
from odradek.wire.tls import HANDSHAKE_BYTES_MAX, HandshakeQueue, TlsLayer


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Identity:
    return authority.issue(common_name("broker"))


def read(settings: dict[str, str]) -> TlsSettings:
    return TlsSettings.read(settings.get, lambda path: Path(path).read_bytes())


def pem_settings(identity: Identity, authority: Authority, **more: str) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": identity.key_pem,
        "ssl.keystore.certificate.chain": identity.chain_pem,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.pem,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def trusting(authority: Authority, **more: str) -> ssl.SSLContext:
    return client_context(
        read(
            {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": authority.pem,
                **{name.replace("_", "."): value for name, value in more.items()},
            }
        )
    )


# Contexts


def test_pem_on_one_line_in_a_file_and_pkcs12_called_jks_all_serve(
    authority: Authority, broker: Identity, tmp_path: Path
) -> None:
    one_line = pem_settings(broker, authority)
    one_line["ssl.keystore.key"] = " ".join(broker.key_pem.split("\n"))
    one_line["ssl.keystore.certificate.chain"] = " ".join(broker.chain_pem.split("\n"))
    pem_file = tmp_path / "broker.pem"
    pem_file.write_text(broker.chain_pem + broker.key_pem)
    in_file = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(pem_file)}
    jks_file = tmp_path / "broker.jks"
    jks_file.write_bytes(broker.pkcs12("secret"))
    called_jks = {"ssl.keystore.location": str(jks_file), "ssl.keystore.password": "secret"}
    for settings in (one_line, in_file, called_jks):
        context = server_context(read(settings))
        assert handshake_succeeds(context, trusting(authority), "localhost") is None


def test_a_real_jks_file_is_refused_with_the_command_that_converts_it(tmp_path: Path) -> None:
    path = tmp_path / "old.jks"
    path.write_bytes(bytes.fromhex("feedfeed00000002"))
    with pytest.raises(InvalidStore, match=r"keytool -importkeystore .*old\.jks"):
        read({"ssl.keystore.location": str(path), "ssl.keystore.password": "x"})


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"ssl.keystore.key": "k"}, "go together"),
        ({"ssl.keystore.key": "k", "ssl.keystore.certificate.chain": "c"}, "type=PEM"),
        ({"ssl.keystore.password": "p"}, "without ssl.keystore.location"),
        ({"ssl.truststore.password": "p"}, "without ssl.truststore.location"),
        ({"ssl.keystore.location": "/x"}, "needs ssl.keystore.password"),
        (
            {
                "ssl.keystore.location": "/x",
                "ssl.keystore.password": "p",
                "ssl.keystore.type": "PEM",
            },
            "no use with PEM",
        ),
        ({"ssl.truststore.location": "/nowhere/x"}, "cannot read /nowhere/x"),
        ({"ssl.truststore.certificates": "x"}, "type=PEM"),
        ({"ssl.truststore.certificates": "x", "ssl.truststore.type": "PEM"}, "no certificate"),
        ({"ssl.keystore.type": "BKS", "ssl.keystore.location": "/x"}, "BKS"),
    ],
)
def test_wrong_combinations_are_refused_by_name(settings: dict[str, str], complaint: str) -> None:
    with pytest.raises(InvalidStore, match=complaint):
        read(settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ssl.client.auth", "Required"),
        ("ssl.enabled.protocols", "TLSv1.1"),
        ("ssl.endpoint.identification.algorithm", "ldaps"),
    ],
)
def test_a_value_that_is_not_known_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=name):
        read({name: value})


def test_a_listener_without_a_key_is_refused() -> None:
    with pytest.raises(InvalidStore, match="keystore"):
        server_context(read({}))


def test_client_authentication(authority: Authority, broker: Identity) -> None:
    stranger = Authority("another")
    clients = {
        "none": trusting(authority),
        "trusted": client_context(read(pem_settings(broker, authority))),
        "untrusted": client_context(
            read(pem_settings(stranger.issue(common_name("x")), authority))
        ),
    }
    outcome = {
        (auth, name): handshake_succeeds(
            server_context(read(pem_settings(broker, authority, ssl_client_auth=auth))),
            client,
            "localhost",
        )
        is None
        for auth in ("none", "requested", "required")
        for name, client in clients.items()
    }
    assert outcome == {
        ("none", "none"): True,
        ("none", "trusted"): True,
        ("none", "untrusted"): True,
        ("requested", "none"): True,
        ("requested", "trusted"): True,
        ("requested", "untrusted"): False,
        ("required", "none"): False,
        ("required", "trusted"): True,
        ("required", "untrusted"): False,
    }


def test_host_names_are_verified_unless_switched_off(
    authority: Authority, broker: Identity
) -> None:
    server = server_context(read(pem_settings(broker, authority)))
    assert handshake_succeeds(server, trusting(authority), "elsewhere") is not None
    lenient = trusting(authority, ssl_endpoint_identification_algorithm="")
    assert handshake_succeeds(server, lenient, "elsewhere") is None


def test_cipher_suites_have_their_iana_names(authority: Authority, broker: Identity) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    assert openssl_cipher(suite) == "ECDHE-ECDSA-AES128-GCM-SHA256"
    assert openssl_cipher("TLS_RSA_WITH_AES_256_CBC_SHA") == "AES256-SHA"
    server = server_context(read(pem_settings(broker, authority, ssl_cipher_suites=suite)))
    assert server.maximum_version == ssl.TLSVersion.TLSv1_2
    assert handshake_succeeds(server, trusting(authority), "localhost") is None
    with pytest.raises(ValueError, match=r"ssl\.cipher\.suites"):
        server_context(read(pem_settings(broker, authority, ssl_cipher_suites="AES128-SHA")))


def test_settings_hide_their_secrets(authority: Authority, broker: Identity) -> None:
    settings = read(pem_settings(broker, authority, ssl_key_password="hunter2"))
    shown = repr(settings) + repr(settings.key)
    assert "hunter2" not in shown
    assert "PRIVATE" not in shown


# The layer


class Echo(FrameProtocol):
    """Sends each frame back; pauses after each frame if it is to be slow."""

    def __init__(self, scratch: memoryview | None = None, pauses: bool = False) -> None:
        super().__init__(200 * 1024 * 1024, scratch)
        self.pauses = pauses
        self.has_answered = asyncio.Event()

    def frame_received(self, frame: bytearray) -> None:
        self.has_answered.set()
        self.send([len(frame).to_bytes(4, "big"), frame])
        if self.pauses:
            self.pause_reading()
            self._loop.call_soon(self.resume_reading)


@asynccontextmanager
async def serving(
    context: ssl.SSLContext, make: Callable[[], FrameProtocol] = Echo
) -> AsyncIterator[tuple[int, list[FrameProtocol], list[Exception]]]:
    made: list[FrameProtocol] = []
    failures: list[Exception] = []
    handshakes = HandshakeQueue()
    scratch = memoryview(bytearray(256 * 1024))

    def layer() -> TlsLayer:
        made.append(make())
        return TlsLayer(
            made[-1],
            context,
            server_side=True,
            scratch=scratch,
            handshakes=handshakes,
            on_failure=failures.append,
        )

    server = await asyncio.get_running_loop().create_server(layer, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], made, failures
    finally:
        server.close()
        for protocol in made:
            protocol.close()
        await server.wait_closed()


async def exchange(port: int, client: ssl.SSLContext, frames: list[bytes]) -> list[bytes]:
    """asyncio's own TLS on the other side: an independent peer."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=client, server_hostname="localhost"
    )
    answers = []
    try:
        for frame in frames:
            writer.write(len(frame).to_bytes(4, "big") + frame)
        for _ in frames:
            size = int.from_bytes(await reader.readexactly(4), "big")
            answers.append(await reader.readexactly(size))
    finally:
        writer.close()
    return answers


@pytest.fixture
def context(authority: Authority, broker: Identity) -> ssl.SSLContext:
    return server_context(read(pem_settings(broker, authority)))


@pytest.mark.parametrize("pauses", [False, True])
async def test_frames_of_every_size_come_back(
    authority: Authority, context: ssl.SSLContext, pauses: bool
) -> None:
    frames = [b"", b"x", b"y" * 16_384, b"z" * 300_000, b"w" * 5_000_000, b"last"]
    async with serving(context, lambda: Echo(pauses=pauses)) as (port, _, failures):
        assert await exchange(port, trusting(authority), frames) == frames
        many = [bytes([n % 256]) * 700 for n in range(3_000)]
        assert await exchange(port, trusting(authority), many) == many
    assert not failures


async def test_our_layer_on_both_sides(authority: Authority, context: ssl.SSLContext) -> None:
    class Client(FrameProtocol):
        def __init__(self) -> None:
            super().__init__(10_000_000)
            self.answer: asyncio.Future[bytes] = self._loop.create_future()

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self.send([(1_000_000).to_bytes(4, "big"), b"a" * 1_000_000])

        def frame_received(self, frame: bytearray) -> None:
            self.answer.set_result(bytes(frame))

    async with serving(context) as (port, _, _):
        client = Client()
        layer = TlsLayer(client, trusting(authority), server_side=False, host="localhost")
        await asyncio.get_running_loop().create_connection(lambda: layer, "127.0.0.1", port)
        assert await client.answer == b"a" * 1_000_000
        client.close()


async def test_a_client_that_does_not_read_bounds_what_is_encrypted(
    authority: Authority, context: ssl.SSLContext
) -> None:
    async with serving(context) as (port, made, _):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=trusting(authority), server_hostname="localhost", limit=1024
        )
        frame = b"a" * 40_000_000
        writer.write(len(frame).to_bytes(4, "big") + frame)
        echo = made[0]
        assert isinstance(echo, Echo)
        await echo.has_answered.wait()
        transport = echo.transport
        assert transport is not None
        assert transport.get_write_buffer_size() < 2_000_000
        assert await reader.readexactly(40_000_004)
        writer.close()


class Ending(FrameProtocol):
    """Ends with its first frame, in one of the ways a connection can."""

    def __init__(self, end: Callable[[FrameProtocol], None]) -> None:
        super().__init__(1 << 20, memoryview(bytearray(1024)))
        self._end = end
        self.frames: list[bytes] = []
        self.ended: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.pause_reading()
        self._loop.call_soon(self.resume_reading)  # so that it reads outside of a socket's event

    def frame_received(self, frame: bytearray) -> None:
        self.frames.append(bytes(frame))
        self._end(self)

    def lost(self, error: Exception | None) -> None:
        self.ended.set_result(None)


def fail(protocol: FrameProtocol) -> None:
    raise RuntimeError("a frame that nobody foresaw")


@pytest.mark.parametrize("end", [FrameProtocol.abort, FrameProtocol.close, fail])
async def test_nothing_is_read_after_the_frame_that_ended_the_connection(
    authority: Authority,
    context: ssl.SSLContext,
    end: Callable[[FrameProtocol], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What was decrypted already begins in the middle of a frame."""
    asyncio.get_running_loop().set_exception_handler(lambda loop, found: None)
    made: list[Ending] = []

    def make() -> FrameProtocol:
        made.append(Ending(end))
        return made[-1]

    async with serving(context, make) as (port, _, _):
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=trusting(authority), server_hostname="localhost"
        )
        first, second = b"first", b"RACK" * 2000
        for frame in (first, second):
            writer.write(len(frame).to_bytes(4, "big") + frame)
        await made[0].ended
        writer.close()
        assert made[0].frames == [first]
        assert str(int.from_bytes(b"RACK", "big")) not in caplog.text


@pytest.mark.parametrize(
    "sent",
    [
        b"\0\0\0\x10" + b"\0" * 16,
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\xff\xff" + b"a" * 70_000,
    ],
)
async def test_what_is_no_handshake_closes_the_connection_and_disturbs_no_other(
    authority: Authority, context: ssl.SSLContext, sent: bytes
) -> None:
    async with serving(context) as (port, _, failures):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        try:
            await reader.read()
        except ConnectionError:
            pass
        writer.close()
        assert await exchange(port, trusting(authority), [b"hello"]) == [b"hello"]
        assert len(failures) == 1


async def test_an_endless_handshake_is_ended(context: ssl.SSLContext) -> None:
    async with serving(context) as (port, _, failures):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        record = b"\x16\x03\x01\x40\x00" + b"\x01\x00\xff\xff" + b"\0" * 16_380
        try:
            for _ in range(2 * HANDSHAKE_BYTES_MAX // len(record)):
                writer.write(record)
                await writer.drain()
            await reader.read()
        except ConnectionError:
            pass
        writer.close()
        assert len(failures) == 1


async def test_each_step_of_a_handshake_has_a_turn_of_the_loop() -> None:
    steps: list[int] = []
    queue = HandshakeQueue()
    loop = asyncio.get_running_loop()
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        if turns < 20:
            loop.call_soon(turn)

    loop.call_soon(turn)
    done = asyncio.Event()
    for _ in range(10):
        queue.submit(lambda: steps.append(turns))
    queue.submit(done.set)
    await done.wait()
    assert steps == sorted(set(steps)), "each step has a turn of its own"


def test_sessions_of_tls_1_3_are_not_resumed(authority: Authority, broker: Identity) -> None:
    """A client whose certificate has expired would come in again without showing it."""
    material = KeyMaterial(broker.chain_pem, broker.key_pem)
    server = server_context(TlsSettings(material, authority.pem, ClientAuth.REQUESTED))
    client = client_context(TlsSettings(material, authority.pem))
    side = _shake_hands(server, client, "localhost")
    assert side.version() == "TLSv1.3"
    with pytest.raises(ssl.SSLWantReadError):
        side.read(1)  # tickets would come now
    assert side.session is None or not side.session.has_ticket
