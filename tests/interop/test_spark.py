"""The Spark format against Apache Kafka: the tests of tests/spark, with other brokers."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer as TransactionalProducer
from tests.interop.harness.kafka import KafkaCluster
from tests.spark.conftest import Cluster3, sessions  # noqa: F401  # a fixture
from tests.spark.test_exactly_once import (  # noqa: F401
    sink,  # a fixture
    test_a_failed_attempt_leaves_nothing_that_readers_wait_for,
    test_a_mark_that_is_gone_or_ahead_is_noticed,
    test_a_repeated_batch_with_other_rows_is_noticed,
    test_of_two_attempts_at_once_one_is_fenced_or_finds_the_mark,
    test_tasks_that_are_killed_before_each_of_their_steps,
    test_the_coordinator_dies_before_the_commit,
)
from tests.spark.test_on_cluster import (  # noqa: F401
    test_a_batch_write_is_exactly_once,
    test_a_leader_dies_while_a_batch_is_read,
    test_a_leader_dies_while_rows_are_written,
)
from tests.spark.test_sink import *  # noqa: F403
from tests.spark.test_spark import *  # noqa: F403
from tests.spark.test_stream_reader import *  # type: ignore[assignment]  # noqa: F403

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster3]:
    with KafkaCluster(brokers=3) as brokers:
        yield Cluster3(brokers)


@pytest.fixture(scope="module")
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
