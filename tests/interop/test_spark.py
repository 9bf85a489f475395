"""The Spark format against Apache Kafka: the tests of tests/spark, with other brokers."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer as TransactionalProducer
from tests.interop.harness.kafka import KafkaCluster
from tests.spark.conftest import Cluster3, sessions  # noqa: F401  # a fixture
from tests.spark.test_sink import *  # noqa: F403
from tests.spark.test_spark import *  # noqa: F403
from tests.spark.test_stream_reader import *  # type: ignore[assignment]  # noqa: F403

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster3]:
    with KafkaCluster(brokers=3) as brokers:
        yield Cluster3(brokers)


@pytest.fixture(scope="module")  # type: ignore[no-redef]
def spark(sessions: Any) -> Any:  # noqa: F811
    """In a session only: where executors run is no matter of the brokers."""
    return sessions.on("local[2]")


def test_only_what_was_committed_is_read_of_transactions(cluster: Any) -> None:
    topic = cluster.create()
    settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": topic}
    producer = TransactionalProducer(settings)
    producer.init_transactions(60)

    def send(value: bytes) -> None:
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(60)

    send(b"aborted")
    producer.abort_transaction(60)
    send(b"committed")
    producer.commit_transaction(60)
    send(b"open")
    committed = {"kafka.isolation.level": "read_committed"}
    assert batch_values(cluster, topic, **committed) == [b"committed"]  # noqa: F405
    assert batch_values(cluster, topic) == [b"aborted", b"committed", b"open"]  # noqa: F405
    stream = Query(cluster, topic, startingOffsets="earliest", **committed).start()  # noqa: F405
    assert stream.batch() == [b"committed"]
    producer.commit_transaction(60)
    seen: list[bytes] = []

    def has_arrived() -> bool:
        seen.extend(stream.batch())
        return bool(seen)

    # The marker is written a moment after the response.
    cluster.wait_until(has_arrived, "the record of the open transaction")
    assert seen == [b"open"]
