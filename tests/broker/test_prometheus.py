"""A real Prometheus scrapes three real brokers, and its alerts' expressions become true."""

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from odradek import Cluster
from odradek.client import Blocking, NewTopic, check

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        shutil.which("prometheus") is None or shutil.which("promtool") is None,
        reason="no prometheus: apt-get install prometheus",
    ),
]

SHIPPED = Path(__file__).parent.parent.parent / "src" / "odradek" / "observability"
DEADLINE_S = 60.0
POLL_S = 0.1


class Prometheus:
    """A server, and the questions it is asked."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.address}/-/ready", timeout=30) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The result of an instant query: one entry for each series."""
        query = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"{self.address}/api/v1/query?{query}", timeout=30) as answer:
            found = json.load(answer)
        assert found["status"] == "success"
        result: list[dict[str, Any]] = found["data"]["result"]
        return result

    def value(self, expression: str) -> float | None:
        found = self.query(expression)
        return float(found[0]["value"][1]) if found else None


def until(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, f"{what} did not come about"
        time.sleep(POLL_S)


@contextmanager
def prometheus(directory: Path, targets: list[str]) -> Iterator[Prometheus]:
    config = yaml.safe_load((SHIPPED / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "200ms", "evaluation_interval": "200ms"}
    config["scrape_configs"][0]["static_configs"] = [{"targets": targets}]
    for name in config["rule_files"]:
        shutil.copy(SHIPPED / name, directory)
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with open(directory / "prometheus.log", "wb") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    server = Prometheus(port)
    try:
        until(server.is_ready, "Prometheus")
        yield server
    finally:
        process.kill()
        process.wait()


def alerts() -> dict[str, str]:
    groups = yaml.safe_load((SHIPPED / "alerts.yml").read_text())["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


def test_a_killed_broker_makes_its_alerts_true(tmp_path: Path) -> None:
    rules = alerts()
    with Cluster(brokers=3) as cluster:
        with Blocking(cluster.bootstrap_servers) as client:
            check(client.run(client.admin.create_topics([NewTopic("t", 6, 3)])))
        targets = [cluster.http_address(broker) for broker in cluster.ids]
        with prometheus(tmp_path, targets) as server:
            until(lambda: server.value("sum(up)") == 3, "three targets")
            replicas = "sum(kafka_server_replicamanager_partitioncount)"
            until(lambda: server.value(replicas) == 18, "18 replicas")
            until(
                lambda: server.value(f"count({rules['OdradekUnderReplicated']})") is None,
                "all replicas in sync",
            )
            for name, expression in rules.items():
                checked = subprocess.run(
                    ["promtool", "query", "instant", server.address, expression],
                    capture_output=True,
                    text=True,
                    timeout=60,
                )
                assert checked.returncode == 0, (name, checked.stderr)
                if name != "OdradekLoopLag":  # of a machine under load it is true
                    assert checked.stdout.strip() == "", (name, checked.stdout)
            victim = next(each for each in cluster.ids if each != cluster.controller_id())
            cluster.kill(victim)
            down = rules["OdradekBrokerDown"]
            until(lambda: server.query(down), "the broker to be seen down")
            (found,) = server.query(down)
            assert found["metric"]["instance"] == targets[cluster.ids.index(victim)]
            until(lambda: server.query(rules["OdradekUnderReplicated"]), "under-replication")
            recorded = "kafka_server_brokertopicmetrics_bytesinpersec_count"
            until(lambda: server.query(recorded), "the recording rules")
