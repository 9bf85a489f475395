"""Limits on connections: who is refused, who waits, who has to go, and how fast one may come."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.broker.clusters import Cluster, cluster, until
from tests.broker.test_quotas import alter, describe
from tests.security.certificates import Authority, common_name

from odradek.broker.admission import AdmissionControl, ConnectionLimits, Rejection, Wait
from odradek.broker.arrivals import Arrival, Arrivals
from odradek.security.jaas import Module, jaas_text
from odradek.wire.connection import Connection
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.metadata import MetadataRequest

JAAS = jaas_text(Module.PLAIN, username="broker", password="y", user_broker="y", user_alice="x")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def admission(clock: Clock) -> AdmissionControl:
    return AdmissionControl(clock, frozenset({"INTERNAL"}))


def test_the_count_of_an_address_refuses_and_that_of_the_broker_makes_wait(
    admission: AdmissionControl, clock: Clock
) -> None:
    admission.limits = ConnectionLimits(
        connections=2, per_address=2, overrides={"b": 1}, by_listener={"INTERNAL": 3}
    )
    assert admission.arrive("a", "CLIENTS") == Wait(clock.now)
    assert admission.arrive("a", "CLIENTS") == Wait(clock.now)
    assert isinstance(admission.arrive("a", "CLIENTS"), Rejection), "the third of one address"
    assert admission.arrive("b", "CLIENTS") == Wait(clock.now)
    assert isinstance(admission.arrive("b", "INTERNAL"), Rejection), "an override binds everywhere"
    for listener, has_room in (("CLIENTS", True), ("CLIENTS", True), ("CLIENTS", False)):
        assert admission.has_room(listener) is has_room
        if has_room:
            admission.enter(listener)
    for has_room in (True, True, True, False):
        assert admission.has_room("INTERNAL") is has_room, "bound by its own limit only"
        if has_room:
            admission.enter("INTERNAL")
    assert admission.is_overfull
    admission.depart("a")
    assert admission.arrive("a", "CLIENTS") == Wait(clock.now)


def test_a_rate_delays_by_a_second_at_most_and_not_the_brokers(
    admission: AdmissionControl, clock: Clock
) -> None:
    admission.limits = ConnectionLimits(rate=1, rate_by_listener={"INTERNAL": 5})
    waits = [admission.arrive("a", "CLIENTS") for _ in range(40)]
    assert waits[0] == Wait(clock.now)
    assert waits[-1] == Wait(clock.now + 1)
    assert admission.arrive("a", "INTERNAL") == Wait(clock.now)
    waits = [admission.arrive("a", "INTERNAL") for _ in range(100)]
    assert waits[-1] == Wait(clock.now + 1), "their own limit binds them"
    clock.now += 60
    assert admission.arrive("a", "CLIENTS") == Wait(clock.now)


def test_an_address_over_its_rate_is_refused_for_a_second_at_most(
    admission: AdmissionControl, clock: Clock
) -> None:
    admission.set_address_rate("<default>", 2)
    admission.set_address_rate("::1", 100)
    admission.limits = ConnectionLimits(rate=1000)
    answers = [admission.arrive("10.0.0.1", "CLIENTS") for _ in range(60)]
    refused = [answer for answer in answers if isinstance(answer, Rejection)]
    assert 30 < len(refused) < 50
    assert all(0 < each.after_s <= 1 for each in refused)
    assert all(isinstance(admission.arrive("::1", "CLIENTS"), Wait) for _ in range(60))
    assert isinstance(admission.arrive("10.0.0.2", "CLIENTS"), Wait), "each address apart"
    admission.set_address_rate("<default>", None)
    assert isinstance(admission.arrive("10.0.0.1", "CLIENTS"), Wait)


@asynccontextmanager
async def two_listeners(path: Path, **more: str) -> AsyncIterator[Cluster]:
    """CLIENTS with a login, INTERNAL for brokers alone."""
    async with cluster(
        path,
        1,
        listeners="CLIENTS://127.0.0.1:0,INTERNAL://127.0.0.1:0",
        inter_broker_listener_name="INTERNAL",
        listener_security_protocol_map="CLIENTS:SASL_PLAINTEXT,INTERNAL:PLAINTEXT",
        sasl_enabled_mechanisms="PLAIN",
        **{"listener.name.clients.plain.sasl.jaas.config": JAAS, **more},
    ) as made:
        yield made


async def test_connections_without_a_login_make_room_for_others(tmp_path: Path) -> None:
    """Sixty sockets that never log in do not keep a user out, and brokers come in at once."""
    limit = {"listener.name.clients.max.connections": "5"}
    async with two_listeners(tmp_path, **limit) as made:
        broker = made.brokers[1]
        ports = {each.listener: each.port for each in broker.endpoints}
        silent = [await asyncio.open_connection("127.0.0.1", ports["CLIENTS"]) for _ in range(8)]
        await until(lambda: broker.connections.statistics()["waiting"] == 3)
        from odradek.security.client import ClientSecurity

        security = ClientSecurity.read(
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": jaas_text(Module.PLAIN, username="alice", password="x"),
            },
            read_file=lambda path: b"",
            now_ms=lambda: 0,
        )
        user = await Connection.open(
            "127.0.0.1", ports["CLIENTS"], client_id="u", timeout=30, security=security
        )
        assert (await user.request(MetadataRequest(topics=[]), 9)).brokers
        internal = await Connection.open("127.0.0.1", ports["INTERNAL"], client_id="b", timeout=30)
        assert (await internal.request(MetadataRequest(topics=[]), 9)).brokers
        assert not user.closed, "the one that logged in stays"
        for connection in (user, internal):
            connection.close()
        for _, writer in silent:
            writer.close()


async def test_handshakes_count_as_connections(tmp_path: Path) -> None:
    authority = Authority()
    server = authority.issue(common_name("broker"))
    async with cluster(
        tmp_path,
        listeners="SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        ssl_keystore_type="PEM",
        ssl_keystore_key=server.key_pem,
        ssl_keystore_certificate_chain=server.chain_pem,
        max_connections_per_ip="6",
    ) as made:
        broker = made.brokers[1]
        port = broker.endpoints[0].port
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        await until(lambda: broker.connections.admission.by_listener["SSL"] == 5)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b"", "the controller's own connection is the sixth"
        writer.close()
        silent[0][1].close()
        await until(lambda: broker.connections.admission.by_listener["SSL"] == 4)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=authority.pem)
        context.check_hostname = False
        _, encrypted = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        for each in (*(writer for _, writer in silent[1:]), encrypted):
            each.close()
        await until(lambda: not broker.connections.admission.by_listener["SSL"])


async def test_the_rate_of_an_address_is_set_described_and_enforced(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        broker = made.brokers[1]
        admin = await made.connect(1)
        assert await alter(admin, {"ip": "127.0.0.1"}, connection_creation_rate=1.0) == 0
        assert await alter(admin, {"ip": None}, connection_creation_rate=50.0) == 0
        entities: list[dict[str, str | None]]
        entities = [{"ip": "127.0.0.1", "user": "u"}, {"ip": "no address"}]
        for wrong in entities:
            answer = await alter(admin, wrong, connection_creation_rate=1.0)
            assert answer is ErrorCode.INVALID_REQUEST, wrong
        wrong_name = await alter(admin, {"ip": None}, producer_byte_rate=1.0)
        assert wrong_name is ErrorCode.INVALID_REQUEST
        assert await describe(admin, ("ip", 2, None)) == {
            (("ip", "127.0.0.1"),): {"connection_creation_rate": 1.0},
            (("ip", None),): {"connection_creation_rate": 50.0},
        }
        assert await describe(admin, ("ip", 1, None)) == {
            (("ip", None),): {"connection_creation_rate": 50.0}
        }
        assert await describe(admin) == {}, "addresses are asked for apart"
        await until(lambda: broker.connections.admission._address_rates)
        newcomers = [
            await asyncio.open_connection("127.0.0.1", broker.endpoints[0].port) for _ in range(30)
        ]
        await until(lambda: broker.connections.refused)
        reader, _ = newcomers[-1]
        assert await asyncio.wait_for(reader.read(), 30) == b""
        assert await alter(admin, {"ip": "127.0.0.1"}, connection_creation_rate=None) == 0
        for _, writer in newcomers:
            writer.close()


async def test_a_full_house_is_looked_through_once_for_all_that_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not once for each of them: whoever fills the broker would make every arrival dear."""
    admission = AdmissionControl(asyncio.get_running_loop().time, frozenset())
    admission.limits = ConnectionLimits(connections=0)
    arrivals = Arrivals(admission, waiting_max=50)
    looked: list[str] = []
    monkeypatch.setattr(arrivals, "_make_room", lambda listener, now: looked.append(listener))
    for _ in range(30):
        arrival = Arrival(arrivals, "CLIENTS", lambda arrival: pytest.fail("there is no room"))
        arrival.connection_made(MemoryTransport())
    assert arrivals.waiting == 30
    assert len(looked) == 30, "once for each arrival, and not for each that waits"
    arrivals.close()


