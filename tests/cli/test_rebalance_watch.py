"""A watcher that is asked to level the cluster does so by itself."""

from pathlib import Path

import pytest

pytest.importorskip("numba")
pytest.importorskip("pyarrow")

from tests.cli.conftest import CommandLine, watching

from odradek import Cluster

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("planner_kernels")]

SETTINGS = """
[heal]
balance = true
balance-interval = "1s"
interval = "1s"
controller-after = "0s"
"""


def test_what_is_uneven_for_three_looks_is_levelled(tmp_path: Path) -> None:
    settings = tmp_path / "rebalance.toml"
    settings.write_text(SETTINGS)
    with Cluster(brokers=3, config={"odradek.telemetry.interval.ms": 500}) as cluster:
        odradek = CommandLine(cluster.bootstrap_servers)
        odradek("topics", "create", "crowded", "--replicas", ",".join(["1"] * 60))
        odradek("produce", "crowded", input="kept\n")
        with watching(odradek, "--settings", str(settings)) as (_, said):

            def is_level() -> bool:
                found = cluster.topic("crowded")
                assert found is not None
                homes = [part.replica_nodes[0] for part in found.partitions]
                return min(homes.count(broker) for broker in (2, 3)) > 10

            cluster.wait_until(is_level, "partitions are on all brokers", timeout_s=120)
            cluster.wait_until(
                lambda: (
                    not any(
                        row["state"] == "running"
                        for row in odradek.json("rebalance", "status", "--all")
                    )
                ),
                "the plan has ended",
            )
        plans = odradek.json("rebalance", "status", "--all")
        assert {row["by"] for row in plans} <= {
            "watch: cluster: unbalanced",
            *(f"watch: broker {broker}: nearly empty" for broker in (2, 3)),
        }
        assert any("cluster: unbalanced" in text for text in said), said
        assert odradek("consume", "crowded") == "kept\n"
