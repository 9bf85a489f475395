"""Dashboards on a cluster that is used: no panel is empty.

Of other projects' dashboards the panels stand here as what they ask for: a metric, the matchers on
labels that come from a broker or an exporter, and the labels that they group by. Labels that
Prometheus adds itself (instance, namespace, pod) are left out, and so are panels about the JVM, the
kubelet and disk devices.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families
from tests.broker.clusters import Cluster, fetch_request, produce, until
from tests.broker.test_metrics import get
from tests.console.consoles import Browser

import odradek
from odradek.console.console import Console
from odradek.console.exporter import line
from odradek.wire.topics import TopicPartition

OURS = Path(odradek.__file__).parent / "observability" / "dashboard.json"
TOPIC, GROUP = "orders", "billing"

TRAFFIC = (
    "bytesin",
    "bytesout",
    "messagesin",
    "totalproducerequests",
    "failedproducerequests",
    "totalfetchrequests",
    "failedfetchrequests",
)
_TRAFFIC = "kafka_server_brokertopicmetrics_{}_total{{topic!=''}} by (topic)"
# Strimzi's dashboard "Kafka", of 2025.
STRIMZI = [
    "kafka_server_replicamanager_leadercount",
    "kafka_controller_kafkacontroller_activecontrollercount",
    "kafka_controller_controllerstats_uncleanleaderelections_total",
    "kafka_server_replicamanager_partitioncount",
    "kafka_server_replicamanager_underreplicatedpartitions",
    "kafka_cluster_partition_atminisr",
    "kafka_cluster_partition_underminisr",
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    "process_open_fds",
    *map(_TRAFFIC.format, TRAFFIC),
    "kafka_network_socketserver_networkprocessoravgidle_percent",
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "kafka_server_socket_server_metrics_connection_count by (listener)",
    "kafka_cluster_partition_replicascount by (topic)",
    "kafka_log_log_size by (topic, partition)",
]
# Strimzi's "Kafka Exporter" and kafka_exporter's own, of 2025.
EXPORTER = [
    "kafka_broker_info",
    "kafka_topic_partitions by (topic)",
    "kafka_topic_partition_replicas by (topic)",
    "kafka_topic_partition_in_sync_replica by (topic)",
    "kafka_topic_partition_under_replicated_partition by (topic)",
    "kafka_topic_partition_leader_is_preferred by (topic)",
    "kafka_topic_partition_current_offset by (topic, partition)",
    "kafka_topic_partition_oldest_offset by (topic, partition)",
    "kafka_consumergroup_current_offset by (consumergroup, topic, partition)",
    "kafka_consumergroup_lag by (consumergroup, topic, partition)",
]
_SELECTOR = re.compile(r"\b((?:kafka|odradek|process)_[a-z0-9_]+)(?:\{([^}]*)\})?")
_MATCHER = re.compile(r"""(\w+)\s*(!=|=)\s*["']([^"']*)["']""")
_GROUPS = re.compile(r"\bby \(([^)]*)\)")
# Made by a query or by Prometheus.
_ADDED = {"instance", "le"}


class Sample(NamedTuple):
    name: str
    labels: dict[str, str]


def samples_of(text: str) -> list[Sample]:
    return [
        Sample(sample.name, sample.labels)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]


def is_shown(query: str, samples: Iterable[Sample]) -> bool:
    """Whether each metric that a query names has a sample with what the query needs of labels."""
    grouped = {
        label.strip() for found in _GROUPS.findall(query) for label in found.split(",")
    } - _ADDED
    selectors = _SELECTOR.findall(query)
    assert selectors, query
    for name, matchers in selectors:
        wanted = _MATCHER.findall(matchers)
        if not any(
            sample.name == name
            and all(sample.labels.get(label) for label in grouped)
            and all((sample.labels.get(a, "") == b) is (op == "=") for a, op, b in wanted)
            for sample in samples
        ):
            return False
    return True


def test_a_panel_without_data_is_found() -> None:
    samples = [Sample("kafka_a", {"topic": "t"}), Sample("kafka_b", {})]
    assert is_shown('sum by (topic) (rate(kafka_a{topic!=""}[5m]))', samples)
    assert is_shown('rate(kafka_b{topic=""}[5m])', samples)
    assert not is_shown("sum by (topic) (kafka_b)", samples)
    assert not is_shown('kafka_a{topic=""}', samples)
    assert not is_shown("kafka_c / kafka_a", samples)


def test_no_digit_of_an_offset_is_lost() -> None:
    assert line("kafka_topic_partition_current_offset", 123_456_789_012, topic="t") == (
        'kafka_topic_partition_current_offset{topic="t"} 123456789012\n'
    )
    assert line("a", 0.25) == "a 0.25\n"
    assert line("a", True) == "a 1\n"


async def test_39_every_panel_shows_data(brokers: Cluster, seen: tuple[Console, Browser]) -> None:
    console, browser = seen
    await brokers.create_topic(TOPIC, partitions=2, replicas=2)
    await until(lambda: console.collector.table.leader(TOPIC, 1) >= 0)
    for p in range(2):
        leader = await brokers.connect(console.collector.table.leader(TOPIC, p))
        await produce(leader, TOPIC, b"value", partition=p)
        await leader.request(fetch_request(TOPIC), 11)
    failing = await brokers.connect(1)
    await produce(failing, "there-is-no-such-topic", b"value")
    await console.link.api.groups.alter_offsets(GROUP, {TopicPartition(TOPIC, 0): 0})
    await console.group_lags.read_list()
    await console.group_lags.read([GROUP])
    of_brokers = [
        sample
        for broker in brokers.brokers.values()
        for sample in samples_of((await get(broker, "/metrics"))[1])
    ]
    of_console = samples_of((await browser.ask("GET", "/metrics")).body.decode())
    panels = json.loads(OURS.read_text())["panels"]
    ours = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    empty = [query for query in [*STRIMZI, *ours] if not is_shown(query, of_brokers)]
    empty += [query for query in EXPORTER if not is_shown(query, of_console)]
    assert empty == []