class MemoryTransport(asyncio.Transport):
    """A socket that nothing comes from."""

    is_aborted = False

    def pause_reading(self) -> None:
        pass

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        pass

    def abort(self) -> None:
        self.is_aborted = True


@dataclass
class Visitor:
    """A connection that came in."""

    is_known: bool
    last_active: float = 0.0
    is_idle: bool = True


class House:
    """Room for three, and those who came."""

    def __init__(self) -> None:
        self._now = asyncio.get_running_loop().time
        admission = AdmissionControl(self._now, frozenset({"INTERNAL"}))
        admission.limits = ConnectionLimits(connections=3)
        self.arrivals = Arrivals(admission, waiting_max=50)
        self._came: dict[str, Arrival] = {}

    def come(
        self,
        name: str,
        listener: str = "CLIENTS",
        *,
        ago_s: float = 0.0,
        is_known: bool = False,
        silent_s: float = 0.0,
    ) -> None:
        visitor = Visitor(is_known, self._now() - silent_s)
        arrival = Arrival(self.arrivals, listener, lambda _: (asyncio.Protocol(), visitor))
        arrival.connection_made(MemoryTransport())
        arrival.made_at -= ago_s
        self._came[name] = arrival

    @property
    def inside(self) -> set[str]:
        return {
            name
            for name, arrival in self._came.items()
            if arrival.guest is not None and not self._was_closed(arrival)
        }

    @property
    def closed(self) -> set[str]:
        return {name for name, arrival in self._came.items() if self._was_closed(arrival)}

    @staticmethod
    def _was_closed(arrival: Arrival) -> bool:
        assert isinstance(arrival.transport, MemoryTransport)
        return arrival.transport.is_aborted


async def test_those_without_a_login_are_closed_first_the_longest_before_others() -> None:
    house = House()
    house.come("user", ago_s=100, is_known=True, silent_s=100)
    house.come("stranger", ago_s=5)
    house.come("older stranger", ago_s=9)
    assert house.inside == {"user", "stranger", "older stranger"}
    house.come("first")
    assert house.closed == {"older stranger"}
    house.come("second")
    assert house.closed == {"older stranger", "stranger"}
    assert house.inside == {"user", "first", "second"}
    house.come("third")
    assert house.closed == {"older stranger", "stranger"}, "a login is given its time, a user stays"
    assert house.arrivals.waiting == 1
    house.arrivals.close()


async def test_a_broker_takes_the_place_of_a_stranger_before_that_of_a_silent_user() -> None:
    house = House()
    house.come("silent", is_known=True, silent_s=100)
    house.come("busy", is_known=True, silent_s=1)
    house.come("stranger")
    for broker, gone in (("one", "stranger"), ("two", "silent"), ("three", "busy")):
        before = house.closed
        house.come(broker, "INTERNAL", is_known=True)
        assert house.closed - before == {gone}
    assert house.inside == {"one", "two", "three"}
    house.arrivals.close()
