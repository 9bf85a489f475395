"""The Spark format against Apache Kafka: the tests of tests/spark, with other brokers."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.spark.conftest import Cluster3, sessions  # noqa: F401  # a fixture
from tests.spark.test_sink import *  # noqa: F403
from tests.spark.test_spark import *  # noqa: F403
from tests.spark.test_stream_reader import *  # noqa: F403

from peers.kafka import KafkaCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster3]:
    with KafkaCluster(brokers=3) as brokers:
        yield Cluster3(brokers)


@pytest.fixture(scope="module")
def spark(sessions: Any) -> Any:  # noqa: F811
    """In a session only: where executors run is no matter of the brokers."""
    return sessions.on("local[2]")
