"""What security costs: TLS beside plain text, an authorizer beside none, logins, idle connections.

A broker process with listeners in plain text, with TLS and with SASL; librdkafka streams, our own
frames do the rest. Processor time is the broker's, which a busy machine disturbs less than the
clock; what is compared is taken in turns. ODRADEK_BENCH_SCALE divides the numbers.
"""

import asyncio
import os
import socket
import ssl
import statistics
import struct
import tempfile
import time
from pathlib import Path

from benchmarks.broker import Server, consume, produce
from odradek.broker.first_users import write_users
from odradek.client import Admin, Client, NewTopic, check
from odradek.client.acls import Acl, Acls
from odradek.security.acls import (
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from odradek.security.client import ClientSecurity
from odradek.security.development import DevelopmentSecurity
from odradek.wire.connection import Connection
from odradek.wire.header import encode_request
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.records import Record, encode_batch

SCALE = int(os.environ.get("ODRADEK_BENCH_SCALE", "1"))
RECORDS, RECORD_BYTES = 200_000 // SCALE, 1024
REQUESTS, PIPELINED = 20_000 // SCALE, 100
ROUNDS = 5
LOGINS = 500 // SCALE
CONNECTIONS = 1000
ACLS, ACLS_AT_ONCE = 10_000 // SCALE, 500
AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class SecureServer(Server):
    """Listeners of three kinds; `authorized` has ACLs to look at."""

    def __init__(self, files: DevelopmentSecurity, *, authorized: bool) -> None:
        self.ports = {name: free_port() for name in ("SSL", "SASL_PLAINTEXT", "SASL_SSL")}
        own = {
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,"
            + ",".join(f"{name}:{name}" for name in self.ports),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(files.directory / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(files.authority_file),
            "ssl.client.auth": "requested",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/",
            "security.inter.broker.protocol": "SSL",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        }
        if authorized:
            # Plaintext clients are no super users: their permissions are looked up.
            own |= {"authorizer.class.name": AUTHORIZER, "super.users": "User:broker;User:bench"}
        super().__init__(
            [f"{name}={value}" for name, value in own.items()],
            [f"{name}://127.0.0.1:{port}" for name, port in self.ports.items()],
            _add_user,
        )

    def settings(self, listener: str, files: DevelopmentSecurity) -> dict[str, str]:
        if listener == "PLAINTEXT":
            return self.bootstrap
        return {
            "bootstrap.servers": f"127.0.0.1:{self.ports[listener]}",
            "security.protocol": listener,
            "ssl.ca.location": str(files.authority_file),
            "log_level": "2",
        }


def _add_user(data: str) -> None:
    store = f"sqlite:{data}/metadata.db"
    asyncio.run(write_users(store, {"bench": "bench"}, os.urandom, ["SCRAM-SHA-256"]))


def streams(server: SecureServer, files: DevelopmentSecurity) -> None:
    megabytes = RECORDS * RECORD_BYTES / 1e6
    used: dict[tuple[str, str], list[float]] = {}
    speed: dict[tuple[str, str], list[float]] = {}
    for number in range(3):
        for listener in ("PLAINTEXT", "SSL"):
            topic = f"{listener}-{number}"
            server.create_topic(topic)
            config = server.settings(listener, files)
            for name in ("produce", "consume"):
                cpu = server.cpu_s()
                if name == "produce":
                    took = produce(config, topic, RECORDS, RECORD_BYTES, 20)
                else:
                    took = consume(config, topic, RECORDS)
                key = name, listener
                used.setdefault(key, []).append((server.cpu_s() - cpu) / megabytes * 1000)
                speed.setdefault(key, []).append(megabytes / took)
    for name in ("produce", "consume"):
        for listener in ("PLAINTEXT", "SSL"):
            key = name, listener
            print(
                f"  {name} 1 KiB over {listener:<10} {statistics.median(speed[key]):7.0f} MB/s"
                f"  broker {statistics.median(used[key]):5.2f} ms CPU/MB"
            )


def request_frame(topic: str) -> bytes:
    batch = encode_batch([Record(0, int(time.time() * 1000), None, b"x" * 100, ())])
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=0, records=batch)]
    )
    request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])
    return b"".join(encode_request(request, 9, 1, "bench"))


