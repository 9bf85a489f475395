"""Pipelines against Apache Kafka: the tests of tests/spark/pipeline, with other brokers."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.interop.harness.kafka import KafkaCluster
from tests.spark.conftest import Cluster3, sessions, spark_cluster  # noqa: F401  # fixtures
from tests.spark.pipeline.test_formats import *  # noqa: F403
from tests.spark.pipeline.test_kills import (  # noqa: F401
    test_exactly_once_through_the_death_of_java_and_of_the_driver,
)
from tests.spark.pipeline.test_pipeline import (  # noqa: F401
    test_a_query_that_fails_says_so_in_one_sentence,
)
from tests.spark.test_on_cluster import (  # noqa: F401
    test_stopped_here_and_gone_on_with_on_a_cluster_without_this_package,
)

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster3]:
    with KafkaCluster(brokers=3) as brokers:
        yield Cluster3(brokers)


@pytest.fixture(scope="module")
def spark(sessions: Any) -> Any:  # noqa: F811
    return sessions.on("local[2]")
