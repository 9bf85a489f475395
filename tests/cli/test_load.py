"""`odradek load` on a cluster whose brokers publish: the hot partition is found, and idle ones."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import CommandLine

from odradek import Cluster
from odradek.client import Client, Producer

pytestmark = pytest.mark.process

RECORDS, BYTES = 50, 10_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    config = {"odradek.telemetry.interval.ms": 200, "odradek.network.capacity": 1_000_000}
    with Cluster(brokers=2, config=config) as running:
        yield running


def measured(odradek: CommandLine, *arguments: str) -> Any:
    """Once all that was written is in the frames. A broker publishes five times a second."""
    while True:
        answer = odradek.json("load", *arguments)
        hot = next(row for row in answer["topics"] if row["topic"] == "hot")
        if answer["coverage"] == 1.0 and hot["messages"] and hot["disk"] > 2 * RECORDS * BYTES:
            return answer


def test_the_hot_partition_is_found(cluster: Cluster, odradek: CommandLine) -> None:
    odradek("topics", "create", "hot", "--partitions", "4", "--replication-factor", "2")
    before = odradek("load", "--telemetry-topic", "nothing")
    assert "no telemetry in the last 60 minutes, only sizes are known" in before

    async def write() -> None:
        async with Client(cluster.bootstrap_servers) as client, Producer(client) as producer:
            for _ in range(RECORDS):
                await producer.send("hot", b"x" * BYTES, partition=2)

    asyncio.run(write())
    answer = measured(odradek, "--by", "in")
    assert {row["source"] for row in answer["brokers"]} == {"measured"}
    assert {row["net_capacity"] for row in answer["brokers"]} == {1_000_000}
    assert answer["skipped_frames"] == 0 and answer["sources"].keys() == {"measured"}
    hottest, *others = [row for row in answer["partitions"] if row["topic"] == "hot"]
    assert hottest["partition"] == 2 and hottest["in"] > 0
    assert [row["in"] for row in others] == [0, 0, 0]
    (topic,) = [row for row in answer["topics"] if row["topic"] == "hot"]
    # Both replicas take it in, and one of them sends it to the other.
    assert topic["in"] == 2 * hottest["in"]
    assert sum(row["leaders"] for row in answer["brokers"]) == len(answer["partitions"])

    text = odradek("load", "--topic", "hot", "--by", "disk").splitlines()
    assert "2 brokers 2 measured, 0 estimated; 100.0% of" in text[0]
    assert text[2].split()[:3] == ["TOPIC", "PARTITION", "LEADER"]
    assert text[3].split()[:2] == ["hot", "2"] and len(text) == 7
    assert odradek.refused("load", "--topic", "cold").endswith("see `odradek topics list`")
    shown = odradek("load", "--limit", "1")
    assert "BROKER" in shown and "1 more: --limit" in shown


def test_brokers_that_publish_nothing_are_estimated(cluster: Cluster, odradek: CommandLine) -> None:
    """Into a topic of its own, in which these brokers are silent."""
    odradek("topics", "create", "quiet", "--partitions", "2", "--replication-factor", "2")
    topic = ("--telemetry-topic", "estimates")
    said = odradek("load", "poll", *topic, "--interval", "0.001", "--count", "1")
    assert said.splitlines()[0].startswith("first sample taken")
    assert said.splitlines()[1].endswith("estimated 2 brokers")
    answer = odradek.json("load", *topic)
    assert {row["source"] for row in answer["brokers"]} == {"estimated"}
    assert "quiet" in {row["topic"] for row in answer["topics"]}
    published = odradek("load", "poll", "--interval", "0.001", "--count", "1")
    assert published.splitlines()[1].endswith("all brokers publish for themselves")
    refused = odradek.refused("load", "poll", "--brokers", "one", code=2)
    assert refused.endswith("no ids, separated by commas: one")


def test_the_pipeline_it_prints_is_one(odradek: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "load.toml"
    file.write_text(odradek("load", "pipeline", "--path", str(tmp_path / "lake")))
    checked = odradek("pipeline", "check", str(file))
    assert checked == "load: 1 sources, 4 steps, 2 sinks\n"
