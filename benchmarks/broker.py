"""One broker process under load: in, out, small requests, start-up and memory.

librdkafka is the client. Beside what it gets out of the broker stands what the same client gets out
of its own mock cluster, which keeps nothing: no broker can be faster than that with this client.
Broker figures are CPU time of the broker process, which a busy machine disturbs less than the
clock.
"""

import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.wire.header import encode_request
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.wire.records import Record, encode_batch

LARGE_RECORDS = 500_000
LARGE_BYTES = 1024
SMALL_RECORDS = 200_000
SMALL_BYTES = 100
SMALL_REQUESTS = 30_000
PIPELINED = 100
STARTS = 5
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Server:
    """A broker process, and what it has used."""

    def __init__(
        self,
        settings: Sequence[str] = (),
        listeners: Sequence[str] = (),
        prepare: Callable[[str], None] = lambda data: None,
    ) -> None:
        """With settings, listeners besides plain text, and something to do before the start."""
        self.data = tempfile.mkdtemp(prefix="odradek-bench-")
        prepare(self.data)
        self.log = Path(self.data, "broker.log")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        begun = time.perf_counter()
        with self.log.open("w") as output:
            options = ["--id", "1", "--data", self.data]
            if listeners:
                every = ",".join([f"PLAINTEXT://127.0.0.1:{self.port}", *listeners])
                options += ["--set", f"listeners={every}"]
            else:
                options += ["--port", str(self.port)]
            for each in settings:
                options += ["--set", each]
            self.process = subprocess.Popen(
                [sys.executable, "-m", "odradek", "broker", *options], stderr=output
            )
        self._wait_until_it_listens()
        self.start_s = time.perf_counter() - begun
        self.bootstrap = {"bootstrap.servers": f"127.0.0.1:{self.port}", "log_level": "2"}

    def _wait_until_it_listens(self) -> None:
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except ConnectionRefusedError:
                if self.process.poll() is not None:
                    sys.exit(self.log.read_text())
                time.sleep(0.001)

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().split()
        return (int(fields[13]) + int(fields[14])) / TICKS_PER_S

    def memory_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) / 1024

    def create_topic(self, name: str) -> None:
        admin = AdminClient({**self.bootstrap})
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        shutil.rmtree(self.data)


def produce(config: dict[str, str], topic: str, count: int, size: int, linger_ms: int) -> float:
    """Seconds for `count` records of `size` bytes, all acknowledged by all replicas."""
    producer = Producer(
        {
            **config,
            "acks": "all",
            "linger.ms": linger_ms,
            "batch.size": 1_000_000,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )
    value = os.urandom(size)
    begun = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=0)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
    return time.perf_counter() - begun


def consume(config: dict[str, str], topic: str, count: int) -> float:
    consumer = Consumer(
        {
            **config,
            "group.id": "bench",
            "enable.auto.commit": False,
            "max.partition.fetch.bytes": 8_000_000,
            "queued.min.messages": 1_000_000,
            "queued.max.messages.kbytes": 1_000_000,
            "fetch.queue.backoff.ms": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    begun = time.perf_counter()
    left = count
    while left > 0:
        left -= len(consumer.consume(10_000, 0.5))
    spent = time.perf_counter() - begun
    consumer.close()
    return spent


def measure_streams(server: Server) -> None:
    mock = {"bootstrap.servers": "mock", "test.mock.num.brokers": "1", "log_level": "2"}
    for name, count, size, linger_ms in (
        ("1 KiB records, 1 MB batches", LARGE_RECORDS, LARGE_BYTES, 20),
        ("100 B records, linger 0", SMALL_RECORDS, SMALL_BYTES, 0),
    ):
        topic = f"topic-{size}"
        server.create_topic(topic)
        megabytes = count * size / 1e6
        cpu = server.cpu_s()
        seconds = produce(server.bootstrap, topic, count, size, linger_ms)
        used = (server.cpu_s() - cpu) / megabytes * 1000
        ceiling = produce(mock, topic, count, size, linger_ms)
        print(
            f"produce {name:28s} {megabytes / seconds:6.0f} MB/s {count / seconds:9.0f} records/s"
            f"  broker {used:5.2f} ms CPU/MB  mock cluster {megabytes / ceiling:6.0f} MB/s"
        )
        cpu = server.cpu_s()
        seconds = consume(server.bootstrap, topic, count)
        used = (server.cpu_s() - cpu) / megabytes * 1000
        print(
            f"consume {name:28s} {megabytes / seconds:6.0f} MB/s {count / seconds:9.0f} records/s"
            f"  broker {used:5.2f} ms CPU/MB"
        )


def measure_requests(server: Server) -> None:
    """Produce requests of one small record: one at a time, and a hundred in flight."""
    server.create_topic("requests")
    batch = encode_batch([Record(0, int(time.time() * 1000), None, b"x" * SMALL_BYTES, ())])
    partition = PartitionProduceData(index=0, records=batch)
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name="requests", partition_data=[partition])],
    )
    frame = b"".join(encode_request(request, 9, 1, "bench"))
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = connection.makefile("rb", buffering=1 << 16)

        def answer() -> None:
            (size,) = struct.unpack(">i", stream.read(4))
            stream.read(size)

        times = []
        cpu = server.cpu_s()
        for _ in range(SMALL_REQUESTS):
            begun = time.perf_counter()
            connection.sendall(frame)
            answer()
            times.append(time.perf_counter() - begun)
        used = (server.cpu_s() - cpu) / SMALL_REQUESTS * 1e6
        times.sort()
        print(
            f"produce 100 B, one at a time          {SMALL_REQUESTS / sum(times):9.0f} requests/s"
            f"  broker {used:5.1f} us CPU  p50 {times[len(times) // 2] * 1e6:.0f} us"
            f"  p99 {times[len(times) * 99 // 100] * 1e6:.0f} us"
        )
        cpu = server.cpu_s()
        begun = time.perf_counter()
        for _ in range(SMALL_REQUESTS // PIPELINED):
            connection.sendall(frame * PIPELINED)
            for _ in range(PIPELINED):
                answer()
        spent = time.perf_counter() - begun
        used = (server.cpu_s() - cpu) / SMALL_REQUESTS * 1e6
        print(
            f"produce 100 B, {PIPELINED} in flight          {SMALL_REQUESTS / spent:9.0f}"
            f" requests/s  broker {used:5.1f} us CPU"
        )


def main() -> None:
    servers = []
    for _ in range(STARTS):
        server = Server()
        servers.append((server.start_s, server.memory_mb()))
        server.stop()
    starts = sorted(seconds for seconds, _ in servers)
    print(
        f"listening {starts[len(starts) // 2] * 1000:.0f} ms after exec (median of {STARTS}),"
        f" {servers[-1][1]:.0f} MB"
    )
    server = Server()
    try:
        measure_streams(server)
        measure_requests(server)
        print(f"memory after all of it: {server.memory_mb():.0f} MB")
    finally:
        server.stop()
