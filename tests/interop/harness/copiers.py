"""Read, process, write in transactions, as each Python client's documentation shows it.

A copier reads a topic in a group, writes what it read to another topic and commits its offsets in
the same transaction. It prints a line, the number of records, for each transaction that it has
committed. After an error it aborts, and begins again with new clients of the same transactional
id. It ends when it is killed. Copy.java, copy.js and go/copy are the same for other clients.

    python -m tests.interop.harness.copiers CLIENT BOOTSTRAP SOURCE TARGET
"""

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

GROUP = TRANSACTIONAL_ID = "copy"
RECORDS_MAX = 100
POLL_S = 0.2
# A poll of kafka-python's that ends while it joins makes it forget the answer of SyncGroup.
LONG_POLL_S = 5
WAIT_S = 60.0
HANGING_S = 10


def tell(committed: int) -> None:
    print(committed, flush=True)


def complain(error: BaseException) -> None:
    print(f"begins again: {type(error).__name__}: {error}", file=sys.stderr, flush=True)


def begin_anew() -> None:
    """In the place of this process, with nothing of its state."""
    os.execv(sys.executable, [sys.executable, "-m", __spec__.name, *sys.argv[1:]])


def give_up() -> None:
    print("begins again: the transaction takes too long", file=sys.stderr, flush=True)
    begin_anew()


@contextmanager
def in_time() -> Iterator[None]:
    """Begins anew when what is inside takes too long, for clients that may wait forever. From a
    thread: what is inside may be deep in C, where no signal is handled."""
    timer = threading.Timer(HANGING_S, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def confluent(bootstrap: str, source: str, target: str) -> None:
    from confluent_kafka import Consumer, KafkaException, Producer

    quiet = {"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 500, "log_level": 2}
    producer = Producer({**quiet, "transactional.id": TRANSACTIONAL_ID})
    producer.init_transactions(WAIT_S)
    consumer = Consumer(
        {
            **quiet,
            "group.id": GROUP,
            "session.timeout.ms": 10_000,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([source])
    try:
        while True:
            read = consumer.consume(RECORDS_MAX, POLL_S)
            messages = [message for message in read if message.error() is None]
            if not messages:
                continue
            producer.begin_transaction()
            for message in messages:
                partition = message.partition()
                assert partition is not None
                producer.produce(target, message.value(), message.key(), partition)
            positions = consumer.position(consumer.assignment())
            # librdkafka 2.16.0 waits here forever, whatever the time-out, if it knows a coordinator
            # of the group that has left the cluster's metadata since, even if it is back by now
            # (rd_kafka_coord_req_fsm; confluentinc/librdkafka issues 5511 and 5456).
            with in_time():
                producer.send_offsets_to_transaction(
                    positions, consumer.consumer_group_metadata(), WAIT_S
                )
            producer.commit_transaction(WAIT_S)
            tell(len(messages))
    finally:
        with suppress(KafkaException):
            producer.abort_transaction(WAIT_S)
        consumer.close()


def kafka_python(bootstrap: str, source: str, target: str) -> None:
    import kafka
    from kafka.structs import OffsetAndMetadata

    servers = bootstrap.split(",")
    producer = kafka.KafkaProducer(bootstrap_servers=servers, transactional_id=TRANSACTIONAL_ID)
    consumer = kafka.KafkaConsumer(
        source,
        bootstrap_servers=servers,
        group_id=GROUP,
        session_timeout_ms=6000,
        heartbeat_interval_ms=1000,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=RECORDS_MAX,
    )
    # A transactional request whose coordinator refuses the connection is forgotten by this client
    # (Sender._maybe_send_pending_request, 3.0.12), and waiting for it never ends.
    try:
        with in_time():
            producer.init_transactions()
        while True:
            read = consumer.poll(timeout_ms=LONG_POLL_S * 1000)
            if not read:
                continue
            with in_time():
                producer.begin_transaction()
                for partition, records in read.items():
                    for record in records:
                        producer.send(
                            target, record.value, record.key, partition=partition.partition
                        )
                offsets = {
                    partition: OffsetAndMetadata(records[-1].offset + 1, "", -1)
                    for partition, records in read.items()
                }
                producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                producer.commit_transaction()
            tell(sum(map(len, read.values())))
    except Exception as error:
        complain(error)
    finally:
        begin_anew()  # closing it can take forever, too


def aio(bootstrap: str, source: str, target: str) -> None:
    asyncio.run(aio_copy(bootstrap, source, target))


async def aio_copy(bootstrap: str, source: str, target: str) -> None:
    import aiokafka

    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=TRANSACTIONAL_ID
    )
    consumer = aiokafka.AIOKafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=GROUP,
        isolation_level="read_committed",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    try:
        await producer.start()
        await consumer.start()
        while True:
            read = await consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=RECORDS_MAX)
            if not read:
                continue
            async with producer.transaction():
                sent = [
                    await producer.send(target, record.value, record.key, partition.partition)
                    for partition, records in read.items()
                    for record in records
                ]
                await asyncio.gather(*sent)
                offsets = {partition: records[-1].offset + 1 for partition, records in read.items()}
                await producer.send_offsets_to_transaction(offsets, GROUP)
            tell(sum(map(len, read.values())))
    finally:
        for client in (producer, consumer):
            with suppress(Exception):
                await asyncio.wait_for(client.stop(), WAIT_S)


COPIERS: dict[str, Any] = {
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aio,
}

if __name__ == "__main__":
    while True:
        try:
            COPIERS[sys.argv[1]](*sys.argv[2:])
        except Exception as error:
            complain(error)