def request_cost_us(server: Server, frame: bytes) -> float:
    """Processor time of the broker for one small produce request, a hundred in flight."""
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        stream = connection.makefile("rb", buffering=1 << 16)
        cpu = server.cpu_s()
        for _ in range(REQUESTS // PIPELINED):
            connection.sendall(frame * PIPELINED)
            for _ in range(PIPELINED):
                (size,) = struct.unpack(">i", stream.read(4))
                stream.read(size)
        return (server.cpu_s() - cpu) / REQUESTS * 1e6


async def add_acls(server: SecureServer, files: DevelopmentSecurity) -> None:
    """Ten thousand of others, and one that lets these clients write."""

    def acl(name: str, principal: str, pattern: PatternType) -> Acl:
        entry = AclEntry(principal, AclPermission.ALLOW, AclOperation.WRITE, "*")
        return Acl(ResourcePattern(ResourceType.TOPIC, name, pattern), entry)

    kinds = (PatternType.LITERAL, PatternType.PREFIXED)
    wanted = [acl("requests", "User:ANONYMOUS", PatternType.LITERAL)]
    wanted += [acl(f"t-{n}", f"User:u{n}", kinds[n % 2]) for n in range(ACLS)]
    security = {
        **server.settings("SASL_SSL", files),
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "bench",
        "sasl.password": "bench",
    }
    address = security.pop("bootstrap.servers")
    async with Client(address, security=security, timeout_s=120) as client:
        check(await Admin(client).create_topics([NewTopic("requests", 1, 1)]))
        for at in range(0, len(wanted), ACLS_AT_ONCE):
            await Acls(client).add(wanted[at : at + ACLS_AT_ONCE])


def permissions(plain: SecureServer, guarded: SecureServer, files: DevelopmentSecurity) -> None:
    begun = time.perf_counter()
    asyncio.run(add_acls(guarded, files))
    print(f"  {ACLS:,} ACLs added in {time.perf_counter() - begun:.1f} s")
    frame = request_frame("requests")
    costs: dict[str, list[float]] = {"none": [], "10,000 ACLs": []}
    for _ in range(ROUNDS):
        costs["none"].append(request_cost_us(plain, frame))
        costs["10,000 ACLs"].append(request_cost_us(guarded, frame))
    for name, found in costs.items():
        print(f"  small produce, authorizer: {name:<12} {min(found):6.1f} us CPU a request")
    ratio = min(costs["none"]) / min(costs["10,000 ACLs"])
    met = "" if ratio >= 0.95 else "  NOT MET"
    print(f"  requests/s with / without: {ratio:.3f}, target >= 0.95{met}")


async def logins(server: SecureServer, files: DevelopmentSecurity) -> None:
    for listener in ("SASL_PLAINTEXT", "SASL_SSL"):
        settings = server.settings(listener, files)
        settings |= {
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "bench",
            "sasl.password": "bench",
        }
        security = ClientSecurity.read(
            settings, read_file=lambda path: Path(path).read_bytes(), now_ms=lambda: 0
        )
        cpu, begun = server.cpu_s(), time.perf_counter()
        for _ in range(LOGINS):
            connection = await Connection.open(
                "127.0.0.1", server.ports[listener], timeout=30, security=security
            )
            connection.close()
        took, used = time.perf_counter() - begun, server.cpu_s() - cpu
        print(
            f"  SCRAM-SHA-256 over {listener:<15} {LOGINS / took:6.0f} logins/s, one after the"
            f" other, both sides on this machine; broker {used / LOGINS * 1000:.2f} ms CPU each"
        )


async def idle(server: SecureServer, files: DevelopmentSecurity) -> None:
    context = ssl.create_default_context(cafile=str(files.authority_file))
    before = server.memory_mb()
    held = [
        await asyncio.open_connection(
            "127.0.0.1", server.ports["SSL"], ssl=context, server_hostname="localhost"
        )
        for _ in range(CONNECTIONS)
    ]
    grown = server.memory_mb() - before
    met = "" if grown < 40 else "  NOT MET"
    print(f"  {CONNECTIONS:,} idle TLS connections: {grown:.1f} MB, target < 40{met}")
    for _, writer in held:
        writer.transport.abort()


def main() -> None:
    print("security: TLS, permissions, logins, idle connections")
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as home:
        files = DevelopmentSecurity(Path(home, "security"))
        files.create_in(files.directory, ["localhost", "127.0.0.1"])
        servers = [SecureServer(files, authorized=False)]
        plain = servers[0]
        try:
            asyncio.run(logins(plain, files))
            asyncio.run(idle(plain, files))
            streams(plain, files)
            plain.create_topic("requests")
            servers.append(SecureServer(files, authorized=True))
            permissions(plain, servers[1], files)
        finally:
            for server in servers:
                server.stop()
