"""Dashboard, rules and documentation agree with the table of metrics; other dashboards' names."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from odradek.broker.exposition import Metric
from odradek.broker.metrics import METRICS, PARTITION_METRICS
from odradek.cli.main import main

ROOT = Path(__file__).parent.parent.parent
SHIPPED = ROOT / "src" / "odradek" / "observability"
NAMES = re.compile(r"\b(?:kafka|odradek|process)_[a-z0-9_]+")
TABLE: list[Metric[Any]] = [*METRICS, *PARTITION_METRICS]
SERIES = {series for metric in TABLE for series in metric.series}

# Of Strimzi's Kafka dashboard and alert rules, without JVM, container, kubelet and disk devices.
STRIMZI = """
kafka_cluster_partition_atminisr kafka_cluster_partition_replicascount
kafka_cluster_partition_underminisr
kafka_controller_controllerstats_uncleanleaderelections_total
kafka_controller_kafkacontroller_activecontrollercount
kafka_controller_kafkacontroller_offlinepartitionscount kafka_log_log_size
kafka_log_logmanager_offlinelogdirectorycount
kafka_network_socketserver_networkprocessoravgidle_percent
kafka_server_brokertopicmetrics_bytesin_total kafka_server_brokertopicmetrics_bytesout_total
kafka_server_brokertopicmetrics_failedfetchrequests_total
kafka_server_brokertopicmetrics_failedproducerequests_total
kafka_server_brokertopicmetrics_messagesin_total
kafka_server_brokertopicmetrics_totalfetchrequests_total
kafka_server_brokertopicmetrics_totalproducerequests_total
kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent
kafka_server_replicamanager_leadercount kafka_server_replicamanager_partitioncount
kafka_server_replicamanager_underminisrpartitioncount
kafka_server_replicamanager_underreplicatedpartitions
kafka_server_socket_server_metrics_connection_count process_open_fds
"""
# Of the dashboard for kafka_exporter, those that one broker knows; the others need the cluster.
KAFKA_EXPORTER = "kafka_cluster_partition_atminisr kafka_cluster_partition_underminisr"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("metrics_tool", ROOT / "tools" / "metrics.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def expressions(name: str) -> list[str]:
    groups = yaml.safe_load((SHIPPED / name).read_text())["groups"]
    return [rule["expr"] for group in groups for rule in group["rules"]]


def test_nothing_that_is_generated_is_stale(tool: ModuleType) -> None:
    assert tool.page(tool.PAGE.read_text()) == tool.PAGE.read_text(), "run make docs"
    assert tool.dashboard() == tool.DASHBOARD.read_text(), "run make docs"


def test_no_panel_names_a_metric_that_is_not_exported() -> None:
    panels = json.loads((SHIPPED / "dashboard.json").read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    assert len(queries) > 20
    for query in queries:
        found = NAMES.findall(query)
        assert found, query
        assert set(found) <= SERIES, query


@pytest.mark.parametrize("file", ["alerts.yml", "recording.yml"])
def test_no_rule_names_a_metric_that_is_not_exported(file: str) -> None:
    for expression in expressions(file):
        assert set(NAMES.findall(expression)) <= SERIES, expression


@pytest.mark.parametrize("names", [STRIMZI, KAFKA_EXPORTER], ids=["strimzi", "kafka_exporter"])
def test_the_names_of_other_dashboards_are_exported(names: str) -> None:
    assert set(names.split()) <= SERIES


def test_names_types_and_labels_are_well_formed() -> None:
    names = [metric.name for metric in TABLE]
    assert len(set(names)) == len(names)
    for metric in TABLE:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", metric.name)
        assert metric.help.endswith("."), metric.name
        if metric.name.endswith("_total"):
            assert metric.type == "counter", metric.name


def test_the_command_lists_and_writes_them(tmp_path: Path) -> None:
    listed = CliRunner().invoke(main, ["metrics", "--json"])
    assert {row["name"] for row in json.loads(listed.output)} == {each.name for each in TABLE}
    assert "odradek_loop_lag_seconds" in CliRunner().invoke(main, ["metrics"]).output
    CliRunner().invoke(main, ["metrics", "--files", str(tmp_path)], catch_exceptions=False)
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert written == {path.name: path.read_text() for path in SHIPPED.iterdir()}
    refused = CliRunner().invoke(main, ["metrics", "--files", f"{os.devnull}/x"])
    assert refused.output == f"Error: {os.devnull}/x: Not a directory\n"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool: install prometheus")
@pytest.mark.parametrize("file", ["alerts.yml", "recording.yml"])
def test_promtool_accepts_the_rules(file: str) -> None:
    checked = subprocess.run(
        ["promtool", "check", "rules", str(SHIPPED / file)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert checked.returncode == 0, checked.stderr
