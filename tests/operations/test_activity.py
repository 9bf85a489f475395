"""Rates and request times from two readings of brokers' metrics."""

import json

import pytest
from click.testing import CliRunner

from odradek import Cluster
from odradek.cli.main import main
from odradek.client import Blocking, NewTopic, Producer, check
from odradek.operations import compare, read_brokers
from odradek.operations.activity import Reading, parse_samples

TEXT = """# HELP x A metric.
# TYPE kafka_server_brokertopicmetrics_bytesin_total counter
kafka_server_brokertopicmetrics_bytesin_total {in_all}
kafka_server_brokertopicmetrics_bytesin_total{{topic="a\\"b"}} {in_all}
kafka_server_replicamanager_leadercount 7
odradek_request_seconds_bucket{{api="Produce",le="0.001"}} {fast}
odradek_request_seconds_bucket{{api="Produce",le="+Inf"}} {all}
process_start_time_seconds {started}
"""


def reading(at_s: float, **values: float) -> Reading:
    text = TEXT.format(**{"in_all": 0, "fast": 0, "all": 0, "started": 5, **values})
    return Reading(at_s, {1: parse_samples(text)})


def test_rates_are_per_second_and_times_by_bucket() -> None:
    before = reading(10.0, in_all=100, fast=50, all=50)
    activity = compare(before, reading(12.0, in_all=300, fast=149, all=150))
    broker = activity.brokers[1]
    assert broker is not None
    assert (broker.bytes_in, broker.leaders) == (100.0, 7)
    assert broker.produce_ms_p99 == 1.0
    assert broker.fetch_ms_p99 is None
    (topic,) = activity.topics
    assert activity.topics[topic].bytes_in == 100.0


def test_what_is_above_the_last_bound_is_a_number() -> None:
    activity = compare(reading(0.0), reading(1.0, fast=1, all=100))
    assert activity.brokers[1] is not None
    assert activity.brokers[1].produce_ms_p99 == 10_000.0


def test_a_broker_that_restarted_or_is_not_there_has_no_figures() -> None:
    before = reading(0.0, in_all=1000)
    assert compare(before, reading(1.0, started=6)).brokers == {1: None}
    assert compare(before, Reading(1.0, {1: None, 2: None})).brokers == {1: None, 2: None}


@pytest.mark.process
def test_a_real_broker() -> None:
    with Cluster(brokers=1) as cluster, Blocking(cluster.bootstrap_servers) as client:
        check(client.run(client.admin.create_topics([NewTopic("t", 1, 1)])))
        before = client.run(read_brokers(client.admin))

        async def write() -> None:
            async with Producer(client.client) as producer:
                for _ in range(10):
                    await producer.send("t", b"x" * 100, partition=0)

        client.run(write())
        activity = compare(before, client.run(read_brokers(client.admin)))
        assert activity.brokers[1] is not None
        assert activity.brokers[1].records_in * activity.seconds == pytest.approx(10)
        assert activity.brokers[1].produce_ms_p99 is not None
        arguments = ["-b", cluster.bootstrap_servers, "--interval", "0.1"]
        shown = CliRunner().invoke(main, ["top", *arguments], catch_exceptions=False)
        assert "LOOP LAG P99" in shown.output
        printed = CliRunner().invoke(main, ["top", "--json", *arguments], catch_exceptions=False)
        assert json.loads(printed.output)["brokers"]["1"]["leaders"] >= 1
