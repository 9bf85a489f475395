"""One cluster and one Spark session for all tests of the pipeline.

The same tests run against Apache Kafka, once `make peers` has brought it:

    ODRADEK_TEST_PEER=kafka pytest tests/spark

and against any cluster with ODRADEK_TEST_PEER=host:port. Tests that hurt brokers are then skipped.
"""

import itertools
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from odradek.client.blocking import Blocking
from odradek.client.producer import Producer
from odradek.client.values import NewPartitions, NewTopic, check
from odradek.cluster import Cluster
from odradek.wire.errors import ErrorCode
from odradek.wire.topics import TopicPartition

PEER = "ODRADEK_TEST_PEER"
KAFKA = "kafka"


class Cluster3:
    """A cluster with the handful of things the tests do to its topics."""

    def __init__(self, bootstrap: str, cluster: Cluster | None) -> None:
        self.bootstrap = bootstrap
        self._cluster = cluster
        self.client = Blocking(bootstrap)
        self._numbers = itertools.count()

    @property
    def brokers(self) -> Cluster:
        """The processes, for tests that hurt them."""
        if self._cluster is None:
            pytest.skip("the brokers of a peer are not ours to hurt")
        return self._cluster

    def options(self, **more: object) -> dict[str, str]:
        named = {name.replace("__", "."): str(value) for name, value in more.items()}
        return {"kafka.bootstrap.servers": self.bootstrap, **named}

    def create(self, partitions: int = 1, name: str | None = None, **configs: str) -> str:
        name = name or f"topic-{os.getpid()}-{next(self._numbers)}"
        named = {key.replace("_", "."): value for key, value in configs.items()}
        self.client.run(self._create(NewTopic(name, partitions, -1, configs=named)))
        return name

    async def _create(self, topic: NewTopic) -> None:
        patience = self.client.client.patience()
        while True:
            outcome = (await self.client.admin.create_topics([topic]))[topic.name]
            if outcome is None:
                break
            if outcome.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise outcome
            # Its namesake is still being deleted.
            await patience.pause(TimeoutError(outcome.message))
        await self.client.client.known_topics([topic.name])

    def delete(self, name: str) -> None:
        check(self.client.run(self.client.admin.delete_topics([name])))
        self._until(lambda topics: name not in topics)

    def grow(self, name: str, partitions: int) -> None:
        admin = self.client.admin
        check(self.client.run(admin.create_partitions({name: NewPartitions(partitions)})))
        self._until(lambda topics: len(topics[name].partitions) == partitions)

    def delete_records(self, name: str, before: int, partition: int = 0) -> None:
        self.client.run(self.client.admin.delete_records({TopicPartition(name, partition): before}))

    def _until(self, holds: Any) -> None:
        async def look() -> None:
            patience = self.client.client.patience()
            while not holds((await self.client.client.refresh(None)).topics):
                await patience.pause(TimeoutError("the topic has not changed"))

        self.client.run(look())

    def produce(
        self,
        topic: str,
        values: Sequence[bytes | None],
        partition: int | None = 0,
        keys: Sequence[bytes | None] | None = None,
        **more: Any,
    ) -> None:
        async def send() -> None:
            async with Producer(self.client.client, linger_s=0) as producer:
                for index, value in enumerate(values):
                    key = keys[index] if keys else None
                    await producer.send(topic, value, key=key, partition=partition, **more)

        self.client.run(send())

    def committed(self, group: str) -> Mapping[TopicPartition, int]:
        lag = self.client.run(self.client.groups.lag(group))
        return {partition: one.committed for partition, one in lag.items()}


def apache_kafka(stack: ExitStack, home: Path) -> str:
    """The address of one Apache Kafka broker on a ZooKeeper of its own."""
    from peers.kafka import QUICK_START, KafkaBroker

    from odradek.store.zookeeper_server import ZooKeeperServer

    zookeeper = ZooKeeperServer(home / "zookeeper", port=0)
    zookeeper.start()
    stack.callback(zookeeper.stop)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {"offsets.topic.replication.factor": 1}
    broker = KafkaBroker(1, port, zookeeper.address, home / "kafka", settings, jvm=QUICK_START)
    broker.start()
    stack.callback(broker.kill)
    return broker.address


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster3]:
    peer = os.environ.get(PEER)
    if peer:
        with ExitStack() as stack:
            home = tmp_path_factory.mktemp("peer")
            yield Cluster3(apache_kafka(stack, home) if peer == KAFKA else peer, None)
        return
    with Cluster(brokers=3) as brokers:
        yield Cluster3(brokers.bootstrap_servers, brokers)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from odradek.spark.session import open_session

    settings = {
        "spark.sql.python.filterPushdown.enabled": "true",
        # A short life is not worth a compiler.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.codegen.wholeStage": "false",
    }
    session = open_session("tests", "local[2]", settings)
    yield session
    session.stop()
