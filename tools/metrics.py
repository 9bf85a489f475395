"""Writes docs/metrics.md and the Grafana dashboard, from the table of metrics a broker exports.

Run: make docs. With --check nothing is written, and a stale file is an error. A panel names only
metrics of the table: with another the tool fails.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from odradek.broker.exposition import Metric
from odradek.broker.metrics import METRICS, PARTITION_METRICS

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "metrics.md"
DASHBOARD = ROOT / "src" / "odradek" / "observability" / "dashboard.json"
START, END = "<!-- metrics -->", "<!-- /metrics -->"
NAMES = re.compile(r"\b(?:kafka|odradek|process)_[a-z0-9_]+")
TOPICS = "kafka_server_brokertopicmetrics"
REPLICAS = "kafka_server_replicamanager"
CONTROLLER = "kafka_controller_kafkacontroller"
WIDTH, PANELS_PER_ROW, HEIGHT = 24, 3, 8

# (row, [(title, unit, legend, query)])
PANELS: tuple[tuple[str, tuple[tuple[str, str, str, str], ...]], ...] = (
    (
        "Health",
        (
            ("Active controllers", "none", "", f"sum({CONTROLLER}_activecontrollercount)"),
            ("Offline partitions", "none", "", f"sum({CONTROLLER}_offlinepartitionscount)"),
            ("Under-replicated", "none", "{{instance}}", f"{REPLICAS}_underreplicatedpartitions"),
            ("Under min ISR", "none", "{{instance}}", f"{REPLICAS}_underminisrpartitioncount"),
            ("At min ISR", "none", "{{instance}}", f"{REPLICAS}_atminisrpartitioncount"),
            (
                "Unclean elections",
                "none",
                "",
                "sum(kafka_controller_controllerstats_uncleanleaderelections_total)",
            ),
        ),
    ),
    (
        "Traffic",
        (
            (
                "Bytes in",
                "Bps",
                "{{topic}}",
                f'sum by (topic) (rate({TOPICS}_bytesin_total{{topic!=""}}[$__rate_interval]))',
            ),
            (
                "Bytes out",
                "Bps",
                "{{topic}}",
                f'sum by (topic) (rate({TOPICS}_bytesout_total{{topic!=""}}[$__rate_interval]))',
            ),
            (
                "Records in",
                "cps",
                "{{topic}}",
                f'sum by (topic) (rate({TOPICS}_messagesin_total{{topic!=""}}[$__rate_interval]))',
            ),
            (
                "Replication in",
                "Bps",
                "{{instance}}",
                f"rate({TOPICS}_replicationbytesin_total[$__rate_interval])",
            ),
            (
                "Failed produces",
                "cps",
                "{{instance}}",
                f'rate({TOPICS}_failedproducerequests_total{{topic=""}}[$__rate_interval])',
            ),
            (
                "Failed fetches",
                "cps",
                "{{instance}}",
                f'rate({TOPICS}_failedfetchrequests_total{{topic=""}}[$__rate_interval])',
            ),
        ),
    ),
    (
        "Requests",
        (
            (
                "Requests",
                "reqps",
                "{{request}}",
                "sum by (request) (rate(kafka_network_requestmetrics_requests_total"
                "[$__rate_interval]))",
            ),
            (
                "Request time, p99",
                "s",
                "{{api}}",
                "histogram_quantile(0.99, sum by (api, le)"
                " (rate(odradek_request_seconds_bucket[$__rate_interval])))",
            ),
            (
                "Errors",
                "cps",
                "{{api}} {{error}}",
                "sum by (api, error) (rate(odradek_request_errors_total[$__rate_interval]))",
            ),
            (
                "Loop lag, p99",
                "s",
                "{{instance}}",
                "histogram_quantile(0.99, sum by (instance, le)"
                " (rate(odradek_loop_lag_seconds_bucket[$__rate_interval])))",
            ),
            (
                "Idle",
                "percentunit",
                "{{instance}}",
                "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
            ),
            (
                "Connections",
                "none",
                "{{instance}} {{listener}}",
                "kafka_server_socket_server_metrics_connection_count",
            ),
        ),
    ),
    (
        "Brokers",
        (
            ("Leaders", "none", "{{instance}}", f"{REPLICAS}_leadercount"),
            ("Log size", "bytes", "{{instance}}", "odradek_log_size_bytes"),
            ("Follower lag", "none", "{{instance}}", "kafka_server_replicafetchermanager_maxlag"),
            ("Memory", "bytes", "{{instance}}", "process_resident_memory_bytes"),
            (
                "Processor",
                "percentunit",
                "{{instance}}",
                "rate(process_cpu_seconds_total[$__rate_interval])",
            ),
            ("Open files", "none", "{{instance}}", "process_open_fds"),
        ),
    ),
)


def table() -> str:
    lines = ["| metric | type | labels | what |", "|---|---|---|---|"]
    everything: list[Metric[Any]] = [*METRICS, *PARTITION_METRICS]
    for metric in everything:
        labels = ", ".join(metric.labels)
        lines.append(f"| `{metric.name}` | {metric.type.value} | {labels} | {metric.help} |")
    return "\n".join(lines)


def page(text: str) -> str:
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{table()}\n{END}{after}"


def known_series() -> set[str]:
    everything: list[Metric[Any]] = [*METRICS, *PARTITION_METRICS]
    return {series for metric in everything for series in metric.series}


def dashboard() -> str:
    source = {"type": "prometheus", "uid": "${datasource}"}
    panels: list[dict[str, object]] = []
    top = 0
    for row, charts in PANELS:
        position = {"h": 1, "w": WIDTH, "x": 0, "y": top}
        panels.append({"type": "row", "title": row, "gridPos": position, "panels": []})
        top += 1
        for number, (title, unit, legend, query) in enumerate(charts):
            unknown = set(NAMES.findall(query)) - known_series()
            if unknown:
                raise ValueError(f"panel {title!r} names {unknown}, which no broker exports")
            column, line = number % PANELS_PER_ROW, number // PANELS_PER_ROW
            width = WIDTH // PANELS_PER_ROW
            panels.append(
                {
                    "type": "timeseries",
                    "title": title,
                    "datasource": source,
                    "gridPos": {
                        "h": HEIGHT,
                        "w": width,
                        "x": column * width,
                        "y": top + line * HEIGHT,
                    },
                    "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
                    "targets": [{"refId": "A", "expr": query, "legendFormat": legend}],
                }
            )
        top += HEIGHT * -(-len(charts) // PANELS_PER_ROW)
    for number, panel in enumerate(panels, 1):
        panel["id"] = number
    variable = {"name": "datasource", "type": "datasource", "query": "prometheus"}
    made = {
        "title": "Odradek",
        "uid": "odradek",
        "schemaVersion": 39,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [variable]},
        "panels": panels,
    }
    return json.dumps(made, indent=2) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    is_check = parser.parse_args().check
    stale = []
    for path, text in ((PAGE, page(PAGE.read_text())), (DASHBOARD, dashboard())):
        if not path.exists() or path.read_text() != text:
            stale.append(path.name)
            if not is_check:
                path.write_text(text)
    if is_check and stale:
        print(f"stale: {', '.join(stale)}; run make docs", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
