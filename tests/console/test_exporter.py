"""The console's own /metrics, and what it knows of clients."""

from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.broker.clusters import Cluster, until
from tests.console.consoles import TOKEN, Browser

from odradek.client import Client, Producer
from odradek.client.quotas import QuotaEntity
from odradek.console.app import application
from odradek.console.console import Console
from odradek.console.options import InvalidOptions
from odradek.console.server import link
from odradek.wire.topics import TopicPartition

# What kafka_exporter exports, and the dashboards that are made for it ask for.
KAFKA_EXPORTER = """
kafka_brokers kafka_broker_info kafka_topic_partitions kafka_topic_partition_current_offset
kafka_topic_partition_oldest_offset kafka_topic_partition_in_sync_replica
kafka_topic_partition_leader kafka_topic_partition_leader_is_preferred
kafka_topic_partition_replicas kafka_topic_partition_under_replicated_partition
kafka_consumergroup_current_offset kafka_consumergroup_current_offset_sum kafka_consumergroup_lag
kafka_consumergroup_lag_sum kafka_consumergroup_members
"""
TOPIC, GROUP = "orders", 'a "group"\n'


async def test_39_every_name_of_kafka_exporter_has_a_value(
    brokers: Cluster, seen: tuple[Console, Browser]
) -> None:
    console, browser = seen
    await brokers.create_topic(TOPIC, partitions=2)
    await until(lambda: console.collector.table.leader(TOPIC, 1) >= 0)
    async with Producer(console.link.client) as producer:
        for number in range(10):
            await producer.send(TOPIC, b"x", partition=number % 2)
    await console.link.api.groups.alter_offsets(GROUP, {TopicPartition(TOPIC, 0): 2})
    await console.group_lags.read_list()
    await console.group_lags.read([GROUP])
    answer = await browser.ask("GET", "/metrics")
    values = {
        (sample.name, sample.labels.get("topic"), sample.labels.get("partition")): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }
    assert set(KAFKA_EXPORTER.split()) <= {name for name, _, _ in values}
    assert values["kafka_topic_partition_current_offset", TOPIC, "1"] == 5
    assert values["kafka_topic_partition_oldest_offset", TOPIC, "1"] == 0
    assert values["kafka_consumergroup_lag", TOPIC, "0"] == 3
    assert values["kafka_consumergroup_lag_sum", TOPIC, None] == 3


async def test_with_metrics_only_there_is_no_console(seen: tuple[Console, Browser]) -> None:
    console, _ = seen
    console.options = replace(console.options, metrics_only=True)
    exporter = Browser(application(console))
    assert "kafka_brokers 3" in (await exporter.ask("GET", "/metrics")).body.decode()
    assert (await exporter.ask("GET", "/livez")).status == 200
    for path in ("/", "/api/v1/session", "/static/app.css", "/login"):
        assert (await exporter.ask("GET", path)).status == 404, path
    assert (await exporter.ask("POST", "/api/v1/login", {"token": TOKEN})).status == 404
    token = {"authorization": f"Bearer {TOKEN}"}
    assert (await exporter.ask("GET", "/metrics", headers=token)).status == 200
    assert link(console.options, 8092, TOKEN) == "http://127.0.0.1:8092/metrics"
    with pytest.raises(InvalidOptions, match="give --cert"):
        replace(console.options, host="192.0.2.1").check()
    replace(console.options, host="192.0.2.1", certificate=Path("c.pem")).check()


async def test_clients_are_shown_with_what_they_use_of_their_quota(
    brokers: Cluster, seen: tuple[Console, Browser]
) -> None:
    console, browser = seen
    await brokers.create_topic(TOPIC)
    await until(lambda: console.collector.table.leader(TOPIC, 0) >= 0)
    limits = {"producer_byte_rate": 1_000.0}
    await console.link.api.quotas.alter(QuotaEntity(client_id="etl"), limits)
    servers = [f"{each.host}:{each.port}" for each in console.collector.brokers.nodes.values()]
    async with Client(servers, client_id="etl") as client, Producer(client) as producer:
        await until(lambda: any(each.quotas.are_set for each in brokers.brokers.values()))
        await (await producer.send(TOPIC, b"x" * 20_000, partition=0))
    shown = await browser.get("/quotas")
    (row,) = shown["clients"]
    assert shown["use_known"] and row["client_id"] == "etl" and row["user"] is None
    assert row["in_per_s"] > 1_000 and row["throttled_s_per_min"] > 0
    assert row["busy"] is None, "no quota, no measure"
