"""A member of a consumer group in a process of its own, so that it can be killed.

Prints lines of JSON: {"assigned": [0, 1]} whenever it is given partitions, {"record": [0, 17]} for
each record. SIGTERM makes it leave the group. Run by drivers:

    python -m tests.compatibility.members CLIENT BOOTSTRAP GROUP TOPIC SESSION_MS
"""

import asyncio
import json
import signal
import sys
from types import FrameType
from typing import Any

POLL_S = 0.1
LONG_POLL_S = 20
COMMIT_MS = 200


def tell(**fact: object) -> None:
    print(json.dumps(fact), flush=True)


class Orders:
    """Whether this member is to leave."""

    def __init__(self) -> None:
        self.leave = False
        signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.leave = True


def confluent(bootstrap: str, group: str, topic: str, session_ms: int) -> None:
    from confluent_kafka import Consumer

    orders = Orders()
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": session_ms // 10,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": COMMIT_MS,
            "topic.metadata.refresh.interval.ms": 1000,
        }
    )
    consumer.subscribe(
        [topic],
        on_assign=lambda _, parts: tell(assigned=[part.partition for part in parts]),
    )
    while not orders.leave:
        message = consumer.poll(POLL_S)
        if message is not None and message.error() is None:
            tell(record=[message.partition(), message.offset()])
    consumer.close()


def kafka_python(bootstrap: str, group: str, topic: str, session_ms: int) -> None:
    import kafka

    class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]  # has no types
        def on_partitions_revoked(self, revoked: Any) -> None:
            pass

        def on_partitions_assigned(self, assigned: Any) -> None:
            tell(assigned=[part.partition for part in assigned])

    # A poll that ends while it joins makes this client forget the answer of SyncGroup and beat its
    # heart no more: polls are long, and the signal interrupts them.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        group_id=group,
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=session_ms // 10,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=COMMIT_MS,
    )
    consumer.subscribe([topic], listener=Listener())
    try:
        while True:
            try:
                polled = consumer.poll(timeout_ms=LONG_POLL_S * 1000)
            except kafka.errors.UnknownBrokerIdError:
                continue  # it asked a leader that newer metadata of its own does not list any more
            for records in polled.values():
                for record in records:
                    tell(record=[record.partition, record.offset])
    finally:
        consumer.close()


def aio(bootstrap: str, group: str, topic: str, session_ms: int) -> None:
    import aiokafka
    from aiokafka.abc import ConsumerRebalanceListener

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # has no types
        def on_partitions_revoked(self, revoked: Any) -> None:
            pass

        def on_partitions_assigned(self, assigned: Any) -> None:
            tell(assigned=[part.partition for part in assigned])

    async def run() -> None:
        orders = Orders()
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=session_ms // 10,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=COMMIT_MS,
        )
        consumer.subscribe([topic], listener=Listener())
        await consumer.start()
        while not orders.leave:
            for records in (await consumer.getmany(timeout_ms=int(POLL_S * 1000))).values():
                for record in records:
                    tell(record=[record.partition, record.offset])
        await consumer.stop()

    asyncio.run(run())


if __name__ == "__main__":
    members = {"confluent": confluent, "kafka-python": kafka_python, "aiokafka": aio}
    members[sys.argv[1]](sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
