"""kill -9 in the middle of a stream: what was acknowledged is there afterwards, in order, once."""

import random
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest
from tests.broker.processes import BrokerProcess

pytestmark = pytest.mark.process

RECORDS = 20_000
KILLS = 3


def read_all(bootstrap: str, topic: str) -> list[int]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[int] = []
    while True:
        for message in consumer.consume(10_000, 0.2):
            error, value = message.error(), message.value()
            if error is None:
                assert value is not None
                found.append(int(value))
            else:
                assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF
                consumer.close()
                return found


def test_killed_in_the_middle_of_a_stream(tmp_path: Path) -> None:
    rng = random.Random(5)
    broker = BrokerProcess(tmp_path, "log.segment.bytes=200000").start()
    try:
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([confluent_kafka.admin.NewTopic("t", 1, 1)])["t"].result(10)
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 50,
                "message.timeout.ms": 60_000,
                "reconnect.backoff.max.ms": 200,
            }
        )
        acknowledged: list[int] = []
        failures: list[object] = []

        def delivered(error: object, message: confluent_kafka.Message) -> None:
            if error is None:
                value = message.value()
                assert value is not None
                acknowledged.append(int(value))
            else:
                failures.append(error)

        kill_after = sorted(rng.sample(range(2000, RECORDS - 2000), KILLS))
        for number in range(RECORDS):
            producer.produce("t", str(number).encode(), on_delivery=delivered)
            producer.poll(0)
            if kill_after and number >= kill_after[0]:
                kill_after.pop(0)
                while len(acknowledged) < number // 2:
                    producer.poll(0.1)
                broker.kill()
                before = list(acknowledged)
                broker.start()
                # What was acknowledged before the kill is there right after the restart.
                assert set(before) <= set(read_all(broker.bootstrap, "t"))
        assert producer.flush(60) == 0
        assert not failures
        assert sorted(acknowledged) == list(range(RECORDS))
        assert read_all(broker.bootstrap, "t") == list(range(RECORDS))
        assert not broker.tracebacks, "\n".join(broker.tracebacks)
    finally:
        if broker.is_running:
            broker.kill()


def test_a_clean_stop_needs_no_recovery_and_keeps_topics_and_settings(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path).start()
    try:
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
        topic = confluent_kafka.admin.NewTopic("t", 2, 1, config={"retention.ms": "12345678"})
        admin.create_topics([topic])["t"].result(10)
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(100):
            producer.produce("t", str(number).encode(), partition=0)
        assert producer.flush(10) == 0
        assert broker.stop() == 0
        assert (tmp_path / "broker-1" / ".kafka_cleanshutdown").exists()
        broker.log.clear()
        broker.start()
        assert any("cleanly shut down" in line for line in broker.log)
        assert read_all(broker.bootstrap, "t") == list(range(100))
        resource = confluent_kafka.admin.ConfigResource(confluent_kafka.admin.RESOURCE_TOPIC, "t")
        described = admin.describe_configs([resource])[resource].result(10)
        assert described["retention.ms"].value == "12345678"
        assert broker.stop() == 0
        assert not broker.tracebacks, "\n".join(broker.tracebacks)
    finally:
        if broker.is_running:
            broker.kill()
