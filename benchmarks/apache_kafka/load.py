"""The client's side of the benchmark: librdkafka, driven the same way for every system."""

import os
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from tests.suites import librdkafka
from tests.suites.results import CannotRun

PARTITIONS = 12
CONSUMED = re.compile(r"consumed in \d+ms: .*\(([\d.]+) MB/s\)")
MEGABYTE = 1_000_000
BATCH = 2000
DELIVERY_TIMEOUT_S = 300


def payload(size: int, seed: int = 1) -> list[bytes]:
    """Values that compress to about a half, as text does; the same ones for everybody."""
    rng = random.Random(seed)
    half = size // 2
    return [rng.randbytes(half) + b"abcdefgh" * (half // 8 + 1) for _ in range(64)]


class Sending:
    """Counts what was acknowledged; any refusal is an error of the run."""

    def __init__(self, bootstrap_servers: str, **settings: object) -> None:
        self.acknowledged = 0
        self.refused: str | None = None
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "acks": "all",
                "linger.ms": 5,
                "queue.buffering.max.messages": 500_000,
                "queue.buffering.max.kbytes": 256_000,
                "log_level": 2,
                **settings,
            }
        )

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused = str(error)
        else:
            self.acknowledged += 1

    def send(self, topic: str, values: list[bytes], count: int) -> float:
        """Seconds from the first record to the last acknowledgement."""
        wanted = self.acknowledged + count
        start = time.perf_counter()
        sent = 0
        while sent < count:
            value = values[sent % len(values)]
            try:
                self.producer.produce(topic, value, on_delivery=self.delivered)
                sent += 1
            except BufferError:
                self.producer.poll(0.1)
            if sent % BATCH == 0:
                self.producer.poll(0)
        left = self.producer.flush(DELIVERY_TIMEOUT_S)
        took = time.perf_counter() - start
        assert self.refused is None, self.refused
        assert left == 0, f"{left} records left"
        assert self.acknowledged == wanted, f"{self.acknowledged} of {wanted}"
        return took


def produce_megabytes_per_s(
    servers: str, topic: str, megabytes: int, settings: Mapping[str, object]
) -> float:
    """Of records of 1 KiB. `settings` may name other servers."""
    values = [value[:1024] for value in payload(1024)]
    count = megabytes * MEGABYTE // 1024
    took = Sending(servers, **settings).send(topic, values, count)
    return count * 1024 / MEGABYTE / took


def small_records_per_s(servers: str, topic: str, count: int) -> float:
    values = [value[:100] for value in payload(100)]
    return count / Sending(servers, **{"linger.ms": 0}).send(topic, values, count)


