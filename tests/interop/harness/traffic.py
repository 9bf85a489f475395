"""A librdkafka producer that goes on through every failure and remembers what was acknowledged."""

import threading
from types import TracebackType
from typing import NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

VALUE_BYTES = 200
# A librdkafka consumer waits this long for as many records as were asked for.
READ_WAIT_S = 0.2
SILENT_S_MAX = 60.0


class Acknowledged(NamedTuple):
    partition: int
    offset: int


def place_of(message: Message) -> Acknowledged:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return Acknowledged(partition, offset)


class Traffic:
    """Numbered records to a topic, acks=all and idempotent, from a thread of its own."""

    def __init__(self, bootstrap_servers: str, topic: str, *, pause_s: float = 0.01) -> None:
        self.topic = topic
        self.acknowledged: dict[int, Acknowledged] = {}
        # A batch whose own response was an error, and that is known to be in the log because the
        # next one was accepted: librdkafka reports it as delivered, to an unknown offset.
        self.somewhere: set[int] = set()
        self.failed: dict[int, str] = {}
        self.times: dict[int, int] = {}  # epoch ms, of those acknowledged
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "batch.size": 32_768,
                "message.timeout.ms": 120_000,
                "topic.metadata.refresh.interval.ms": 1000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 2,
            }
        )
        self._pause_s = pause_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"traffic-{topic}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._thread.join()
        if error is None:
            left = self._producer.flush(120)
            assert left == 0, f"{left} records neither acknowledged nor refused"
        else:
            self._producer.purge()

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(self._pause_s):
            for _ in range(5):
                self._send(number)
                number += 1
            self._producer.poll(0)

    def _send(self, number: int) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failed[number] = str(error)
            elif message.offset() is None:
                self.somewhere.add(number)
            else:
                self.times[number] = message.timestamp()[1]
                self.acknowledged[number] = place_of(message)

        value = b"%d " % number
        self._producer.produce(
            self.topic,
            key=b"%d" % (number % 97),
            value=value + b"." * (VALUE_BYTES - len(value)),
            on_delivery=delivered,
        )

    @property
    def count(self) -> int:
        return len(self.acknowledged) + len(self.somewhere)

    @property
    def numbers(self) -> list[int]:
        """All that were acknowledged, in the order in which they were sent."""
        return sorted(self.somewhere.union(self.acknowledged))


def read_all(bootstrap_servers: str, topic: str, partitions: int) -> dict[Acknowledged, int]:
    """Every numbered record of a topic by its place, read up to the present ends."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "read-all",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 2,
        }
    )
    found: dict[Acknowledged, int] = {}
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    ended: set[int] = set()
    silent_s = 0.0
    try:
        while len(ended) < partitions:
            messages = consumer.consume(5000, timeout=READ_WAIT_S)
            silent_s = 0.0 if messages else silent_s + READ_WAIT_S
            assert silent_s < SILENT_S_MAX, f"neither record nor end of {topic}; at end: {ended}"
            for message in messages:
                error = message.error()
                if error is None:
                    value = message.value()
                    assert isinstance(value, bytes)
                    found[place_of(message)] = int(value.split()[0])
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition() or 0)
    finally:
        consumer.close()
    return found


def check_nothing_lost(traffic: Traffic, found: dict[Acknowledged, int]) -> None:
    """Each acknowledged record is where it was acknowledged, or anywhere if no offset was reported;
    and no record is there twice."""
    assert not traffic.failed, f"refused: {dict(list(traffic.failed.items())[:3])}"
    lost = {n: place for n, place in traffic.acknowledged.items() if found.get(place) != n}
    assert not lost, f"{len(lost)} of {traffic.count} lost, such as {dict(list(lost.items())[:3])}"
    nowhere = traffic.somewhere - set(found.values())
    assert not nowhere, f"{len(nowhere)} of {traffic.count} lost, such as {sorted(nowhere)[:3]}"
    assert len(set(found.values())) == len(found), "records twice in the log"
