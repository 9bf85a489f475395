"""Kafka Connect with our brokers, which are killed meanwhile."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.interop.harness.connect import (
    DISTRIBUTED,
    STANDALONE,
    WORKER,
    JavaProgram,
    add_connector,
    file_connector,
)
from tests.interop.harness.members import wait_until

from odradek import Cluster
from odradek.client import Blocking, NewTopic
from odradek.testing.cluster import _free_ports as free_ports

TOPIC = "lines"
LINES = 200


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    config = {"min.insync.replicas": 2, "offsets.topic.num.partitions": 3}
    with Cluster(brokers=3, config=config) as running:
        create(running.bootstrap_servers, TOPIC, 3)
        yield running


def create(servers: str, topic: str, copies: int) -> None:
    new = NewTopic(topic, partitions=1, replication_factor=copies)
    with Blocking(servers, timeout_s=60) as client:
        client.run(client.admin.create_topics([new]))


def values_of(servers: str, topic: str) -> list[str]:
    """A topic's values, as far as they are committed."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "values", "enable.auto.commit": False}
    )
    place = TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(place, timeout=60)
    consumer.assign([place])
    found = []
    while consumer.position([place])[0].offset < end and (message := consumer.poll(5)):
        assert message.error() is None, message.error()
        found.append((message.value() or b"").decode())
    consumer.close()
    return found


class Lines:
    """A file that grows, and one that must hold the same lines in the end."""

    def __init__(self, directory: Path) -> None:
        self.source, self.sink = directory / "source.txt", directory / "sink.txt"
        self.source.write_text("")
        self.sink.write_text("")
        self.written: list[str] = []

    def write(self) -> None:
        start = len(self.written)
        some = [f"line {number}" for number in range(start, start + LINES)]
        with open(self.source, "a") as source:
            source.writelines(f"{line}\n" for line in some)
        self.written += some

    def wait(self, check: Callable[[], None]) -> None:
        def arrived() -> bool:
            check()
            return set(self.sink.read_text().splitlines()) >= set(self.written)

        wait_until(arrived, f"{len(self.written)} lines")

    def through_kills(self, cluster: Cluster, check: Callable[[], None]) -> None:
        """More lines arrive while each broker in turn is dead, and after it is back."""
        self.write()
        self.wait(check)
        for broker in cluster.ids:
            cluster.kill(broker)
            self.write()
            self.wait(check)
            cluster.start(broker)
        self.write()
        self.wait(check)


def connectors(lines: Lines) -> list[dict[str, object]]:
    return [
        file_connector("from-file", "Source", lines.source, TOPIC),
        file_connector("to-file", "Sink", lines.sink, TOPIC),
    ]


@pytest.mark.slow
def test_connect_standalone(cluster: Cluster, tmp_path: Path) -> None:
    lines = Lines(tmp_path)
    worker = {
        **WORKER,
        "bootstrap.servers": cluster.bootstrap_servers,
        "listeners": f"HTTP://127.0.0.1:{free_ports(1)[0]}",
        "offset.storage.file.filename": tmp_path / "offsets",
    }
    with JavaProgram(STANDALONE, tmp_path, worker, *connectors(lines)) as connect:
        lines.through_kills(cluster, connect.check_runs)
    # At least once, and in order where a line came first.
    assert list(dict.fromkeys(values_of(cluster.bootstrap_servers, TOPIC))) == lines.written


def test_connect_distributed_and_exactly_once(cluster: Cluster, tmp_path: Path) -> None:
    """Its offsets, settings and states are in topics; the source writes in transactions."""
    lines = Lines(tmp_path)
    port = free_ports(1)[0]
    worker = {
        **WORKER,
        "bootstrap.servers": cluster.bootstrap_servers,
        "listeners": f"HTTP://127.0.0.1:{port}",
        "group.id": "connect",
        "exactly.once.source.support": "enabled",
        "consumer.isolation.level": "read_committed",
        **{
            f"{kind}.storage.{name}": value
            for kind in ("offset", "config", "status")
            for name, value in (("topic", f"connect-{kind}"), ("replication.factor", 3))
        },
        "offset.storage.partitions": 1,
        "status.storage.partitions": 1,
    }
    with JavaProgram(DISTRIBUTED, tmp_path, worker) as connect:
        for settings in connectors(lines):
            add_connector(port, settings)
        lines.through_kills(cluster, connect.check_runs)
    assert values_of(cluster.bootstrap_servers, TOPIC) == lines.written