def synchronous_ms(servers: str, topic: str, count: int) -> tuple[float, float]:
    """Median and 99th percentile of one record at a time, until it is acknowledged."""
    sending = Sending(servers, **{"linger.ms": 0})
    values = [value[:100] for value in payload(100)]
    sending.send(topic, values, 100)
    times: list[float] = []
    for number in range(count):
        want = sending.acknowledged + 1
        start = time.perf_counter()
        sending.producer.produce(topic, values[number % 64], on_delivery=sending.delivered)
        while sending.acknowledged < want:
            sending.producer.poll(1)
            assert sending.refused is None, sending.refused
        times.append((time.perf_counter() - start) * 1000)
    times.sort()
    return times[count // 2], times[count * 99 // 100]


# So that the client is not what is measured: with its queue full it would pause for a second.
DEEP_QUEUE: Mapping[str, object] = {
    "fetch.message.max.bytes": 1_048_576,
    "queued.max.messages.kbytes": 65_536,
    "fetch.queue.backoff.ms": 5,
    "log_level": 2,
}


def consume_megabytes_per_s(
    servers: str, topic: str, records: int, size: int, settings: Mapping[str, object] | None = None
) -> float:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            **DEEP_QUEUE,
            **(settings or {}),
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    first = 0
    while not first:
        first = len(consumer.consume(1, timeout=10))
    start = time.perf_counter()
    read = first
    while read < records:
        read += len(consumer.consume(min(5000, records - read), timeout=5))
    took = time.perf_counter() - start
    consumer.close()
    return (read - first) * size / MEGABYTE / took


@cache
def c_client() -> tuple[Path, dict[str, str]] | None:
    """librdkafka's rdkafka_performance and its environment; None where it cannot be built."""
    try:
        home = librdkafka.build("examples:rdkafka_performance")
    except CannotRun as reason:
        print(f"no C client: {reason}", flush=True)
        return None
    program = home / "examples" / "rdkafka_performance"
    return program, {**os.environ, "LD_LIBRARY_PATH": str(home / "src")}


def consume_in_c_megabytes_per_s(servers: str, topic: str, records: int) -> float | None:
    """The same with a client that does nothing with a record."""
    found = c_client()
    if found is None:
        return None
    program, environment = found
    settings = [word for name, value in DEEP_QUEUE.items() for word in ("-X", f"{name}={value}")]
    partitions = [word for number in range(PARTITIONS) for word in ("-p", str(number))]
    done = subprocess.run(
        [
            *(str(program), "-C", "-q", "-t", topic, "-b", servers, "-o", "beginning"),
            *("-c", str(records), *partitions, *settings),
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=DELIVERY_TIMEOUT_S,
    )
    rate = CONSUMED.search(done.stdout)
    assert rate is not None, done.stdout + done.stderr
    return float(rate[1])


@contextmanager
def busy_threads(count: int) -> Iterator[None]:
    """So many threads, each a process, that never wait: as on a machine with other work."""
    spinning = [
        subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(count)
    ]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def crowd_megabytes_per_s(servers: str, topic: str, clients: int, records: int) -> float:
    """So many producers and as many consumers at once, each with a partition of its own."""
    value = payload(1024)[0][:1024]
    producers = [Sending(servers) for _ in range(clients)]
    consumers = [
        Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": f"crowd-{number}",
                "enable.auto.commit": False,
                **DEEP_QUEUE,
            }
        )
        for number in range(clients)
    ]
    for number, consumer in enumerate(consumers):
        consumer.assign([TopicPartition(topic, number, 0)])
    total = clients * records
    read = 0
    start = time.perf_counter()
    for sent in range(records):
        for number, each in enumerate(producers):
            each.producer.produce(topic, value, partition=number, on_delivery=each.delivered)
        if sent % 20 == 0:
            for number, each in enumerate(producers):
                each.producer.poll(0)
                read += len(consumers[number].consume(records, timeout=0))
    while read < total:
        assert time.perf_counter() - start < DELIVERY_TIMEOUT_S, f"{read} of {total} came"
        for each, consumer in zip(producers, consumers, strict=True):
            each.producer.poll(0)
            read += len(consumer.consume(records, timeout=0.001))
    took = time.perf_counter() - start
    for each, consumer in zip(producers, consumers, strict=True):
        assert each.producer.flush(DELIVERY_TIMEOUT_S) == 0
        assert each.refused is None, each.refused
        consumer.close()
    return total * 1024 / MEGABYTE / took


def transactions(servers: str, topic: str, records: int, count: int) -> tuple[float, float]:
    """Records of 100 B per second in transactions of so many, and the median commit in ms."""
    settings = {"transactional.id": f"bench-{records}", "linger.ms": 5}
    sending = Sending(servers, **settings)
    producer = sending.producer
    producer.init_transactions(DELIVERY_TIMEOUT_S)
    value = payload(100)[0][:100]
    commits: list[float] = []
    start = time.perf_counter()
    for _ in range(count):
        producer.begin_transaction()
        for number in range(records):
            producer.produce(topic, value, on_delivery=sending.delivered)
            if number % BATCH == 0:
                producer.poll(0)
        producer.flush(DELIVERY_TIMEOUT_S)
        flushed = time.perf_counter()
        producer.commit_transaction(DELIVERY_TIMEOUT_S)
        commits.append((time.perf_counter() - flushed) * 1000)
    took = time.perf_counter() - start
    assert sending.refused is None, sending.refused
    return records * count / took, statistics.median(commits)
