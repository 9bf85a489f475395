"""The client's side of the benchmark: librdkafka, driven the same way for every system."""

import random
import time
from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

PARTITIONS = 12
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


def consume_megabytes_per_s(servers: str, topic: str, records: int, size: int) -> float:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 1_048_576,
            "queued.max.messages.kbytes": 65_536,
            "log_level": 2,
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
