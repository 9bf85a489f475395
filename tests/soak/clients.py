"""Producer and consumer under torment: librdkafka, as users have it."""

import ctypes
import random
import threading
import time

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from .account import Account

KEYS = 40
DEADLOCKED_S = 20.0


class Writer(threading.Thread):
    """Writes numbered records under a few keys, idempotently, until it is stopped: up to `burst` at
    once, up to `pause_s` apart."""

    def __init__(
        self,
        servers: str,
        topic: str,
        account: Account,
        seed: int,
        burst: int = 200,
        pause_s: float = 0.02,
    ) -> None:
        super().__init__(name="writer", daemon=True)
        self._burst, self._pause_s = burst, pause_s
        self._servers = servers
        self._topic = topic
        self._account = account
        self._rng = random.Random(seed)
        self._numbers = dict.fromkeys(range(KEYS), 0)
        self.stopping = threading.Event()
        self.sent = 0
        self.producer = self._new_producer()

    def _new_producer(self) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self._servers,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "socket.timeout.ms": 10_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        while not self.stopping.is_set():
            for _ in range(self._rng.randint(1, self._burst)):
                self._send(self._rng.randrange(KEYS))
            self.producer.poll(0)
            self.stopping.wait(self._rng.uniform(0, self._pause_s))

    def _send(self, key: int) -> None:
        number = self._numbers[key]
        try:
            self.producer.produce(
                self._topic,
                key=b"%d" % key,
                value=b"%d" % number,
                on_delivery=lambda error, _: self._delivered(key, number, error),
            )
        except BufferError:
            self.producer.poll(0.1)
            return
        except KafkaException as error:
            # A fatal error of an idempotent producer: begin again with a new one, as an
            # application must. What was on its way may or may not have arrived.
            if not error.args[0].fatal():
                raise
            self.producer.purge()
            self.producer.flush(1)
            self.producer = self._new_producer()
            return
        self._numbers[key] = number + 1
        self.sent += 1

    def _delivered(self, key: int, number: int, error: KafkaError | None) -> None:
        if error is None:
            self._account.acknowledge(key, number)
        else:
            self._account.given_up += 1

    def finish(self) -> int:
        """Stop, wait for every answer, and say how many never came."""
        self.stopping.set()
        self.join()
        return int(self.producer.flush(120))


class Listener(threading.Thread):
    """Reads every partition from the start, along with the writer.

    librdkafka may deadlock when a broker dies: its main thread, which looks for a leader because
    OffsetForLeaderEpoch failed, has a partition's lock and wants the client's; the thread of the
    broker that is gone has the client's and wants the partition's. The main thread reports itself
    every second, so a client that does not any more is left as it is, and another one reads on.
    """

    def __init__(self, servers: str, topic: str, partitions: int, account: Account) -> None:
        super().__init__(name="listener", daemon=True)
        self._servers = servers
        self._topic = topic
        self._account = account
        self.stopping = threading.Event()
        self.positions = dict.fromkeys(range(partitions), 0)
        self._reported_at = 0.0
        self._consumer = self._open()
        self.errors: list[str] = []

    def _open(self) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "torment",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
                "statistics.interval.ms": 1000,
                "stats_cb": self._reported,
            }
        )
        consumer.assign(
            [
                TopicPartition(self._topic, number, position or OFFSET_BEGINNING)
                for number, position in self.positions.items()
            ]
        )
        self._reported_at = time.monotonic()
        return consumer

    def _reported(self, statistics: str) -> None:
        self._reported_at = time.monotonic()

    def run(self) -> None:
        while not self.stopping.is_set():
            for message in self._consumer.consume(5000, 0.2):
                self._take(message)
            if time.monotonic() - self._reported_at > DEADLOCKED_S:
                print("librdkafka has deadlocked, another consumer reads on")
                leave_for_ever(self._consumer)
                self._consumer = self._open()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                self.errors.append(str(error))
            return
        key, value = message.key(), message.value()
        partition, offset = message.partition(), message.offset()
        assert key is not None and value is not None
        assert partition is not None and offset is not None
        self._account.receive(int(key), int(value), partition, offset)
        self.positions[partition] = offset + 1

    def finish(self) -> None:
        self.stopping.set()
        self.join()
        closing = threading.Thread(target=self._consumer.close, daemon=True)
        closing.start()
        closing.join(DEADLOCKED_S)
        if closing.is_alive():
            print("librdkafka has deadlocked, and is not closed")
            leave_for_ever(self._consumer)


def leave_for_ever(consumer: Consumer) -> None:
    """Not even when the process ends is it destroyed, which would wait for its threads."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(consumer))
